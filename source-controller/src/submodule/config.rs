//! Parser for Git's configuration files (`git-config`, "Syntax") with the behaviour of Git itself. Includes are not
//! followed: the parser treats them as ordinary variables.

/// One variable; variables are in file order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The full name: section, subsection and key, joined by dots. Section and key are in lower case. The subsection
    /// keeps its case, unless it was written with a dot instead of quotes.
    pub name: Vec<u8>,
    /// The value; `None` without a `=`, which means true.
    pub value: Option<Vec<u8>>,
}

impl Variable {
    /// Splits the name into section, subsection and key. `None` for a variable before the first section.
    #[must_use]
    pub fn parts(&self) -> Option<Parts<'_>> {
        let first = self.name.iter().position(|byte| *byte == b'.')?;
        let last = self.name.iter().rposition(|byte| *byte == b'.')?;
        let subsection = (first < last).then(|| &self.name[first + 1..last]);
        Some((&self.name[..first], subsection, &self.name[last + 1..]))
    }
}

/// Section, subsection and key of a variable.
pub type Parts<'a> = (&'a [u8], Option<&'a [u8]>, &'a [u8]);

/// A file that Git would refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad config line {line}")]
pub struct SyntaxError {
    /// Number of the line, starting at 1.
    pub line: usize,
}

/// Parses a file. The caller must limit its size; the result is at most as large as the input times the number of
/// variables.
///
/// # Errors
/// The file is malformed.
pub fn parse(content: &[u8]) -> Result<Vec<Variable>, SyntaxError> {
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    let mut reader = Reader {
        rest: content,
        line: 1,
        at_end: false,
    };
    let mut variables = Vec::new();
    let mut section = Vec::new();
    loop {
        // Line number for an error; the statement may continue on later lines.
        let line = reader.line;
        let found = reader.statement(&mut section);
        match found {
            Some(Statement::Variable(variable)) => variables.push(variable),
            Some(Statement::Nothing) => {}
            Some(Statement::End) => return Ok(variables),
            None => return Err(SyntaxError { line }),
        }
    }
}

enum Statement {
    Variable(Variable),
    Nothing,
    End,
}

/// The remaining bytes. The end of the file is read as an end of line.
struct Reader<'a> {
    rest: &'a [u8],
    line: usize,
    at_end: bool,
}

impl Reader<'_> {
    /// Returns the next byte, with `\r\n` as one. `None` for a NUL.
    fn next_byte(&mut self) -> Option<u8> {
        let Some((&byte, rest)) = self.rest.split_first() else {
            self.at_end = true;
            return Some(b'\n');
        };
        self.rest = rest;
        match byte {
            0 => None,
            b'\r' if rest.first() == Some(&b'\n') => self.next_byte(),
            b'\n' => {
                self.line += 1;
                Some(b'\n')
            }
            other => Some(other),
        }
    }

    /// Parses one statement at the start of a line, or after a section header; `None` if it is malformed.
    fn statement(&mut self, section: &mut Vec<u8>) -> Option<Statement> {
        match self.next_byte()? {
            b'\n' if self.at_end => return Some(Statement::End),
            b'#' | b';' => while self.next_byte()? != b'\n' {},
            b'[' => *section = self.header()?,
            byte if is_space(byte) => {}
            byte if byte.is_ascii_alphabetic() => {
                return self.variable(section, byte).map(Statement::Variable);
            }
            _ => return None,
        }
        Some(Statement::Nothing)
    }

    /// Parses `[section]`, `[section.subsection]` or `[section "subsection"]`; the result ends in a dot.
    fn header(&mut self) -> Option<Vec<u8>> {
        let mut name = Vec::new();
        loop {
            let byte = self.next_byte()?;
            match byte {
                b']' if name.is_empty() => return None,
                b']' => break,
                _ if self.at_end => return None,
                _ if is_space(byte) => {
                    self.subsection(byte, &mut name)?;
                    break;
                }
                b'.' => name.push(byte),
                _ if is_key(byte) => name.push(byte.to_ascii_lowercase()),
                _ => return None,
            }
        }
        name.push(b'.');
        Some(name)
    }

    fn subsection(&mut self, space: u8, name: &mut Vec<u8>) -> Option<()> {
        let mut byte = space;
        while is_space(byte) {
            if byte == b'\n' {
                return None;
            }
            byte = self.next_byte()?;
        }
        if byte != b'"' {
            return None;
        }
        name.push(b'.');
        loop {
            let byte = match self.next_byte()? {
                b'"' => break,
                b'\\' => self.next_byte()?,
                byte => byte,
            };
            if byte == b'\n' {
                return None;
            }
            name.push(byte);
        }
        (self.next_byte()? == b']').then_some(())
    }

    fn variable(&mut self, section: &[u8], first: u8) -> Option<Variable> {
        let mut name = section.to_vec();
        name.push(first.to_ascii_lowercase());
        let mut byte = self.next_byte()?;
        while is_key(byte) {
            name.push(byte.to_ascii_lowercase());
            byte = self.next_byte()?;
        }
        while byte == b' ' || byte == b'\t' {
            byte = self.next_byte()?;
        }
        let value = match byte {
            b'\n' => None,
            b'=' => Some(self.value()?),
            _ => return None,
        };
        Some(Variable { name, value })
    }

    /// Parses a value up to the end of the last continued line.
    fn value(&mut self) -> Option<Vec<u8>> {
        let (mut value, mut quoted) = (Vec::new(), false);
        // Spaces outside of quotes count only between other characters.
        let mut spaces = Vec::new();
        loop {
            let byte = self.next_byte()?;
            match byte {
                b'\n' => return (!quoted).then_some(value),
                _ if is_space(byte) && !quoted => {
                    if !value.is_empty() {
                        spaces.push(byte);
                    }
                }
                b'#' | b';' if !quoted => {
                    while self.next_byte()? != b'\n' {}
                    return Some(value);
                }
                b'\\' => {
                    value.append(&mut spaces);
                    value.push(match self.next_byte()? {
                        b'\n' => continue,
                        b't' => b'\t',
                        b'b' => 0x08,
                        b'n' => b'\n',
                        byte @ (b'\\' | b'"') => byte,
                        _ => return None,
                    });
                }
                b'"' => {
                    value.append(&mut spaces);
                    quoted = !quoted;
                }
                byte => {
                    value.append(&mut spaces);
                    value.push(byte);
                }
            }
        }
    }
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

