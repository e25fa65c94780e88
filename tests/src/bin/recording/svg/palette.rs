//! The colours: one set for dark and one for light surroundings, each on a background of its own.

use std::fmt::Write as _;

/// The classes of the colours, in the order of their numbers in SGR sequences; the first one is that of the text.
pub(super) const CLASSES: [&str; 7] = ["", "r", "g", "y", "b", "m", "c"];

/// Colours as six hexadecimal digits.
struct Palette {
    window: &'static str,
    cursor: &'static str,
    text: &'static str,
    faint: &'static str,
    /// The colours of [`CLASSES`] after the first.
    colours: [&'static str; 6],
}

const DARK: Palette = Palette {
    window: "0d1117",
    cursor: "4b535d",
    text: "e6edf3",
    faint: "9198a1",
    colours: ["ff7b72", "3fb950", "d29922", "79c0ff", "d2a8ff", "56d4dd"],
};

const LIGHT: Palette = Palette {
    window: "f6f8fa",
    cursor: "b7bfc8",
    text: "1f2328",
    faint: "59636e",
    colours: ["cf222e", "1a7f37", "9a6700", "0969da", "8250df", "1b7c83"],
};

impl Palette {
    fn rules(&self) -> String {
        let mut rules = format!(
            ".window{{fill:#{}}}#c{{fill:#{}}}text{{fill:#{}}}.faint{{fill:#{}}}",
            self.window, self.cursor, self.text, self.faint
        );
        for (class, colour) in CLASSES.iter().skip(1).zip(self.colours) {
            let _ = write!(rules, ".{class}{{fill:#{colour}}}");
        }
        rules
    }
}

/// Returns the rules for letters and colours.
pub(super) fn style() -> String {
    let font = "13.33px ui-monospace,SFMono-Regular,Menlo,Consolas,\"DejaVu Sans Mono\",monospace";
    format!(
        "text{{font:{font}}}.bold{{font-weight:700}}\n{}\n@media (prefers-color-scheme:light){{{}}}\n",
        DARK.rules(),
        LIGHT.rules()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The relative luminance of a colour (WCAG 2.2).
    fn luminance(colour: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.040_45 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126f64.mul_add(channel(0), 0.7152f64.mul_add(channel(2), 0.0722 * channel(4)))
    }

    #[test]
    fn every_colour_is_readable_on_its_background() {
        for palette in [&DARK, &LIGHT] {
            let [background, texts] = [luminance(palette.window), luminance(palette.text)];
            assert_eq!(background < texts, palette.window == DARK.window);
            for colour in palette.colours.iter().chain([&palette.text, &palette.faint]) {
                let [one, other] = [luminance(colour) + 0.05, background + 0.05];
                let contrast = (one / other).max(other / one);
                assert!(contrast >= 4.5, "{colour} on {}: {contrast:.2}", palette.window);
            }
        }
    }

    #[test]
    fn the_rules_have_both_sets() {
        let style = style();
        assert!(
            style.contains(".g{fill:#3fb950}") && style.contains(".g{fill:#1a7f37}"),
            "{style}"
        );
        assert_eq!(style.matches('{').count(), style.matches('}').count());
    }
}
