//! Parses state locks in error texts of the CLI.

use jiff::Timestamp;

/// Length limit of a field.
const FIELD_LIMIT: usize = 512;

/// The `Lock Info:` block of a lock error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockInfo {
    /// The id for `force-unlock`.
    pub id: String,
    /// The path of the state in the format of the backend.
    pub path: String,
    /// For example `OperationTypeApply`.
    pub operation: String,
    /// `user@host` of the holder.
    pub who: String,
    /// Version of the CLI of the holder.
    pub version: String,
    /// The time of the lock in the format of Go.
    pub created: String,
}

/// Errors before the block: of commands that take the lock, and of `init` or `workspace new` when they create a state.
const ERRORS: [&str; 3] = [
    "Error acquiring the state lock",
    "state is already locked",
    "Error locking state",
];

/// Words of errors about a lock that was not acquired or not released. `init` prints requests of the `kubernetes` backend without
/// explanation: `Post ".../leases": EOF`.
const LOCK_WORDS: [&str; 7] = [
    "lock",
    "locked",
    "locking",
    "unlock",
    "unlocking",
    "lease",
    "leases",
];

/// Whether an error mentions a lock. Otherwise the command held no lock, or released it.
#[must_use]
pub fn mentions_lock(text: &str) -> bool {
    super::text::strip_formatting(text)
        .split(|c: char| !c.is_alphanumeric())
        .any(|word| LOCK_WORDS.iter().any(|known| word.eq_ignore_ascii_case(known)))
}

/// Parses a time in the format of Go: `2026-11-21 11:37:28.445320369 +0000 UTC`.
#[must_use]
pub fn parse_created(text: &str) -> Option<Timestamp> {
    let text = text.strip_suffix(" UTC").unwrap_or(text);
    Timestamp::strptime("%Y-%m-%d %H:%M:%S%.f %z", text).ok()
}

/// Parses the block of a lock error. Returns `None` for other texts.
#[must_use]
pub fn parse(text: &str) -> Option<LockInfo> {
    let text = super::text::strip_formatting(text);
    let at = ERRORS.iter().filter_map(|error| text.find(error)).min()?;
    let block = text[at..].split_once("Lock Info:")?.1;
    let mut info = LockInfo::default();
    for line in block.lines().skip(1) {
        let line = line.trim_start();
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        let value: String = value.trim().chars().take(FIELD_LIMIT).collect();
        match name {
            "ID" => info.id = value,
            "Path" => info.path = value,
            "Operation" => info.operation = value,
            "Who" => info.who = value,
            "Version" => info.version = value,
            "Created" => info.created = value,
            _ => break,
        }
    }
    (!info.id.is_empty()).then_some(info)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOCK_ERROR: &str = "\nError: Error acquiring the state lock\n\nError message: resource temporarily unavailable\n\
        Lock Info:\n  ID:        fd27f73e-a46b-ad86-1473-aab31b4da9b9\n  Path:      terraform.tfstate\n  \
        Operation: OperationTypeApply\n  Who:       root@vm\n  Version:   1.11.4\n  \
        Created:   2026-11-21 11:37:28.445320369 +0000 UTC\n  Info:      \n\n\nTerraform acquires a state lock\n";

    #[test]
    fn six_fields_are_read() {
        let info = parse(LOCK_ERROR).unwrap();
        assert_eq!(info.id, "fd27f73e-a46b-ad86-1473-aab31b4da9b9");
        assert_eq!(info.path, "terraform.tfstate");
        assert_eq!(info.operation, "OperationTypeApply");
        assert_eq!(info.who, "root@vm");
        assert_eq!(info.version, "1.11.4");
        assert_eq!(info.created, "2026-11-21 11:37:28.445320369 +0000 UTC");
    }

    #[test]
    fn a_lock_error_of_init_is_parsed() {
        let text = "Error: Error loading state: the state is already locked by another terraform client\nLock Info:\n  \
                    ID:        fd27f73e\n  Path:      \n  Who:       root@vm\n  Info:      \n";
        let info = parse(text).unwrap();
        assert_eq!((info.id.as_str(), info.who.as_str()), ("fd27f73e", "root@vm"));
    }

    #[test]
    fn boxed_output_is_parsed_like_plain_output() {
        let boxed = LOCK_ERROR
            .lines()
            .map(|line| format!("\u{2502} {line}"))
            .collect::<Vec<_>>()
            .join("\n");
        assert_eq!(parse(&boxed), parse(LOCK_ERROR));
    }

    #[test]
    fn only_an_error_about_a_lock_mentions_one() {
        for text in [
            LOCK_ERROR,
            "Error releasing the state lock",
            "Error: Failed to unlock state",
            "\u{2502} Error locking state: EOF",
            "Error: Post \"https://127.0.0.1:1/apis/coordination.k8s.io/v1/namespaces/team/leases\": EOF",
        ] {
            assert!(mentions_lock(text), "{text}");
        }
        for text in [
            "",
            "Workspace \"blue\" already exists",
            "Error: Unclosed configuration block",
        ] {
            assert!(!mentions_lock(text), "{text}");
        }
    }

    #[test]
    fn other_errors_hold_no_lock() {
        assert_eq!(parse("Error: Unclosed configuration block"), None);
        assert_eq!(parse("Error acquiring the state lock\nLock Info:\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in ".{0,400}") {
            let _ = parse(&text);
            let _ = (mentions_lock(&text), parse_created(&text));
            let wrapped = format!("Error acquiring the state lock\nLock Info:\n{text}");
            if let Some(info) = parse(&wrapped) {
                prop_assert!(info.id.chars().count() <= FIELD_LIMIT);
            }
        }
    }
}
