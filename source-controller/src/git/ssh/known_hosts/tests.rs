//! Tests with handwritten files and with output of `ssh-keygen`.

use proptest::prelude::*;
use russh::keys::Algorithm;

use super::*;

const ED25519: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
const GITHUB: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEmKSENjQEezOmxkZMy7opKgwFB9nkt5YRrYMjNuG5N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg=";

fn server(host: &str) -> Server<'_> {
    Server { host, port: 22 }
}

#[test]
fn comments_blank_lines_and_trailing_words_are_ignored() {
    let text = format!(
        "# github\n\n   \t\n  github.com {ED25519} a comment of words\r\n#github.com {GITHUB}\n\tgithub.com {GITHUB}\n"
    );
    let known = KnownHosts::parse(&text).unwrap();
    assert_eq!(
        known.lines.iter().map(|line| line.number).collect::<Vec<_>>(),
        [4, 6]
    );
}

#[test]
fn the_type_is_taken_from_the_key() {
    let text = format!("github.com nonsense {}", ED25519.split(' ').nth(1).unwrap());
    let known = KnownHosts::parse(&text).unwrap();
    assert_eq!(known.offer(server("github.com")).keys, [Algorithm::Ed25519]);
}

#[test]
fn one_malformed_line_fails_the_file_and_is_reported() {
    let good = format!("github.com {ED25519}\n");
    let nested = "AAAAIHNzaC1lZDI1NTE5LWNlcnQtdjAxQG9wZW5zc2guY29t";
    for (bad, why) in [
        ("nonsense", "it has no key type"),
        ("github.com ssh-ed25519", "it has no key"),
        ("@cert-authority", "it has no host"),
        (&format!("@marked github.com {ED25519}"), "the marker is neither"),
        ("github.com ssh-ed25519 !!!", "not base64"),
        ("github.com ssh-ed25519 AAAA", "cannot be read"),
        (
            "github.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMq",
            "cannot be read",
        ),
        (
            &format!("github.com ssh-ed25519-cert-v01@openssh.com {nested}"),
            "cannot be read",
        ),
        (&format!("|1|x|y {ED25519}"), "host pattern"),
        (&format!("[github.com {ED25519}"), "host pattern"),
        ("github.com ssh-new AAAAB3NzaC1uZXcAAAABAA==", "cannot be read"),
    ] {
        let error = KnownHosts::parse(&format!("{good}# two\n{bad}\n{good}"))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("known_hosts: line 3: ") && error.contains(why),
            "{bad}: {error}"
        );
    }
    assert_eq!(
        KnownHosts::parse("# nothing\n").unwrap_err(),
        KnownHostsError::Empty
    );
    assert_eq!(
        KnownHosts::parse(&"#".repeat(MAX_BYTES + 1)).unwrap_err(),
        KnownHostsError::TooLong
    );
}

#[test]
fn a_host_may_have_several_keys_even_of_one_type() {
    let (first, second) = (key(ED25519.split(' ').nth(1).unwrap()).unwrap(), other());
    let text = format!("h {ED25519}\nh {}\nother {GITHUB}", line_of(&second));
    let known = KnownHosts::parse(&text).unwrap();
    assert_eq!(known.verify_key(server("h"), &first), Ok(()));
    assert_eq!(known.verify_key(server("h"), &second), Ok(()));
    assert!(known.verify_key(server("other"), &first).is_err());
}

#[test]
fn a_mismatch_reports_the_actual_and_the_expected_key() {
    let presented = key(GITHUB.split(' ').nth(1).unwrap()).unwrap();
    let text = format!(
        "x {ED25519}\nh {ED25519}\n@cert-authority * {}",
        line_of(&other())
    );
    let known = KnownHosts::parse(&text).unwrap();
    let error = known.verify_key(server("h"), &presented).unwrap_err().to_string();
    let authority = super::describe_key(&other());
    assert_eq!(
        error,
        format!(
            "knownhosts: key mismatch: the host shows ecdsa-sha2-nistp256 SHA256:p2QAMXNIC1TJYWeIOttrVc98/R1BUFWu3/LiyKgUfQM, and known_hosts expects ssh-ed25519 SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU (line 2) or a certificate signed by {authority} (line 3)"
        )
    );
    let known = KnownHosts::parse(&format!("x {ED25519}\ny {ED25519}")).unwrap();
    let error = known
        .verify_key(
            Server {
                host: "h",
                port: 2222,
            },
            &presented,
        )
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("none of the 2 lines of known_hosts is about h:2222"),
        "{error}"
    );
}

