//! Tests of the server with OpenSSH's client and Git.

use super::*;

/// Runs `git ls-remote` through OpenSSH's client.
fn ls_remote(server: &SshServer, key: &Key, url: &str) -> std::process::Output {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    fs::write(file("key"), &key.private).unwrap();
    fs::set_permissions(file("key"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(file("known_hosts"), server.known_hosts()).unwrap();
    let ssh = format!(
        "ssh -F none -o BatchMode=yes -o IdentitiesOnly=yes -o UserKnownHostsFile={} -o StrictHostKeyChecking=yes -i {}",
        file("known_hosts"),
        file("key")
    );
    Command::new("git")
        .args(["-c", "protocol.version=2", "ls-remote", url])
        .env("GIT_SSH_COMMAND", ssh)
        .output()
        .unwrap()
}

#[test]
fn git_reads_a_repository_through_the_server() {
    let repository = Repository::create().unwrap();
    let commit = repository
        .commit_files(&[("main.tf", "locals {}\n")], "first")
        .unwrap();
    let server = SshServer::start(vec![Key::generate("ed25519", 256).unwrap()], &[]).unwrap();
    let (key, other) = (
        Key::generate("ed25519", 256).unwrap(),
        Key::generate("ed25519", 256).unwrap(),
    );
    server.authorize(&key).unwrap();
    let url = server.serve("app", &repository).unwrap();
    let listed = ls_remote(&server, &key, &url);
    assert!(
        listed.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&listed.stderr),
        server.log()
    );
    assert!(String::from_utf8_lossy(&listed.stdout).contains(&commit));
    let commands = server.commands();
    assert_eq!(commands.len(), 1, "{commands:?}");
    assert!(
        commands[0].command.starts_with("git-upload-pack '/"),
        "{commands:?}"
    );
    assert!(!ls_remote(&server, &other, &url).status.success());
    server.fault(Some(Fault::Failed)).unwrap();
    let failed = ls_remote(&server, &key, &url);
    assert!(String::from_utf8_lossy(&failed.stderr).contains("on fire"));
}

#[test]
fn a_killed_server_does_not_respond() {
    let mut server = SshServer::start(vec![Key::generate("ed25519", 256).unwrap()], &[]).unwrap();
    let address = server.address();
    assert!(responds(address));
    server.kill();
    let started = Instant::now();
    while responds(address) {
        assert!(started.elapsed() < READY_TIMEOUT);
    }
}
