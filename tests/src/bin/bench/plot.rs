//! Plots as SVG. Bars, lines and texts need no library.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::results::{Row, Unit};

/// Width of a plot.
const WIDTH: f64 = 960.0;
/// Height of a bar with its margin, and of a line of text.
const LINE: f64 = 26.0;
/// Where bars begin: left of it are the titles.
const BARS_LEFT: f64 = 520.0;
/// The largest ratio that a bar shows in full.
const LARGEST_RATIO: f64 = 2.0;
/// Height of the plot of curves, and its margins.
const HEIGHT: f64 = 420.0;
const MARGIN: f64 = 70.0;
/// Colours of a met goal, a missed one, no goal, and of curves.
const MET_COLOUR: &str = "#2e7d32";
const MISSED_COLOUR: &str = "#c62828";
const NEUTRAL: &str = "#546e7a";
const CURVES: [&str; 4] = ["#1565c0", "#c62828", "#2e7d32", "#6a1b9a"];

/// Returns a plot of the rows that have a ratio: a bar for each, and a mark at its limit.
pub(crate) fn ratios(rows: &[Row]) -> String {
    let rows: Vec<_> = rows.iter().filter_map(|row| Some((row, row.ratio()?))).collect();
    let scale = (WIDTH - BARS_LEFT - MARGIN) / LARGEST_RATIO;
    let mut body = String::new();
    let mut top = LINE * 2.0;
    text(
        &mut body,
        (10.0, LINE),
        "start",
        "Sluice to the alternative (1 is equal), and limits",
    );
    for (row, ratio) in rows {
        let colour = match row.is_met() {
            Some(true) => MET_COLOUR,
            Some(false) => MISSED_COLOUR,
            None => NEUTRAL,
        };
        let length = ratio.min(LARGEST_RATIO) * scale;
        let baseline = top + LINE * 0.6;
        text(&mut body, (BARS_LEFT - 10.0, baseline), "end", row.what());
        // Writing to a String cannot fail.
        let _infallible = writeln!(
            body,
            "<rect x=\"{BARS_LEFT:.1}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
            LINE * 0.7
        );
        text(
            &mut body,
            (BARS_LEFT + length + 6.0, baseline),
            "start",
            &format!("{ratio:.3}"),
        );
        if let Some(limit) = row.ratio_limit() {
            let at = BARS_LEFT + limit.min(LARGEST_RATIO) * scale;
            line(&mut body, (at, top - 3.0), (at, top + LINE * 0.8), "#000");
        }
        top += LINE;
    }
    let one = BARS_LEFT + scale;
    line(&mut body, (one, LINE * 1.5), (one, top), "#bbb");
    document(top + LINE, &body)
}

/// Returns a plot of curves: the logarithm of megabytes to seconds.
pub(crate) fn curves(curves: &BTreeMap<String, Vec<(f64, f64)>>) -> String {
    let points = || curves.values().flatten();
    let largest = points().map(|(_, seconds)| *seconds).fold(0.001, f64::max);
    let most = points().map(|(megabytes, _)| *megabytes).fold(10.0, f64::max);
    let x = |megabytes: f64| MARGIN + megabytes.max(1.0).ln() / most.ln() * (WIDTH - 2.0 * MARGIN);
    let y = |seconds: f64| HEIGHT - MARGIN - seconds / largest * (HEIGHT - 2.0 * MARGIN);
    let mut body = String::new();
    line(&mut body, (MARGIN, y(0.0)), (WIDTH - MARGIN, y(0.0)), "#000");
    line(&mut body, (MARGIN, y(0.0)), (MARGIN, y(largest)), "#000");
    text(
        &mut body,
        (MARGIN - 6.0, y(largest)),
        "end",
        &Unit::Seconds.show(largest),
    );
    text(&mut body, (MARGIN - 6.0, y(0.0)), "end", "0");
    for (number, (name, points)) in curves.iter().enumerate() {
        let colour = CURVES[number % CURVES.len()];
        let shown = points
            .iter()
            .map(|(megabytes, seconds)| format!("{:.1},{:.1}", x(*megabytes), y(*seconds)));
        let shown: Vec<_> = shown.collect();
        let _infallible = writeln!(
            body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            shown.join(" ")
        );
        let top = LINE * 0.8 + LINE * 0.7 * f64::from(u32::try_from(number).unwrap_or_default());
        line(&mut body, (MARGIN + 20.0, top), (MARGIN + 50.0, top), colour);
        text(&mut body, (MARGIN + 58.0, top + 4.0), "start", name);
    }
    let mut sizes: Vec<_> = points().map(|(megabytes, _)| *megabytes).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    for size in sizes {
        text(
            &mut body,
            (x(size), y(0.0) + 20.0),
            "middle",
            &format!("{size:.0} MB"),
        );
    }
    document(HEIGHT, &body)
}

fn document(height: f64, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

fn line(body: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let _infallible = writeln!(
        body,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(body: &mut String, at: (f64, f64), anchor: &str, text: &str) {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('`', "");
    let _infallible = writeln!(
        body,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
        at.0,
        at.1,
        escaped.trim()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Goal;

    #[test]
    fn a_plot_has_a_bar_for_each_ratio_and_escapes_its_texts() {
        let row = |what: &str, other: Vec<f64>| {
            let row = Row::new(what, Unit::Count, vec![1.0]);
            row.beside("git", other).goal(Goal::RatioAtMost(0.4))
        };
        let plot = ratios(&[row("a <b>", vec![2.0]), row("not measured", Vec::new())]);
        assert_eq!(plot.matches("<rect x=").count(), 1, "{plot}");
        assert!(
            plot.contains("a &lt;b>") && plot.contains(MISSED_COLOUR),
            "{plot}"
        );
        assert!(!plot.contains("not measured"), "{plot}");
    }

    #[test]
    fn curves_stay_inside_of_the_plot() {
        let points = vec![(1.0, 0.1), (1000.0, 0.4)];
        let plot = curves(&BTreeMap::from([("push".to_owned(), points)]));
        assert!(plot.contains("points=\"70.0,280.0 890.0,70.0\""), "{plot}");
    }
}
