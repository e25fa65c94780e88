//! The one program: under the name of a controller or of the runner it is that program, as with its subcommand.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

fn output(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .output()
        .expect("the program starts")
}

#[test]
fn a_link_selects_the_program_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    for (link, command, flag) in [
        ("source-controller", "source-controller", "--storage-adv-addr"),
        ("tf-controller", "tf-controller", "--allow-break-the-glass"),
        ("tofu-controller", "tf-controller", "--allow-break-the-glass"),
        ("repo-controller", "repo-controller", "--kubeconfig"),
        ("tf-runner", "tf-runner", "--input-stdin"),
    ] {
        let path = folder.path().join(link);
        symlink(SLUICE, &path).unwrap();
        let linked = output(&path, &["--help"]);
        let help = String::from_utf8(linked.stdout).unwrap();
        assert!(linked.status.success() && help.contains(flag), "{link}: {help}");
        let version = String::from_utf8(output(&path, &["--version"]).stdout).unwrap();
        assert!(version.contains(env!("CARGO_PKG_VERSION")), "{link}: {version}");
        let direct = output(Path::new(SLUICE), &[command, "--help"]);
        assert!(direct.status.success(), "{command}");
        assert!(
            String::from_utf8(direct.stdout).unwrap().contains(flag),
            "{command}"
        );
    }
}

#[test]
fn an_unknown_flag_is_named_and_ends_each_program() {
    for command in [
        "source-controller",
        "tf-controller",
        "repo-controller",
        "tf-runner",
        "up",
    ] {
        let ended = output(Path::new(SLUICE), &[command, "--no-such-flag"]);
        let text = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{command}: {text}");
        assert!(text.contains("--no-such-flag"), "{command}: {text}");
    }
}

/// Only a name of the table is a link: another copy of the program keeps its subcommands.
#[test]
fn another_name_keeps_the_subcommands() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sluice-0.1");
    symlink(SLUICE, &path).unwrap();
    let help = String::from_utf8(output(&path, &["--help"]).stdout).unwrap();
    for command in [
        "up",
        "state",
        "record",
        "source-controller",
        "tf-controller",
        "repo-controller",
    ] {
        assert!(help.contains(command), "{help}");
    }
}

/// kubectl calls a plugin by the name of its file.
#[test]
fn a_plugin_of_kubectl_has_all_commands() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-sluice");
    symlink(SLUICE, &plugin).unwrap();
    let help = |program: &Path| String::from_utf8(output(program, &["--help"]).stdout).unwrap();
    assert!(help(&plugin).contains("approve"), "{}", help(&plugin));
    let renamed = help(&plugin).replace("kubectl-sluice", "sluice");
    assert_eq!(renamed, help(Path::new(SLUICE)));
    let version = output(&plugin, &["version", "--client", "-o", "json"]);
    let version = String::from_utf8(version.stdout).unwrap();
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
}

#[test]
fn a_state_directory_that_cannot_be_read_is_no_wrong_argument() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing").display().to_string();
    for command in ["check", "export"] {
        let ended = output(Path::new(SLUICE), &["state", command, "--state", &missing]);
        let text = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{command}: {text}");
        assert!(text.contains(&missing), "{command}: {text}");
        let usage = output(Path::new(SLUICE), &["state", command]);
        assert_eq!(usage.status.code(), Some(2), "{command}");
    }
}
