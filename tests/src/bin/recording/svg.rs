//! Renders a recording as one image that plays by an animation of CSS, without a script and without a font of its own.

mod palette;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::cast::Event;
use crate::scenario::{COLUMNS, ROWS};
use crate::screen::{Cell, Row, Screen, Style};

/// Width of a letter in pixels: 0.6 of the size of the font, as in most fonts of terminals.
const LETTER: usize = 8;
/// Height of a row in pixels.
const LINE: usize = 18;
/// Distance of the letters from the edge.
const MARGIN: usize = 16;
/// The shortest time of a picture. Events that follow faster share one.
const SHORTEST: Duration = Duration::from_millis(110);
/// Time of the last picture before the animation begins again.
const END: Duration = Duration::from_secs(6);

/// What a screen shows from a time on.
struct Frame {
    start: Duration,
    rows: Vec<Row>,
    cursor: (usize, usize),
}

fn frames(events: &[Event]) -> Vec<Frame> {
    let mut screen = Screen::new(COLUMNS, ROWS);
    let mut frames: Vec<Frame> = Vec::new();
    for event in events {
        screen.write(&event.text);
        let is_short = |last: &mut Frame| event.time.saturating_sub(last.start) < SHORTEST;
        let replaced = frames.pop_if(is_short);
        frames.push(Frame {
            start: replaced.map_or(event.time, |frame| frame.start),
            rows: screen.rows(),
            cursor: screen.cursor(),
        });
    }
    frames
}

/// The texts of the image. `digest` names the scenario that it shows.
pub(crate) struct Texts<'a> {
    /// The title for those who do not see the image.
    pub(crate) title: &'a str,
    /// What happens in it.
    pub(crate) description: &'a str,
    /// The digest of the recorded scenario.
    pub(crate) digest: &'a str,
}

/// Returns the image. The pictures are one below the other, and the animation moves them behind a window; without an animation, and where the
/// user asks for less motion, the last one is visible. Equal rows are there once.
pub(crate) fn render(events: &[Event], texts: &Texts<'_>) -> String {
    let frames = frames(events);
    let (width, height) = (usize::from(COLUMNS) * LETTER, usize::from(ROWS) * LINE);
    let (outer_width, outer_height) = (width + 2 * MARGIN, height + 2 * MARGIN);
    let mut rows = Rows::default();
    let pictures: String = frames
        .iter()
        .enumerate()
        .map(|(index, frame)| picture(frame, index * height, &mut rows))
        .collect();
    let [title, description] = [texts.title, texts.description].map(escape);
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {outer_width} {outer_height}" width="{outer_width}" height="{outer_height}" role="img" aria-labelledby="title description" data-scenario="{digest}">
<title id="title">{title}</title>
<desc id="description">{description}</desc>
<style>
{style}{animation}</style>
<defs>
<rect id="c" width="{LETTER}" height="{LINE}"/>
{definitions}</defs>
<rect class="window" width="{outer_width}" height="{outer_height}" rx="8"/>
<svg x="{MARGIN}" y="{MARGIN}" width="{width}" height="{height}">
<g class="film">
{pictures}</g>
</svg>
</svg>
"#,
        digest = texts.digest,
        style = palette::style(),
        animation = animation(&frames, height),
        definitions = rows.definitions,
    )
}

/// The definitions of rows, and their numbers.
#[derive(Default)]
struct Rows {
    numbers: HashMap<Row, usize>,
    definitions: String,
}

impl Rows {
    /// Returns the number of a row; defines it if it is new.
    fn number(&mut self, row: &Row) -> usize {
        if let Some(number) = self.numbers.get(row) {
            return *number;
        }
        let number = self.numbers.len();
        self.numbers.insert(row.clone(), number);
        self.definitions.push_str(&definition(number, row));
        number
    }
}

