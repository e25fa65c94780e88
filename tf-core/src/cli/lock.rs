//! Reads the state lock that the CLI found held from its error text (pure, bounded).

use jiff::Timestamp;

/// Longest field that is kept; real ones are far shorter.
const FIELD_LIMIT: usize = 512;

/// The `Lock Info:` block of a lock error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockInfo {
    /// Identifier that `force-unlock` takes.
    pub id: String,
    /// Where the state is, as the backend words it.
    pub path: String,
    /// For example `OperationTypeApply`.
    pub operation: String,
    /// `user@host` of the holder.
    pub who: String,
    /// Version of the CLI that holds it.
    pub version: String,
    /// When it was taken, as Go prints a time.
    pub created: String,
}

/// What comes before the block: of a command that takes the lock, and of `init` (or a workspace) that makes a state.
const BEGINNINGS: [&str; 3] = [
    "Error acquiring the state lock",
    "state is already locked",
    "Error locking state",
];

/// Words of which an error about a lock has one: that it was not taken, or could not be released. `init` shows the bare request
/// of the kubernetes backend, and the address of a new Lease has no other word of it: `Post ".../leases": EOF`.
const WORDS: [&str; 7] = [
    "lock",
    "locked",
    "locking",
    "unlock",
    "unlocking",
    "lease",
    "leases",
];

/// Whether this error speaks of a lock at all. One that does not was met by a command that had none, or had released its own.
#[must_use]
pub fn is_mentioned(text: &str) -> bool {
    super::text::plain(text)
        .split(|c: char| !c.is_alphanumeric())
        .any(|word| WORDS.iter().any(|known| word.eq_ignore_ascii_case(known)))
}

/// A time as Go prints it: `2026-11-21 11:37:28.445320369 +0000 UTC`.
#[must_use]
pub fn parse_created(text: &str) -> Option<Timestamp> {
    let text = text.strip_suffix(" UTC").unwrap_or(text);
    Timestamp::strptime("%Y-%m-%d %H:%M:%S%.f %z", text).ok()
}

/// Finds the block of a lock error; `None` when the text is about something else.
#[must_use]
pub fn parse(text: &str) -> Option<LockInfo> {
    let text = super::text::plain(text);
    let at = BEGINNINGS.iter().filter_map(|words| text.find(words)).min()?;
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
    use super::*;
    use proptest::prelude::*;

    const HELD: &str = "\nError: Error acquiring the state lock\n\nError message: resource temporarily unavailable\n\
        Lock Info:\n  ID:        fd27f73e-a46b-ad86-1473-aab31b4da9b9\n  Path:      terraform.tfstate\n  \
        Operation: OperationTypeApply\n  Who:       root@vm\n  Version:   1.11.4\n  \
        Created:   2026-11-21 11:37:28.445320369 +0000 UTC\n  Info:      \n\n\nTerraform acquires a state lock\n";

    #[test]
    fn six_fields_are_read() {
        let info = parse(HELD).unwrap();
        assert_eq!(info.id, "fd27f73e-a46b-ad86-1473-aab31b4da9b9");
        assert_eq!(info.path, "terraform.tfstate");
        assert_eq!(info.operation, "OperationTypeApply");
        assert_eq!(info.who, "root@vm");
        assert_eq!(info.version, "1.11.4");
        assert_eq!(info.created, "2026-11-21 11:37:28.445320369 +0000 UTC");
    }

    #[test]
    fn a_lock_that_init_meets_is_read_too() {
        let text = "Error: Error loading state: the state is already locked by another terraform client\nLock Info:\n  \
                    ID:        fd27f73e\n  Path:      \n  Who:       root@vm\n  Info:      \n";
        let info = parse(text).unwrap();
        assert_eq!((info.id.as_str(), info.who.as_str()), ("fd27f73e", "root@vm"));
    }

    #[test]
    fn boxed_text_reads_the_same() {
        let boxed = HELD
            .lines()
            .map(|line| format!("\u{2502} {line}"))
            .collect::<Vec<_>>()
            .join("\n");
        assert_eq!(parse(&boxed), parse(HELD));
    }

    #[test]
    fn only_an_error_about_a_lock_mentions_one() {
        for text in [
            HELD,
            "Error releasing the state lock",
            "Error: Failed to unlock state",
            "\u{2502} Error locking state: EOF",
            "Error: Post \"https://127.0.0.1:1/apis/coordination.k8s.io/v1/namespaces/team/leases\": EOF",
        ] {
            assert!(is_mentioned(text), "{text}");
        }
        for text in [
            "",
            "Workspace \"blue\" already exists",
            "Error: Unclosed configuration block",
        ] {
            assert!(!is_mentioned(text), "{text}");
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
            let _ = (is_mentioned(&text), parse_created(&text));
            let wrapped = format!("Error acquiring the state lock\nLock Info:\n{text}");
            if let Some(info) = parse(&wrapped) {
                prop_assert!(info.id.chars().count() <= FIELD_LIMIT);
            }
        }
    }
}
