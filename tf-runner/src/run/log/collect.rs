//! Collects the log of a run from the output files of its commands, with bounded memory and effort.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Seek as _, SeekFrom};
use std::path::Path;

use sluice_tf_core::redaction::Redactor;
use sluice_tf_core::run_log::{Archive, LogLines, Tail};

use crate::run::log::{LoggedCommand, title_line};

/// How much of a large file is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileEnds {
    /// Maximum number of bytes that are read at the beginning, and at the end.
    part: u64,
}

/// What is printed of a file, or read of one for the end of the log alone.
pub(super) const PRINTED_ENDS: FileEnds = FileEnds {
    part: 8 * 1024 * 1024,
};
/// What is stored of a file: as much as the beginning and the end of the stored log can hold.
const STORED_ENDS: FileEnds = FileEnds {
    part: 64 * 1024 * 1024,
};
/// Bytes after a part that is left out that are not shown: a sensitive value that began before them ends in them.
const MARGIN: u64 = 8 * 1024;
/// Bytes that are read at once.
const BLOCK: usize = 64 * 1024;

/// Takes lines of a log.
type Sink<'s> = dyn FnMut(&[u8]) -> io::Result<()> + 's;

/// The log of a run.
pub(super) struct CollectedLog {
    /// Its end, without the last line end.
    pub(super) tail: String,
    /// All of it in the format gzip, if requested and if it is longer than its end. Otherwise empty.
    pub(super) parts: Vec<Vec<u8>>,
}

/// Collects the log of these commands, in their order.
pub(super) fn collect(
    commands: &[LoggedCommand],
    secrets: &Redactor,
    limit: usize,
    compresses: bool,
) -> io::Result<CollectedLog> {
    let mut tail = Tail::new(limit);
    let mut archive = compresses.then(Archive::default);
    let ends = if compresses { STORED_ENDS } else { PRINTED_ENDS };
    for command in commands {
        copy_command(command, ends, secrets, &mut |lines| {
            tail.push(lines);
            archive.as_mut().map_or(Ok(()), |archive| archive.push(lines))
        })?;
    }
    let is_longer = tail.left_out() > 0;
    let archive = archive.filter(|_| is_longer);
    Ok(CollectedLog {
        tail: tail.into_text().trim_end_matches('\n').to_owned(),
        parts: archive.map(Archive::finish).transpose()?.unwrap_or_default(),
    })
}

/// Returns the last lines of the output of a command, from the ends of its files.
pub(super) fn last_output(command: &LoggedCommand, secrets: &Redactor, limit: usize) -> io::Result<String> {
    let mut tail = Tail::new(limit);
    tail.push(&title_line(command, secrets));
    for file in command.stdout.iter().chain([&command.stderr]) {
        let mut file = File::open(file)?;
        let start = file.metadata()?.len().saturating_sub(2 * limit as u64);
        file.seek(SeekFrom::Start(start))?;
        let mut rest = BufReader::with_capacity(BLOCK, file);
        if start > 0 {
            rest.skip_until(b'\n')?;
        }
        let mut lines = LogLines::default();
        copy_lines(rest, &mut lines, secrets, &mut |lines| {
            tail.push(lines);
            Ok(())
        })?;
        tail.push(&lines.finish(secrets));
    }
    Ok(tail.into_text().trim_end_matches('\n').to_owned())
}

/// Whether a file has no content or does not exist.
pub(super) fn is_empty(file: &Path) -> bool {
    std::fs::metadata(file).map_or(true, |metadata| metadata.len() == 0)
}

/// Copies the title of a command and its output. A command whose standard output is not part of the log is omitted, unless it has
/// error output.
fn copy_command(
    command: &LoggedCommand,
    ends: FileEnds,
    secrets: &Redactor,
    sink: &mut Sink<'_>,
) -> io::Result<()> {
    if command.stdout.is_none() && is_empty(&command.stderr) {
        return Ok(());
    }
    sink(&title_line(command, secrets))?;
    for file in command.stdout.iter().chain([&command.stderr]) {
        copy_file(file, ends, secrets, sink)?;
    }
    Ok(())
}

/// Copies the redacted lines of a file, or the beginning and the end of a large one. A file that does not exist is empty.
pub(super) fn copy_file(
    file: &Path,
    ends: FileEnds,
    secrets: &Redactor,
    sink: &mut Sink<'_>,
) -> io::Result<()> {
    let mut file = match File::open(file) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    let mut lines = LogLines::default();
    let skipped = length.saturating_sub(2 * ends.part);
    if skipped > MARGIN {
        copy_lines((&mut file).take(ends.part), &mut lines, secrets, sink)?;
        sink(&lines.cut())?;
        sink(format!("(about {skipped} bytes of this output are left out here)\n").as_bytes())?;
        file.seek(SeekFrom::Start(length - ends.part + MARGIN))?;
        let mut rest = BufReader::with_capacity(BLOCK, file);
        rest.skip_until(b'\n')?;
        copy_lines(rest, &mut lines, secrets, sink)?;
    } else {
        copy_lines(file, &mut lines, secrets, sink)?;
    }
    sink(&lines.finish(secrets))
}

