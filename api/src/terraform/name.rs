//! Names of the objects of a stack, and label values that refer to it.

use sha2::{Digest as _, Sha256};

/// Number of characters of the stack's uid in the names of its runs.
const UID_LENGTH: usize = 10;
/// Maximum length of a label value.
const MAX_LABEL: usize = 63;

/// Formats the name of a run: at most 40 characters of the stack's name, ten of its uid, and the run's number.
///
/// The name is deterministic, so creating the same run twice yields one object.
#[must_use]
pub fn run_name(stack: &str, uid: &str, sequence: u64) -> String {
    // The truncated name may end in a dot or dash, which must not precede the next dash.
    let stack = first(stack, 40).trim_end_matches(['-', '.']);
    let uid: String = uid
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(UID_LENGTH)
        .collect();
    format!("{stack}-{uid}-{sequence}")
}

/// Parses the number in a run's name.
#[must_use]
pub fn run_sequence(name: &str) -> Option<u64> {
    name.rsplit_once('-')?.1.parse().ok()
}

/// Returns a label value for a name of any length: the name itself up to 63 characters, otherwise its first 46 characters, a
/// dash, and the first 8 bytes of its SHA-256 in hex. tofu-controller labels its stored plans by the same rule.
#[must_use]
pub fn label_value(name: &str) -> String {
    if name.len() <= MAX_LABEL {
        return name.to_owned();
    }
    format!("{}-{}", first(name, 46), digest(name))
}

/// Returns at most 45 characters of a name, `-x`, and the first 8 bytes of its SHA-256 in hex: a label value, and a valid end of an
/// object's name, that no other name has by accident. It never ends in a dash and a number, which Terraform's kubernetes backend
/// refuses.
#[must_use]
pub fn name_with_digest(name: &str) -> String {
    let readable = first(name, 45).trim_end_matches(['-', '.']);
    format!("{readable}-x{}", digest(name))
}

fn digest(name: &str) -> String {
    hex::encode(&Sha256::digest(name.as_bytes())[..8])
}

/// Returns whether a text is a valid label value.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    let end = |letter: Option<char>| letter.is_none_or(|letter| letter.is_ascii_alphanumeric());
    let inside = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    text.len() <= MAX_LABEL
        && text.chars().all(inside)
        && end(text.chars().next())
        && end(text.chars().next_back())
}

/// Returns a workspace as part of an object's name: itself if valid, otherwise a readable part and a hash.
#[must_use]
pub fn workspace_part(workspace: &str) -> String {
    let fits = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '-' | '.');
    if workspace.len() <= MAX_LABEL && workspace.chars().all(fits) && has_valid_ends(workspace) {
        return workspace.to_owned();
    }
    let readable: String = workspace
        .to_lowercase()
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        })
        .take(46)
        .collect();
    let hash = digest(workspace);
    format!("{}-{hash}", readable.trim_matches('-'))
        .trim_start_matches('-')
        .to_owned()
}

/// Returns a workspace as a label value: itself if valid.
#[must_use]
pub fn workspace_label(workspace: &str) -> String {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    if workspace.chars().all(fits) && has_valid_ends(workspace) {
        return label_value(workspace);
    }
    workspace_part(workspace)
}

/// Returns whether the text begins and ends with a letter or digit and has no `..`, `.-` or `-.`.
fn has_valid_ends(text: &str) -> bool {
    let end = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    end(text.chars().next())
        && end(text.chars().next_back())
        && !["..", ".-", "-."].iter().any(|pair| text.contains(pair))
}

