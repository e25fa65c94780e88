//! Other programs read an archive of several segments as one file.

use std::path::Path;
use std::process::Command;

use super::fixture::{directory, file, scratch, text};
use super::unpacked;

/// Programs that write the tar to standard output, and whether each must be installed.
const DECOMPRESSORS: &[(&str, &str, bool)] = &[
    ("gzip", r#"gzip -dc "$1""#, true),
    ("pigz", r#"pigz -dc "$1""#, false),
    ("busybox", r#"busybox gzip -dc "$1""#, false),
    (
        "python3",
        r#"python3 -c 'import gzip, sys; sys.stdout.buffer.write(gzip.open(sys.argv[1]).read())' "$1""#,
        true,
    ),
    // In one call, which reads only the first of several members.
    (
        "python3",
        r#"python3 -c 'import sys, zlib; sys.stdout.buffer.write(zlib.decompress(open(sys.argv[1], "rb").read(), 31))' "$1""#,
        true,
    ),
    (
        "node",
        r#"node -e 'process.stdout.write(require("zlib").gunzipSync(require("fs").readFileSync(process.argv[1])))' "$1""#,
        false,
    ),
];

/// Programs that list the names.
const LISTERS: &[(&str, &str, bool)] = &[
    ("tar", r#"tar -tzf "$1""#, true),
    ("bsdtar", r#"bsdtar -tf "$1""#, false),
    ("busybox", r#"busybox tar -tzf "$1""#, false),
    (
        "python3",
        r#"python3 -c 'import sys, tarfile; print("\n".join(tarfile.open(sys.argv[1]).getnames()))' "$1""#,
        true,
    ),
];

/// Runs a script with the archive as its argument; `None` if its program is optional and not installed.
fn run(program: &str, script: &str, must_exist: bool, archive: &Path) -> Option<Vec<u8>> {
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(archive);
        command.output().unwrap()
    };
    if !must_exist && !shell(&format!("command -v {program}")).status.success() {
        return None;
    }
    let output = shell(script);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {errors}");
    Some(output.stdout)
}

#[test]
fn other_programs_read_every_segment() {
    let files = (0..12).map(|number| file(&format!("f{number:02}"), &text(number, 300_000)));
    let entries: Vec<_> = std::iter::once(directory(".")).chain(files).collect();
    let written = scratch(&entries, 2);
    assert!(written.totals.segments > 4);
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("artifact.tar.gz");
    std::fs::write(&archive, &written.out).unwrap();
    let tar = unpacked(&written.out);
    for (program, script, must_exist) in DECOMPRESSORS {
        if let Some(found) = run(program, script, *must_exist, &archive) {
            assert!(found == tar, "{script}: {} of {} bytes", found.len(), tar.len());
        }
    }
    for (program, script, must_exist) in LISTERS {
        if let Some(found) = run(program, script, *must_exist, &archive) {
            let found = String::from_utf8(found).unwrap();
            let names: Vec<_> = found.lines().filter(|name| name.starts_with('f')).collect();
            assert_eq!(names.len(), 12, "{script}: {names:?}");
        }
    }
}
