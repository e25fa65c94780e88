//! Authentication of the client.

use super::*;

const PASSPHRASE: &str = "correct horse";

#[tokio::test]
async fn every_type_of_key_is_accepted_in_every_format_plain_and_encrypted() {
    let env = Ssh::new();
    for (kind, bits) in [
        ("rsa", 4096),
        ("ecdsa", 256),
        ("ecdsa", 384),
        ("ecdsa", 521),
        ("ed25519", 256),
    ] {
        // OpenSSH writes Ed25519 keys in its own format only.
        let forms: &[&str] = if kind == "ed25519" {
            &["RFC4716"]
        } else {
            &["RFC4716", "PKCS8", "PEM"]
        };
        let plain = key(kind, bits);
        env.server.authorize(&plain).unwrap();
        for form in forms {
            for passphrase in ["", PASSPHRASE] {
                let arguments = ["-m", form, "-N", passphrase, "-a", "2"];
                let key = plain.rewritten(&arguments).unwrap();
                let remote = env.remote_with(&env.url, &key.private, passphrase, &env.server.known_hosts());
                let found = env.look_up(remote).await;
                assert_eq!(
                    found.ok(),
                    Some(env.commit.clone()),
                    "{kind} {bits} {form} {passphrase:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn rsa_keys_sign_with_an_accepted_algorithm() {
    for (accepted, algorithms, expected) in [
        ("rsa-sha2-512", "", true),
        ("rsa-sha2-256", "", true),
        ("ssh-rsa", "", false),
        ("ssh-rsa", "ssh-ed25519,ssh-rsa", true),
    ] {
        let line = format!("PubkeyAcceptedAlgorithms {accepted}");
        let env = Ssh::with(vec![key("ed25519", 256)], &[&line]);
        let key = key("rsa", 2048);
        env.server.authorize(&key).unwrap();
        let remote = env.remote_with(&env.url, &key.private, "", &env.server.known_hosts());
        let host_keys = algorithms.split(',').filter(|name| !name.is_empty());
        let algorithms = Algorithms {
            host_keys: host_keys.map(|name| name.parse().unwrap()).collect(),
            ..Algorithms::default()
        };
        let found = env.look_up_with(algorithms, remote).await;
        assert_eq!(
            found.is_ok(),
            expected,
            "{accepted}: {found:?}\n{}",
            env.server.log()
        );
    }
}

#[tokio::test]
async fn an_unauthorized_key_is_reported() {
    let env = Ssh::new();
    let key = key("ed25519", 256);
    let remote = env.remote_with(&env.url, &key.private, "", &env.server.known_hosts());
    let error = env.look_up(remote).await.unwrap_err().to_string();
    let user = env.server.user();
    assert!(
        error.starts_with("unable to list remote for 'ssh://127.0.0.1:"),
        "{error}"
    );
    assert!(
        error.contains(&format!(
            "ssh: unable to authenticate as '{user}', attempted methods [publickey] with ssh-ed25519 SHA256:"
        )),
        "{error}"
    );
    assert!(error.ends_with("the host accepts: publickey"), "{error}");
}

#[tokio::test]
async fn an_invalid_secret_is_reported_without_a_connection() {
    let env = Ssh::new();
    let known = env.server.known_hosts();
    let encrypted = Key::generate_with("ed25519", 256, &["-N", PASSPHRASE, "-a", "2"]).unwrap();
    for (identity, password, known, why) in [
        (
            encrypted.private.as_str(),
            "wrong",
            known.as_str(),
            "the passphrase is wrong",
        ),
        ("nonsense", "", &known, "unknown format of the private key"),
        (
            &env.key.private,
            "",
            "127.0.0.1 nonsense",
            "known_hosts: line 1: it has no key",
        ),
    ] {
        let error = env
            .look_up(env.remote_with(&env.url, identity, password, known))
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("unable to construct auth method with options: ") && error.contains(why),
            "{error}"
        );
    }
    assert_eq!(env.server.commands(), []);
    let refused = |secret: &[(&str, &str)]| credentials(&env.url, secret).unwrap_err().to_string();
    let known = ("known_hosts", known.as_str());
    assert_eq!(
        refused(&[known]),
        "invalid 'ssh' auth option: 'identity' is required"
    );
    assert_eq!(
        refused(&[("identity", ""), known]),
        "invalid 'ssh' auth option: 'identity' is required"
    );
    let identity = ("identity", env.key.private.as_str());
    assert_eq!(
        refused(&[identity]),
        "invalid 'ssh' auth option: 'known_hosts' is required"
    );
    assert_eq!(
        refused(&[identity, ("known_hosts", "")]),
        "invalid 'ssh' auth option: 'known_hosts' is required"
    );
    let error = refused(&[("identity", &encrypted.private), known]);
    assert!(
        error.contains("is encrypted but no 'password' field was provided"),
        "{error}"
    );
}

#[test]
fn ssh_credentials_have_distinct_digests_and_are_not_printed() {
    let key = key("ed25519", 256);
    let of = |url: &str, known: &str, extra: &[(&str, &str)]| {
        let secret = [
            &[("identity", key.private.as_str()), ("known_hosts", known)],
            extra,
        ]
        .concat();
        credentials(url, &secret).unwrap()
    };
    let one = of("ssh://git@h/x", "h a", &[]);
    assert_eq!(format!("{one:?}"), "Ssh(***)");
    assert_eq!(
        one.digest(),
        of("ssh://h/x", "h a", &[("identity.pub", "x"), ("username", "x")]).digest()
    );
    assert_ne!(one.digest(), of("ssh://me@h/x", "h a", &[]).digest());
    assert_ne!(one.digest(), of("ssh://git@h/x", "h b", &[]).digest());
    assert_ne!(
        one.digest(),
        of("ssh://git@h/x", "h a", &[("password", "x")]).digest()
    );
}