#[test]
fn a_revoked_key_is_refused_for_every_host() {
    let text = format!("h {ED25519}\n@revoked elsewhere {ED25519}");
    let known = KnownHosts::parse(&text).unwrap();
    let presented = key(ED25519.split(' ').nth(1).unwrap()).unwrap();
    let error = known.verify_key(server("h"), &presented).unwrap_err();
    assert!(matches!(error, HostKeyError::Revoked { line: 2, .. }), "{error}");
}

#[test]
fn the_offer_contains_the_key_types_of_the_host() {
    let rsa = [
        Algorithm::Rsa {
            hash: Some(HashAlg::Sha512),
        },
        Algorithm::Rsa {
            hash: Some(HashAlg::Sha256),
        },
    ];
    let text = format!("h {RSA}\ng {GITHUB}\ng {ED25519}\n@cert-authority *.c {ED25519}");
    let known = KnownHosts::parse(&text).unwrap();
    assert_eq!(known.offer(server("h")).keys, rsa);
    let both = known.offer(server("g"));
    assert_eq!(
        both.keys.iter().map(Algorithm::as_str).collect::<Vec<_>>(),
        ["ssh-ed25519", "ecdsa-sha2-nistp256"]
    );
    assert!(both.certificates.is_empty());
    assert_eq!(known.offer(server("a.c")).certificates.len(), 6);
    assert_eq!(known.offer(server("unknown")).keys.len(), 6);
}

#[test]
fn unsupported_key_types_are_parsed_and_never_offered() {
    // ssh-dss, and four small numbers.
    let dsa = "AAAAB3NzaC1kc3MAAAABBQAAAAEDAAAAAQIAAAABBA==";
    let text = format!("h ssh-dss {dsa}\nh {ED25519}\n");
    let known = KnownHosts::parse(&text).unwrap();
    assert_eq!(known.lines.len(), 2);
    assert_eq!(known.offer(server("h")).keys, [Algorithm::Ed25519]);
}

const RSA: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQCj7ndNxQowgcQnjshcLrqPEiiphnt+VTTvDP6mHBL9j1aNUkY4Ue1gvwnGLVlOhGeYrnZaMgRK6+PKCUXaDbC7qtbW8gIkhL7aGCsOr/C56SJMy/BCZfxd1nWzAOxSDPgVsmerOBYfNqltV9/hWCqBywINIR+5dIg6JTJ72pcEpEjcYgXkE2YEFXV1JHnsKgbLWNlhScqb2UmyRkQyytRLtL+38TGxkxCflmO+5Z8CSSNY7GidjMIZ7Q4zMjA2n1nGrlTDkzwDCsw+wqFPGQA179cnfGWOWRVruj16z6XyvxvjJwbz0wQZ75XK5tKSb7FNyeIEs4TT4jk+S4dhPeAUC5y+bDYirYgM4GC7uEnztnZyaVWQ7B381AK4Qdrwt51ZqExKbQpTUNn+EjqoTwvqNj4kqx5QUCI0ThS/YkOxJCXmPUWZbhjpCg56i+2aB6CmK2JGhn57K5mj0MNdBXA4/WnwH6XoPWJzK5Nyu2zB3nAZp+S5hpQs+p1vN1/wsjk=";

/// Returns another Ed25519 key.
fn other() -> KeyData {
    let bytes = [7_u8; 32];
    KeyData::Ed25519(russh::keys::ssh_key::private::Ed25519Keypair::from_seed(&bytes).public)
}

fn line_of(key: &KeyData) -> String {
    russh::keys::PublicKey::new(key.clone(), "").to_openssh().unwrap()
}

proptest! {
    #[test]
    fn any_file_is_parsed_or_refused(text in "\\PC{0,200}") {
        let _ = KnownHosts::parse(&text);
    }

    #[test]
    fn any_lines_are_parsed_or_refused(
        lines in proptest::collection::vec(
            "(@cert-authority |@revoked |@x |)([a-c*?!,\\[\\]:0-9|=]{0,16}) (ssh-rsa) ([A-Za-z0-9+/=]{0,60})( .{0,5})?",
            0..6,
        ),
        host in "[a-c]{1,4}",
    ) {
        let lines: Vec<_> = lines.into_iter().chain([format!("h {ED25519}")]).collect();
        if let Ok(known) = KnownHosts::parse(&lines.join("\n")) {
            let _ = known.verify_key(server(&host), &other());
            let _ = known.offer(server(&host));
        }
    }
}