const fn is_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// Returns what the real `git` reads, in the same format.
    fn of_git(content: &[u8]) -> Option<Vec<Variable>> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        std::fs::write(&file, content).unwrap();
        let output = Command::new("git")
            .args(["config", "--no-includes", "--list", "--null", "--file"])
            .arg(&file)
            .output()
            .unwrap();
        if !output.status.success() {
            return None;
        }
        let mut records: Vec<_> = output.stdout.split(|byte| *byte == 0).collect();
        records.pop();
        let variable = |record: &[u8]| match record.iter().position(|byte| *byte == b'\n') {
            None => Variable {
                name: record.to_vec(),
                value: None,
            },
            Some(at) => Variable {
                name: record[..at].to_vec(),
                value: Some(record[at + 1..].to_vec()),
            },
        };
        Some(records.into_iter().map(variable).collect())
    }

    const FILES: &[&str] = &[
        "",
        "\u{feff}[a]\nb=c",
        "[a]\n\tb = c\n",
        "[A \"B c\"] KEY = v",
        "[a.B]\nk=1\n[a \"B\"]\nk=2",
        "[a]\nflag\nother ; c\n",
        "[a]\nk = \"x # y\" ; z\n",
        "[a]\nk = one   two  \n",
        "[a]\nk = one\\\n   two\\\n",
        "[a]\r\nk = v\r\n\r\n",
        "[a]\nk = \\t\\b\\n\\\\\\\"\n",
        "[a]\nk = \\x\n",
        "[a]\nk = \"open\nx\n",
        "[a \"q\\\"u\\\\o\\te\"]\nk=v\n",
        "[a \"x\ny\"]\nk=v\n",
        "[a \"x\" ]\nk=v\n",
        "[a\n]\nk=v\n",
        "[a]k=v",
        "[a",
        "[a]\n1k=v\n",
        "[a]\nk_x=v\n",
        "[a]\nk v\n",
        "# only\n; comments",
        "[submodule \"é\"]\n\tpath = ünï\n",
        "[a]\nk = \"\" x\n",
        "[a]\nk =   \n",
        "[]\nk=v\n",
        "[a]\nk=v\\",
        "[include]\npath = other\n",
    ];

    #[test]
    fn files_are_parsed_like_git() {
        for content in FILES {
            let content = content.as_bytes();
            assert_eq!(parse(content).ok(), of_git(content), "{}", content.escape_ascii());
        }
    }

    #[test]
    fn a_bad_line_is_reported() {
        assert_eq!(parse(b"[a]\nb = c\n???\n"), Err(SyntaxError { line: 3 }));
        assert_eq!(parse(b"[a]\nb = \0"), Err(SyntaxError { line: 2 }));
    }

    #[test]
    fn a_config_name_has_section_subsection_and_key() {
        let name = |content: &[u8]| parse(content).unwrap().pop().unwrap();
        assert_eq!(
            name(b"[Sub \"a.B\"]\nKey").parts(),
            Some((&b"sub"[..], Some(&b"a.B"[..]), &b"key"[..]))
        );
        assert_eq!(name(b"[s]\nk=").parts(), Some((&b"s"[..], None, &b"k"[..])));
        assert_eq!(name(b"k=").parts(), None);
    }

    /// Quotes a text so that each of its bytes is preserved.
    fn quoted(text: &str) -> String {
        text.replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
        #[test]
        fn random_files_are_parsed_like_git(
            pieces in proptest::collection::vec(
                prop_oneof![
                    Just("\n"), Just("["), Just("]"), Just("\""), Just("\\"), Just("="), Just(" "), Just("#"),
                    Just(";"), Just("a"), Just("K"), Just("-"), Just("."), Just("1"), Just("\r\n"), Just("\\\n"),
                    Just("[a]"), Just("[a \"b\"]"), Just("\nk = "), Just("é"),
                ],
                0..24,
            )
        ) {
            let content = pieces.concat();
            prop_assert_eq!(parse(content.as_bytes()).ok(), of_git(content.as_bytes()), "{:?}", content);
        }
    }

    proptest! {
        #[test]
        fn quoted_values_are_parsed(subsection in "[^\0\n]{0,20}", value in "[^\0\r]{0,40}") {
            let subsection_text = subsection.replace('\\', "\\\\").replace('"', "\\\"");
            let content = format!("[submodule \"{subsection_text}\"]\n\turl = \"{}\"\n", quoted(&value));
            let variables = parse(content.as_bytes()).unwrap();
            prop_assert_eq!(variables.len(), 1);
            prop_assert_eq!(variables[0].value.as_deref(), Some(value.as_bytes()));
            let (section, found, key) = variables[0].parts().unwrap();
            prop_assert_eq!((section, found, key), (&b"submodule"[..], Some(subsection.as_bytes()), &b"url"[..]));
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
        }
    }
}