/// Returns one picture at this height: a group that uses the rows.
fn picture(frame: &Frame, top: usize, rows: &mut Rows) -> String {
    let mut group = String::from("<g>");
    let (row, column) = frame.cursor;
    let _ = write!(
        group,
        r##"<use href="#c" x="{}" y="{}"/>"##,
        column * LETTER,
        top + row * LINE
    );
    let visible = frame.rows.iter().enumerate().filter(|(_, row)| !row.is_empty());
    for (index, row) in visible {
        let number = rows.number(row);
        let _ = write!(group, r##"<use href="#r{number}" y="{}"/>"##, top + index * LINE);
    }
    group.push_str("</g>\n");
    group
}

/// Returns the text of a row. Each part that two spaces or another look separate from the one before has a place of its own, so that columns are
/// in line whatever the width of the font is.
fn definition(number: usize, row: &[Cell]) -> String {
    let mut text = format!(r#"<text id="r{number}" y="{}">"#, LINE - 5);
    for part in parts(row) {
        let letters: String = part.cells.iter().map(|cell| cell.letter).collect();
        let _ = write!(
            text,
            r#"<tspan x="{}"{}>"#,
            part.column * LETTER,
            class(part.style)
        );
        text.push_str(&escape(&letters));
        text.push_str("</tspan>");
    }
    text.push_str("</text>\n");
    text
}

/// Letters of one look next to each other.
struct Part<'a> {
    column: usize,
    style: Style,
    cells: &'a [Cell],
}

fn parts(row: &[Cell]) -> Vec<Part<'_>> {
    let is_blank = |index: usize| row.get(index).is_none_or(|cell| cell.letter == ' ');
    let mut parts: Vec<Part<'_>> = Vec::new();
    for (column, cell) in row.iter().enumerate().filter(|(_, cell)| cell.letter != ' ') {
        let starts_anew = column < 2 || is_blank(column - 1) && is_blank(column - 2);
        match parts.last_mut() {
            Some(part)
                if part.style == cell.style && (!starts_anew || column == part.column + part.cells.len()) =>
            {
                part.cells = &row[part.column..=column];
            }
            _ => parts.push(Part {
                column,
                style: cell.style,
                cells: &row[column..=column],
            }),
        }
    }
    parts
}

/// Returns the attribute with the classes of a look.
fn class(style: Style) -> String {
    let colour = palette::CLASSES.get(usize::from(style.colour)).copied();
    let names: Vec<_> = [
        colour.filter(|name| !name.is_empty()),
        style.bold.then_some("bold"),
        style.faint.then_some("faint"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(r#" class="{}""#, names.join(" "))
    }
}

/// Returns the rules that move the pictures: each step shows the next one at its time.
fn animation(frames: &[Frame], height: usize) -> String {
    let end = frames.last().map_or(Duration::ZERO, |frame| frame.start) + END;
    let total = end.as_millis();
    let last = frames.len().saturating_sub(1) * height;
    let mut rules = format!(
        ".film{{transform:translateY(-{last}px);animation:film {total}ms step-end infinite}}\n\
         @media (prefers-reduced-motion:reduce){{.film{{animation:none}}}}\n@keyframes film{{\n"
    );
    for (index, frame) in frames.iter().enumerate() {
        let thousandths = frame.start.as_millis() * 100_000 / total;
        let (percent, rest) = (thousandths / 1000, thousandths % 1000);
        let _ = writeln!(
            rules,
            "{percent}.{rest:03}%{{transform:translateY(-{}px)}}",
            index * height
        );
    }
    rules.push_str("}\n");
    rules
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(milliseconds: u64, text: &str) -> Event {
        Event {
            time: Duration::from_millis(milliseconds),
            text: text.to_owned(),
        }
    }

    #[test]
    fn events_that_follow_fast_share_a_picture() {
        let events = [
            event(0, "a"),
            event(100, "b"),
            event(120, "c"),
            event(500, "\r\nabc"),
        ];
        let starts: Vec<_> = frames(&events)
            .iter()
            .map(|frame| frame.start.as_millis())
            .collect();
        assert_eq!(starts, [0, 120, 500]);
        let image = render(
            &events,
            &Texts {
                title: "a < b",
                description: "",
                digest: "sha256:0",
            },
        );
        assert_eq!(
            image.matches("<text ").count(),
            2,
            "ab and abc: equal rows are there once"
        );
        assert_eq!(image.matches("<g>").count(), 3);
        assert!(
            image.contains("\n0.000%{transform:translateY(-0px)}\n1.846%{"),
            "{image}"
        );
        assert!(image.contains("<title id=\"title\">a &lt; b</title>"), "{image}");
        assert!(image.contains("data-scenario=\"sha256:0\""), "{image}");
    }

    #[test]
    fn columns_and_looks_are_parts() {
        let mut screen = Screen::new(COLUMNS, 1);
        screen.write("  NAME   IN LINE \x1b[1;32mRe<dy\x1b[0m");
        let text = definition(7, &screen.rows()[0]);
        assert_eq!(
            text,
            "<text id=\"r7\" y=\"13\"><tspan x=\"16\">NAME</tspan><tspan x=\"72\">IN LINE</tspan>\
             <tspan x=\"136\" class=\"g bold\">Re&lt;dy</tspan></text>\n"
        );
    }
}