/// Returns the first bytes, at most `most`, on a character boundary.
fn first(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_run_is_named_after_its_stack() {
        let uid = "6f1c2d3e-0000";
        for (stack, name) in [
            ("app", "app-6f1c2d3e00-7".to_owned()),
            (&"a".repeat(40), format!("{}-6f1c2d3e00-7", "a".repeat(40))),
            (&"a".repeat(80), format!("{}-6f1c2d3e00-7", "a".repeat(40))),
            (
                &format!("{}.b", "a".repeat(39)),
                format!("{}-6f1c2d3e00-7", "a".repeat(39)),
            ),
        ] {
            assert_eq!(run_name(stack, uid, 7), name);
            assert_eq!(run_sequence(&name), Some(7));
        }
        let long = "a".repeat(40);
        let names = ["6f1c2d3e-00", "6f1c2d3e-01"].map(|uid| run_name(&format!("{long}-{uid}"), uid, 7));
        assert_ne!(names[0], names[1], "what the names have in common is cut");
        assert_eq!(run_sequence("app"), None);
        assert_eq!(run_sequence("app-x"), None);
    }

    #[test]
    fn long_label_values_are_shortened_with_their_hash() {
        assert_eq!(label_value(&"a".repeat(63)), "a".repeat(63));
        // The digest of 64 times "a" (`sha256sum`).
        assert_eq!(
            label_value(&"a".repeat(64)),
            format!("{}-ffe054fe7ae0cb6d", "a".repeat(46))
        );
    }

    #[test]
    fn a_name_with_its_digest_is_a_valid_end_of_a_name() {
        // The digests of `sha256sum`.
        assert_eq!(name_with_digest("app"), "app-xa172cedcae47474b");
        assert_eq!(name_with_digest("eu-app"), "eu-app-x17423bb346f766ac");
        // All digits of this digest are decimal.
        assert_eq!(name_with_digest("vpc-cdn"), "vpc-cdn-x5871132691261790");
        let long = format!("{}.b", "a".repeat(44));
        assert!(name_with_digest(&long).starts_with(&format!("{}-x", "a".repeat(44))));
        assert!(is_label_value(&name_with_digest(&"a".repeat(253))));
    }

    #[test]
    fn label_values_are_validated() {
        for (text, is_one) in [
            ("", true),
            ("default", true),
            ("Blue_1.a", true),
            ("a..b", true),
            ("feature/x", false),
            ("a~b", false),
            ("-a", false),
            ("a.", false),
            ("é", false),
            (&"a".repeat(63), true),
            (&"a".repeat(64), false),
        ] {
            assert_eq!(is_label_value(text), is_one, "{text:?}");
        }
    }

    #[test]
    fn a_valid_workspace_keeps_its_name() {
        assert_eq!(
            (
                workspace_part("blue").as_str(),
                workspace_label("Blue_1").as_str()
            ),
            ("blue", "Blue_1")
        );
        assert_eq!(workspace_part("Blue_1"), "blue-1-20c6c1d917f02f8c");
        assert_ne!(workspace_part("a~b"), workspace_part("a-b"));
    }

    proptest! {
        /// Any workspace gives a part of a name and a label's value that the API takes.
        #[test]
        fn workspaces_fit(workspace in "\\PC{1,80}|[a-zA-Z0-9._~+-]{1,80}") {
            let part = workspace_part(&workspace);
            let label = workspace_label(&workspace);
            prop_assert!(part.len() <= MAX_LABEL && label.len() <= MAX_LABEL);
            let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
            prop_assert!(part.chars().all(inside) && has_valid_ends(&part), "{}", part);
            prop_assert!(is_label_value(&label), "{}", label);
        }

        #[test]
        fn labels_fit(name in "\\PC{0,120}") {
            prop_assert!(label_value(&name).len() <= MAX_LABEL);
        }

        #[test]
        fn run_names_fit_a_label(
            stack in "[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?){0,4}",
            sequence in 0u64..1_000_000_000,
        ) {
            let name = run_name(&stack, "0af122b8-77c1-4", sequence);
            prop_assert!(name.len() <= MAX_LABEL);
            prop_assert!(!name.contains(".-"));
            prop_assert_eq!(run_sequence(&name), Some(sequence));
        }
    }
}