fn copy_lines(
    mut from: impl Read,
    lines: &mut LogLines,
    secrets: &Redactor,
    sink: &mut Sink<'_>,
) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    loop {
        match from.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(length) => sink(&lines.push(secrets, &block[..length]))?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use sluice_tf_core::chunk::decompress;

    use super::*;

    struct Files {
        dir: tempfile::TempDir,
    }

    impl Files {
        fn new() -> Self {
            Self {
                dir: tempfile::tempdir().unwrap(),
            }
        }

        fn file(&self, name: &str, text: &str) -> PathBuf {
            let path = self.dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        }

        fn command(&self, name: &str, output: Option<&str>, errors: &str) -> LoggedCommand {
            LoggedCommand {
                title: format!("$ tofu {name}"),
                stdout: output.map(|text| self.file(&format!("{name}.out"), text)),
                stderr: self.file(&format!("{name}.err"), errors),
            }
        }
    }

    fn redactor() -> Redactor {
        let mut secrets = Redactor::default();
        secrets.add_text("hunter2");
        secrets
    }

    #[test]
    fn commands_are_collected_in_their_order_with_titles() {
        let files = Files::new();
        let missing = LoggedCommand {
            title: "$ tofu apply".to_owned(),
            stdout: Some(files.dir.path().join("none")),
            stderr: files.dir.path().join("none"),
        };
        let commands = [
            files.command("init", Some("Initializing\n"), ""),
            files.command("version", None, ""),
            files.command("plan", Some("it will be created, hunter2"), "Error: no hunter2\n"),
            files.command("show", None, "Error: no state\n"),
            missing,
        ];
        let log = collect(&commands, &redactor(), 1000, true).unwrap();
        assert_eq!(
            log.tail,
            "$ tofu init\nInitializing\n$ tofu plan\nit will be created, (sensitive)\nError: no (sensitive)\n$ tofu show\n\
             Error: no state\n$ tofu apply"
        );
        assert!(log.parts.is_empty(), "the end is all of it");
        let log = collect(&commands, &redactor(), 41, true).unwrap();
        assert_eq!(log.tail, "$ tofu show\nError: no state\n$ tofu apply");
        assert_eq!(log.parts.len(), 1);
        let log = collect(&commands, &redactor(), 41, false).unwrap();
        assert!(log.parts.is_empty());
        assert_eq!(collect(&[], &redactor(), 41, true).unwrap().tail, "");
    }

    #[test]
    fn the_last_output_of_a_command_begins_with_a_whole_line() {
        let files = Files::new();
        let short = files.command("init", Some("Initializing\n"), "hunter2\n");
        assert_eq!(
            last_output(&short, &redactor(), 100).unwrap(),
            "$ tofu init\nInitializing\n(sensitive)"
        );
        let text = "0123456789\n".repeat(1000);
        let long = files.command("plan", Some(&text), "");
        assert_eq!(
            last_output(&long, &redactor(), 40).unwrap(),
            "0123456789\n0123456789\n0123456789"
        );
    }

    #[test]
    fn of_a_large_file_beginning_and_end_are_copied() {
        let ends = FileEnds { part: 64 * 1024 };
        let files = Files::new();
        let line = format!("{}\n", "x".repeat(999));
        let count = usize::try_from(2 * ends.part).unwrap() / line.len() + 100;
        // The beginning ends within the value.
        let first = usize::try_from(ends.part).unwrap() - 4;
        let mut text = format!("first\n{}", line.repeat(count));
        text.replace_range(first..first + 7, "hunter2");
        text.push_str("last\n");
        let path = files.file("apply.out", &text);
        let mut shown = Vec::new();
        copy_file(&path, ends, &redactor(), &mut |lines| {
            shown.extend_from_slice(lines);
            Ok(())
        })
        .unwrap();
        let shown = String::from_utf8(shown).unwrap();
        assert!(shown.starts_with(&format!("first\n{line}")) && shown.ends_with(&format!("{line}last\n")));
        assert!(!shown.contains("hunt"));
        assert!(shown.len() < text.len() && shown.contains(" bytes of this output are left out here)\n"));
        let others = ["first", "last"];
        let is_whole =
            |text: &str| text.len() == 999 || others.contains(&text) || text.starts_with("(about ");
        assert!(shown.lines().all(is_whole));
    }

    #[test]
    fn a_file_that_is_printed_in_part_is_stored_as_a_whole() {
        let files = Files::new();
        let line = format!("{}\n", "x".repeat(9999));
        let count = usize::try_from(2 * PRINTED_ENDS.part).unwrap() / line.len() + 10;
        let command = files.command("apply", Some(&line.repeat(count)), "");
        let log = collect(&[command], &redactor(), 41, true).unwrap();
        assert_eq!(log.parts.len(), 3, "each has at most 8 MiB of text");
        let parts = log.parts.iter().map(|part| decompress(part, 16 << 20).unwrap());
        let text = String::from_utf8(parts.collect::<Vec<_>>().concat()).unwrap();
        assert_eq!(text.lines().count(), 1 + count);
        assert!(text.ends_with(&line));
    }
}
