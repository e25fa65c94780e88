//! Glob patterns of the guard rails: `*` matches any number of characters, every other character matches itself.

/// Returns whether the pattern matches the whole text, in at most `pattern * text` steps.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut seen) = (0, 0);
    // Position of the last star, and the end of the text that it matches so far.
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
            (_, Some((position, end))) => {
                star = Some((position, end + 1));
                at = position + 1;
                seen = end + 1;
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
        fn the_digest_is_as_defined(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(matches(&pattern, &text), defined(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn no_texts_make_it_panic(pattern in "\\PC{0,40}", text in "\\PC{0,80}") {
            let _ = matches(&pattern, &text);
        }
    }
}
