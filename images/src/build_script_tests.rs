//! `images/build.sh` with programs that record what it calls instead of `cargo` and `rustc`.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Writes the flags of all compilations, the linker arguments of the program, and the arguments, one a line.
const CARGO: &str = "#!/bin/sh\nprintf '%s\\n' \"${CARGO_ENCODED_RUSTFLAGS-}\" \"${SLUICE_LINK_ARGS-}\" \"$@\" > \"$RECORD\"\n";
/// Answers `-vV` and `--print sysroot`.
const RUSTC: &str = "#!/bin/sh\n[ \"$1\" = -vV ] && echo \"host: $HOST\" || echo /sysroot\n";

/// Writes a program. Another process does: a program cannot start while a child of another test has it open for writing.
fn write_program(file: &Path, script: &str) {
    let written = Command::new("sh")
        .args(["-c", r#"printf '%s' "$1" > "$0" && chmod 755 "$0""#])
        .arg(file)
        .arg(script)
        .status()
        .unwrap();
    assert!(written.success(), "{}", file.display());
}

/// Returns the flags of all compilations on a machine of this kind, and the linker arguments of the program.
fn flags_on(host: &str) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let [cargo, record] = ["cargo", "record"].map(|name| folder.path().join(name));
    write_program(&cargo, CARGO);
    write_program(&folder.path().join("rustc"), RUSTC);
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("sh")
        .arg("images/build.sh")
        .arg(folder.path().join("target"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .env("PATH", format!("{}:{path}", folder.path().display()))
        .env("CARGO", &cargo)
        .env("CARGO_HOME", folder.path())
        .env("RECORD", &record)
        .env("HOST", host)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&record).unwrap();
    let mut lines = text.lines().map(str::to_owned);
    let (of_all, of_program) = (lines.next().unwrap(), lines.next().unwrap());
    assert_eq!(lines.next().as_deref(), Some("build"), "{text}");
    (of_all, of_program)
}

/// Build scripts run on the machine, whose C library may be older than that of the images.
#[test]
fn only_the_program_is_linked_for_the_c_library_of_the_images() {
    let (of_all, of_program) = flags_on("x86_64-unknown-linux-gnu");
    assert!(of_all.contains("--remap-path-prefix=/sysroot=/rust"), "{of_all}");
    assert!(!of_all.contains("link-arg"), "{of_all}");
    assert_eq!(of_program, "-Wl,--icf=all,-z,pack-relative-relocs");
    let (of_all, of_program) = flags_on("aarch64-unknown-linux-gnu");
    assert!(!of_all.contains("link-arg"), "{of_all}");
    assert_eq!(of_program, "");
}

/// The benchmark links the program for the C library of its own machine.
#[test]
fn an_older_c_library_gets_no_packed_relocations() {
    for (version, expected) in [
        ("2.35", "-Wl,--icf=all"),
        ("2.36", "-Wl,--icf=all,-z,pack-relative-relocs"),
        ("2.41", "-Wl,--icf=all,-z,pack-relative-relocs"),
        ("", "-Wl,--icf=all"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write_program(&folder.path().join("rustc"), RUSTC);
        let path = std::env::var("PATH").unwrap();
        let output = Command::new("sh")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("link-args.sh"))
            .arg(version)
            .env("PATH", format!("{}:{path}", folder.path().display()))
            .env("HOST", "x86_64-unknown-linux-gnu")
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).trim(),
            expected,
            "{version}: {output:?}"
        );
    }
}
