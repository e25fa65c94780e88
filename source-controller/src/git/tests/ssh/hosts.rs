//! Verification of host keys.

use std::process::Command;

use sluice_harness::ssh::certify;

use super::*;

/// Hashes the names as `ssh-keygen -H` does.
fn hashed(known_hosts: &str) -> String {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("known_hosts");
    std::fs::write(&file, known_hosts).unwrap();
    let output = Command::new("ssh-keygen")
        .args(["-q", "-H", "-f"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success());
    std::fs::read_to_string(&file).unwrap()
}

#[tokio::test]
async fn every_type_of_host_key_matches_plain_and_hashed_names() {
    let types = [
        ("rsa", 2048),
        ("ecdsa", 256),
        ("ecdsa", 384),
        ("ecdsa", 521),
        ("ed25519", 256),
    ];
    let keys: Vec<_> = types.iter().map(|(kind, bits)| key(kind, *bits)).collect();
    let env = Ssh::with(keys, &["LogLevel DEBUG1"]);
    for line in env.server.known_hosts().lines() {
        for known in [line.to_owned(), hashed(line)] {
            let remote = env.remote_with(&env.url, &env.key.private, "", &known);
            assert_eq!(
                env.look_up(remote).await.ok(),
                Some(env.commit.clone()),
                "{known}"
            );
        }
    }
    let remote = env.remote_with(&env.url, &env.key.private, "", &hashed(&env.server.known_hosts()));
    assert_eq!(env.look_up(remote).await.unwrap(), env.commit);
    // Each type of key was really used.
    let log = env.server.log();
    for kind in [
        "rsa-sha2-512",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "ssh-ed25519",
    ] {
        assert!(
            log.contains(&format!("kex: host key algorithm: {kind}")),
            "{kind}"
        );
    }
}

#[tokio::test]
async fn a_wrong_host_key_is_refused_and_both_keys_are_reported() {
    let env = Ssh::new();
    let other = key("ed25519", 256);
    let port = env.server.address().port();
    let known = format!("# comment\n[127.0.0.1]:{port} {}\n", other.public);
    let error = env
        .look_up(env.remote_with(&env.url, &env.key.private, "", &known))
        .await
        .unwrap_err();
    assert!(matches!(error, FetchError::Handshake { .. }), "{error:?}");
    let error = error.to_string();
    assert!(
        error.contains("knownhosts: key mismatch: the host shows ssh-ed25519 SHA256:"),
        "{error}"
    );
    assert!(
        error.contains("known_hosts expects ssh-ed25519 SHA256:") && error.ends_with("(line 2)"),
        "{error}"
    );
    assert_eq!(env.server.commands(), []);
}

#[tokio::test]
async fn an_unknown_host_is_refused_and_its_key_is_reported() {
    let env = Ssh::new();
    for known in [
        format!("github.com {}", env.server.host_keys()[0].public),
        // The port is significant.
        format!("127.0.0.1 {}", env.server.host_keys()[0].public),
        format!(
            "*,![127.0.0.1]:{} {}",
            env.server.address().port(),
            env.server.host_keys()[0].public
        ),
    ] {
        let remote = env.remote_with(&env.url, &env.key.private, "", &known);
        let error = env.look_up(remote).await.unwrap_err().to_string();
        assert!(
            error.contains("knownhosts: key is unknown: the host shows ssh-ed25519 SHA256:"),
            "{error}"
        );
        assert!(
            error.contains("none of the 1 lines of known_hosts is about 127.0.0.1:"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_host_without_a_known_key_type_is_refused_and_its_types_are_reported() {
    let env = Ssh::new();
    let known = format!("[127.0.0.1]:* {}\n", env.key.public);
    assert!(
        env.look_up(env.remote_with(&env.url, &env.key.private, "", &known))
            .await
            .is_err()
    );
    let ecdsa = key("ecdsa", 256);
    let known = format!("[127.0.0.1]:{} {}\n", env.server.address().port(), ecdsa.public);
    let error = env
        .look_up(env.remote_with(&env.url, &env.key.private, "", &known))
        .await
        .unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("no common algorithm for host key; the host has: ssh-ed25519"),
        "{error}"
    );
    assert!(
        error.contains("known_hosts expects ecdsa-sha2-nistp256 SHA256:"),
        "{error}"
    );
}

#[tokio::test]
async fn a_revoked_host_key_is_refused() {
    let env = Ssh::new();
    let known = format!(
        "{}@revoked * {}",
        env.server.known_hosts(),
        env.server.host_keys()[0].public
    );
    let error = env
        .look_up(env.remote_with(&env.url, &env.key.private, "", &known))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("key is revoked") && error.to_string().contains("line 2"),
        "{error}"
    );
}

#[tokio::test]
async fn a_certificate_needs_the_right_authority_name_and_time() {
    let authority = key("ed25519", 256);
    let host = key("ed25519", 256);
    let rsa = key("rsa", 2048);
    let good = ["-h", "-n", "git.example.org,127.0.0.1", "-V", "-1h:+1h"];
    for (host, arguments, why) in [
        (&host, &good[..], None),
        (&rsa, &good[..], None),
        (&host, &["-h"], None),
        (
            &host,
            &["-h", "-n", "git.example.org"],
            Some("it is for git.example.org, not for 127.0.0.1"),
        ),
        (&host, &["-h", "-V", "-2h:-1h"], Some("it has expired")),
        (&host, &["-h", "-V", "+1h:+2h"], Some("it is not valid yet")),
    ] {
        let signed = certify(&authority, host, arguments).unwrap();
        let env = Ssh::with(vec![signed], &[]);
        let port = env.server.address().port();
        let known = format!("@cert-authority [127.0.0.1]:{port} {}\n", authority.public);
        let found = env
            .look_up(env.remote_with(&env.url, &env.key.private, "", &known))
            .await;
        match why {
            None => assert_eq!(found.unwrap(), env.commit),
            Some(why) => {
                let error = found.unwrap_err().to_string();
                assert!(
                    error.contains("knownhosts: the host shows a certificate for") && error.contains(why),
                    "{error}"
                );
            }
        }
    }
}

#[tokio::test]
async fn an_authority_is_valid_only_for_its_hosts_and_until_revoked() {
    let (authority, other) = (key("ed25519", 256), key("ecdsa", 256));
    let host = key("ed25519", 256);
    let signed = certify(&authority, &host, &["-h"]).unwrap();
    let env = Ssh::with(vec![signed], &[]);
    let port = env.server.address().port();
    let known = format!("@cert-authority [127.0.0.1]:{port} {}\n", authority.public);
    for (known, why) in [
        (
            format!("@cert-authority [127.0.0.1]:{port} {}\n", other.public),
            "it is signed by ssh-ed25519",
        ),
        (
            format!("@cert-authority github.com {}\n", authority.public),
            "none of the 1 lines",
        ),
        (
            format!("{known}@revoked * {}\n", authority.public),
            "key is revoked",
        ),
        (format!("{known}@revoked * {}\n", host.public), "key is revoked"),
    ] {
        let remote = env.remote_with(&env.url, &env.key.private, "", &known);
        let error = env.look_up(remote).await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    // Without an authority, the key itself may be listed.
    let remote = env.remote();
    assert_eq!(env.look_up(remote).await.unwrap(), env.commit);
}
