//! The syntax of Git's configuration files (`git-config`, "Syntax"), as Git itself reads it. Includes are not followed: to
//! this parser they are variables like others.

/// One variable, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The whole name: section, subsection and key, joined by dots. Section and key are in lower case; the subsection
    /// keeps its case, unless it was written with a dot instead of quotes.
    pub name: Vec<u8>,
    /// The value; none if there is no `=`, which stands for true.
    pub value: Option<Vec<u8>>,
}

impl Variable {
    /// Section, subsection and key. A variable before the first section has none.
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

/// A file that Git would not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad config line {line}")]
pub struct BadLine {
    /// The line, counted from 1.
    pub line: usize,
}

/// Reads a file. To bound its size is up to the caller; what comes out is no larger than what goes in, times the number
/// of its variables.
///
/// # Errors
/// The file is not of the form.
pub fn parse(content: &[u8]) -> Result<Vec<Variable>, BadLine> {
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    let mut reader = Reader {
        rest: content,
        line: 1,
        ended: false,
    };
    let mut variables = Vec::new();
    let mut section = Vec::new();
    loop {
        // Where an error would be, unless the line goes on below.
        let line = reader.line;
        let found = reader.statement(&mut section);
        match found {
            Some(Statement::Variable(variable)) => variables.push(variable),
            Some(Statement::Nothing) => {}
            Some(Statement::End) => return Ok(variables),
            None => return Err(BadLine { line }),
        }
    }
}

enum Statement {
    Variable(Variable),
    Nothing,
    End,
}

/// The bytes that are left. The end of the file reads as an end of line.
struct Reader<'a> {
    rest: &'a [u8],
    line: usize,
    ended: bool,
}

impl Reader<'_> {
    /// The next byte, `\r\n` as one. A NUL is no text.
    fn next(&mut self) -> Option<u8> {
        let Some((&byte, rest)) = self.rest.split_first() else {
            self.ended = true;
            return Some(b'\n');
        };
        self.rest = rest;
        match byte {
            0 => None,
            b'\r' if rest.first() == Some(&b'\n') => self.next(),
            b'\n' => {
                self.line += 1;
                Some(b'\n')
            }
            other => Some(other),
        }
    }

    /// One step at the beginning of a line, or behind a section header; nothing if it is malformed.
    fn statement(&mut self, section: &mut Vec<u8>) -> Option<Statement> {
        match self.next()? {
            b'\n' if self.ended => return Some(Statement::End),
            b'#' | b';' => while self.next()? != b'\n' {},
            b'[' => *section = self.header()?,
            byte if is_space(byte) => {}
            byte if byte.is_ascii_alphabetic() => {
                return self.variable(section, byte).map(Statement::Variable);
            }
            _ => return None,
        }
        Some(Statement::Nothing)
    }

    /// `[section]`, `[section.subsection]` or `[section "subsection"]`, with a dot at the end.
    fn header(&mut self) -> Option<Vec<u8>> {
        let mut name = Vec::new();
        loop {
            let byte = self.next()?;
            match byte {
                b']' if name.is_empty() => return None,
                b']' => break,
                _ if self.ended => return None,
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
            byte = self.next()?;
        }
        if byte != b'"' {
            return None;
        }
        name.push(b'.');
        loop {
            let byte = match self.next()? {
                b'"' => break,
                b'\\' => self.next()?,
                byte => byte,
            };
            if byte == b'\n' {
                return None;
            }
            name.push(byte);
        }
        (self.next()? == b']').then_some(())
    }

    fn variable(&mut self, section: &[u8], first: u8) -> Option<Variable> {
        let mut name = section.to_vec();
        name.push(first.to_ascii_lowercase());
        let mut byte = self.next()?;
        while is_key(byte) {
            name.push(byte.to_ascii_lowercase());
            byte = self.next()?;
        }
        while byte == b' ' || byte == b'\t' {
            byte = self.next()?;
        }
        let value = match byte {
            b'\n' => None,
            b'=' => Some(self.value()?),
            _ => return None,
        };
        Some(Variable { name, value })
    }

    /// Up to the end of the line, or of the last line that is continued.
    fn value(&mut self) -> Option<Vec<u8>> {
        let (mut value, mut quoted) = (Vec::new(), false);
        // Spaces outside of quotes count only between other things.
        let mut spaces = Vec::new();
        loop {
            let byte = self.next()?;
            match byte {
                b'\n' => return (!quoted).then_some(value),
                _ if is_space(byte) && !quoted => {
                    if !value.is_empty() {
                        spaces.push(byte);
                    }
                }
                b'#' | b';' if !quoted => {
                    while self.next()? != b'\n' {}
                    return Some(value);
                }
                b'\\' => {
                    value.append(&mut spaces);
                    value.push(match self.next()? {
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

    /// What the real `git` reads, in the same form.
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
    fn files_are_read_as_git_reads_them() {
        for content in FILES {
            let content = content.as_bytes();
            assert_eq!(parse(content).ok(), of_git(content), "{}", content.escape_ascii());
        }
    }

    #[test]
    fn a_bad_line_is_named() {
        assert_eq!(parse(b"[a]\nb = c\n???\n"), Err(BadLine { line: 3 }));
        assert_eq!(parse(b"[a]\nb = \0"), Err(BadLine { line: 2 }));
    }

    #[test]
    fn names_have_parts() {
        let name = |content: &[u8]| parse(content).unwrap().pop().unwrap();
        assert_eq!(
            name(b"[Sub \"a.B\"]\nKey").parts(),
            Some((&b"sub"[..], Some(&b"a.B"[..]), &b"key"[..]))
        );
        assert_eq!(name(b"[s]\nk=").parts(), Some((&b"s"[..], None, &b"k"[..])));
        assert_eq!(name(b"k=").parts(), None);
    }

    /// Text that is quoted so that every byte of it counts.
    fn quoted(text: &str) -> String {
        text.replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
        #[test]
        fn random_files_are_read_as_git_reads_them(
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
        fn what_is_quoted_is_read(subsection in "[^\0\n]{0,20}", value in "[^\0\r]{0,40}") {
            let subsection_text = subsection.replace('\\', "\\\\").replace('"', "\\\"");
            let content = format!("[submodule \"{subsection_text}\"]\n\turl = \"{}\"\n", quoted(&value));
            let variables = parse(content.as_bytes()).unwrap();
            prop_assert_eq!(variables.len(), 1);
            prop_assert_eq!(variables[0].value.as_deref(), Some(value.as_bytes()));
            let (section, found, key) = variables[0].parts().unwrap();
            prop_assert_eq!((section, found, key), (&b"submodule"[..], Some(subsection.as_bytes()), &b"url"[..]));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
        }
    }
}
