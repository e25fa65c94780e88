//! The page of metrics while it is written.

use std::fmt;

/// Size of a part.
const PART_BYTES: usize = 64 << 10;

/// A text in parts. With thousands of objects it has megabytes. As one string it would be copied again and again while it grows, and the
/// allocator would keep the copies. A part is freed as soon as it is sent.
#[derive(Debug)]
pub(super) struct Parts {
    complete: Vec<String>,
    last: String,
}

impl Parts {
    /// Begins an empty text.
    pub(super) fn new() -> Self {
        Self {
            complete: Vec::new(),
            last: String::with_capacity(PART_BYTES),
        }
    }

    /// Returns the parts.
    pub(super) fn into_vec(mut self) -> Vec<String> {
        self.complete.push(self.last);
        self.complete
    }
}

impl fmt::Write for Parts {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.last.len() + text.len() > PART_BYTES && !self.last.is_empty() {
            let next = String::with_capacity(PART_BYTES);
            self.complete.push(std::mem::replace(&mut self.last, next));
        }
        self.last.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn a_long_text_has_parts_of_limited_size() {
        let mut parts = Parts::new();
        let mut expected = String::new();
        for number in 0..20_000 {
            writeln!(parts, "series {number}").unwrap();
            writeln!(expected, "series {number}").unwrap();
        }
        let parts = parts.into_vec();
        assert!(parts.len() > 3);
        for part in &parts {
            assert!(!part.is_empty() && part.len() <= PART_BYTES && part.capacity() <= PART_BYTES);
        }
        assert_eq!(parts.concat(), expected);
    }

    #[test]
    fn an_empty_text_has_one_part() {
        assert_eq!(Parts::new().into_vec(), [""]);
    }
}
