//! Patterns in the fields of the guard rails: `*` stands for any number of characters, everything else for itself.

/// Whether the whole text is as the pattern says. Takes at most `pattern * text` steps, whatever the two are.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut seen) = (0, 0);
    // Where the last star stands, and how much of the text it has taken so far.
    let mut star: Option<(usize, usize)> = None;
    while seen < text.len() {
        match (pattern.get(at), star) {
            (Some(b'*'), _) => {
                star = Some((at, seen));
                at += 1;
            }
            (Some(byte), _) if *byte == text[seen] => {
                at += 1;
                seen += 1;
            }
            (_, Some((place, taken))) => {
                star = Some((place, taken + 1));
                at = place + 1;
                seen = taken + 1;
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_star_is_any_number_of_characters() {
        for (pattern, text, wanted) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "a.b[\"c\"]", true),
            ("a*", "ab", true),
            ("a*", "ba", false),
            ("*b*", "abc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-", false),
            ("a?", "ab", false),
            ("module.x.*", "module.x.aws_instance.y[0]", true),
            ("module.x", "module.x.aws_instance.y", false),
            ("ä*", "äöü", true),
        ] {
            assert_eq!(matches(pattern, text), wanted, "{pattern} {text}");
        }
    }

    /// The definition, word by word.
    fn defined(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|taken| defined(rest, &text[taken..])),
            Some((byte, rest)) => text
                .split_first()
                .is_some_and(|(first, text)| first == byte && defined(rest, text)),
        }
    }

    proptest! {
        #[test]
        fn it_is_what_it_is_defined_to_be(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(matches(&pattern, &text), defined(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn no_texts_make_it_panic(pattern in "\\PC{0,40}", text in "\\PC{0,80}") {
            let _ = matches(&pattern, &text);
        }
    }
}
