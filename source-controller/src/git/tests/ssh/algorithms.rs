//! Negotiation of algorithms.

use super::*;

/// The key exchanges that Flux's tests use.
const EXCHANGES: [&str; 7] = [
    "diffie-hellman-group14-sha1",
    "diffie-hellman-group14-sha256",
    "diffie-hellman-group-exchange-sha256",
    "curve25519-sha256",
    "ecdh-sha2-nistp256",
    "ecdh-sha2-nistp384",
    "ecdh-sha2-nistp521",
];

fn exchanges(names: &[&str]) -> Algorithms {
    let key_exchanges = names.iter().map(|name| name.parse().unwrap()).collect();
    Algorithms {
        key_exchanges,
        ..Algorithms::default()
    }
}

fn host_keys(names: &[&str]) -> Algorithms {
    let host_keys = names.iter().map(|name| name.parse().unwrap()).collect();
    Algorithms {
        host_keys,
        ..Algorithms::default()
    }
}

#[tokio::test]
async fn every_key_exchange_of_the_flag_is_used() {
    let line = format!(
        "KexAlgorithms {},curve25519-sha256@libssh.org",
        EXCHANGES.join(",")
    );
    let env = Ssh::with(vec![key("ed25519", 256)], &[&line, "LogLevel DEBUG1"]);
    for name in EXCHANGES.into_iter().chain(["curve25519-sha256@libssh.org"]) {
        let found = env.look_up_with(exchanges(&[name]), env.remote()).await;
        assert_eq!(found.ok(), Some(env.commit.clone()), "{name}");
        assert!(
            env.server
                .log()
                .contains(&format!("kex: algorithm: {name} [preauth]")),
            "{name}"
        );
    }
}

#[tokio::test]
async fn the_order_of_the_flag_decides() {
    let env = Ssh::with(vec![key("ed25519", 256)], &["LogLevel DEBUG1"]);
    let flag = exchanges(&["ecdh-sha2-nistp521", "curve25519-sha256"]);
    assert_eq!(env.look_up_with(flag, env.remote()).await.unwrap(), env.commit);
    assert!(env.server.log().contains("kex: algorithm: ecdh-sha2-nistp521"));
}

#[tokio::test]
async fn a_missing_common_key_exchange_is_reported() {
    let env = Ssh::with(vec![key("ed25519", 256)], &["KexAlgorithms curve25519-sha256"]);
    let flag = exchanges(&["diffie-hellman-group14-sha1", "ecdh-sha2-nistp256"]);
    let error = env
        .look_up_with(flag, env.remote())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no common algorithm for key exchange; the host has: curve25519-sha256"),
        "{error}"
    );
    assert!(
        error.contains("offered: diffie-hellman-group14-sha1, ecdh-sha2-nistp256"),
        "{error}"
    );
}

#[tokio::test]
async fn an_rsa_host_key_signs_with_a_common_algorithm() {
    for (server, flag, expected) in [
        ("rsa-sha2-512", &[][..], true),
        ("rsa-sha2-256", &[], true),
        // SHA-1 is used only if a flag enables it.
        ("ssh-rsa", &[], false),
        ("ssh-rsa", &["ssh-rsa"], true),
        ("rsa-sha2-512", &["rsa-sha2-256"], false),
        ("rsa-sha2-512", &["ssh-ed25519"], false),
    ] {
        let line = format!("HostKeyAlgorithms {server}");
        let env = Ssh::with(vec![key("rsa", 2048)], &[&line]);
        let found = env.look_up_with(host_keys(flag), env.remote()).await;
        assert_eq!(found.is_ok(), expected, "{server} {flag:?}: {found:?}");
        if let Err(error) = found {
            let text = error.to_string();
            assert!(
                text.contains(&format!(
                    "no common algorithm for host key; the host has: {server};"
                )),
                "{text}"
            );
        }
    }
}

#[tokio::test]
async fn the_flag_replaces_the_types_of_the_known_hosts() {
    let keys = vec![key("ed25519", 256), key("ecdsa", 256)];
    let env = Ssh::with(keys, &["LogLevel DEBUG1"]);
    let flag = host_keys(&["ecdsa-sha2-nistp256", "ssh-ed25519"]);
    assert_eq!(env.look_up_with(flag, env.remote()).await.unwrap(), env.commit);
    assert!(
        env.server
            .log()
            .contains("kex: host key algorithm: ecdsa-sha2-nistp256")
    );
}
