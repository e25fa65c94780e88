//! Tests of OpenPGP: key algorithms, subkeys, key rings, and invalid keys and signatures.

use jiff::{SignedDuration, Timestamp};
use sluice_harness::gpg::Keyring;

use super::super::{ObjectKind, SignedObject};
use super::{Objects, check};

const NO_MATCH: &str =
    "unable to verify Git commit: unable to verify payload with any of the given key rings: no matching key";

/// Removes the details that Flux does not have.
fn plain(result: &Result<String, String>) -> &str {
    let text = result.as_ref().unwrap_or_else(|error| error);
    text.split_once(" (").map_or(text, |(head, _)| head)
}

/// Returns the key id of a fingerprint.
fn id(fingerprint: &str) -> String {
    fingerprint[fingerprint.len() - 16..].to_owned()
}

fn a_key_signs(algorithm: &str) {
    let keyring = Keyring::create().unwrap();
    let key = keyring.generate(algorithm).unwrap();
    let objects = Objects::by_gpg(&keyring, &key);
    let ring = keyring.export(&key).unwrap();
    assert_eq!(objects.verified(&[("a.asc", &ring)]), Ok(id(&key)));
    for (kind, mut signed) in objects.parts() {
        let last = signed.payload.len() - 2;
        signed.payload[last] ^= 1;
        let error = check(&signed, kind, &[("a.asc", &ring)], Timestamp::now()).unwrap_err();
        assert!(error.contains(": no matching key (key '"), "{error}");
    }
}

#[test]
fn rsa_keys_sign_commits_and_tags() {
    a_key_signs("rsa2048");
}

#[test]
fn ed25519_keys_sign_commits_and_tags() {
    a_key_signs("ed25519");
}

#[test]
fn dsa_keys_sign_commits_and_tags() {
    a_key_signs("dsa2048");
}

#[test]
fn ecdsa_keys_on_nist_curves_sign_commits_and_tags() {
    for curve in ["nistp256", "nistp384", "nistp521"] {
        a_key_signs(curve);
    }
}

#[test]
fn ecdsa_keys_on_brainpool_curves_sign_commits_and_tags() {
    for curve in ["brainpoolP256r1", "brainpoolP384r1", "brainpoolP512r1"] {
        a_key_signs(curve);
    }
}

#[test]
fn a_subkey_signs_in_the_name_of_its_primary_key() {
    for (primary, subkey) in [
        ("rsa2048", "ed25519"),
        ("brainpoolP384r1", "brainpoolP256r1/ecdsa"),
    ] {
        let keyring = Keyring::create().unwrap();
        let key = keyring.generate(primary).unwrap();
        keyring
            .gpg(["--quick-add-key", &key, subkey, "sign"], b"")
            .unwrap();
        // gpg signs with the newest subkey that can sign.
        let objects = Objects::by_gpg(&keyring, &key);
        let ring = keyring.export(&key).unwrap();
        assert_eq!(objects.verified(&[("a.asc", &ring)]), Ok(id(&key)));
        let listed = keyring
            .gpg(
                ["--list-packets"],
                &SignedObject::commit(&objects.commit).signature,
            )
            .unwrap();
        assert!(!String::from_utf8_lossy(&listed).contains(&format!("keyid {}", id(&key))));
    }
}

#[test]
fn a_key_without_the_signing_capability_is_refused() {
    let keyring = Keyring::create().unwrap();
    let key = keyring.generate("rsa2048").unwrap();
    let objects = Objects::by_gpg(&keyring, &key);
    // The same key, changed to certify only, may not sign documents.
    let usage = ["--command-fd", "0", "--edit-key", &key];
    keyring.gpg(usage, b"change-usage\ns\nq\nsave\n").unwrap();
    let error = objects.verified(&[("a.asc", &keyring.export(&key).unwrap())]);
    assert_eq!(error, Err(NO_MATCH.into()));
}

#[test]
fn several_keys_in_a_ring_and_several_rings_are_searched() {
    let keyring = Keyring::create().unwrap();
    let keys: Vec<_> = ["ed25519", "nistp256", "rsa2048"]
        .iter()
        .map(|kind| keyring.generate(kind).unwrap())
        .collect();
    let together = String::from_utf8(
        keyring
            .gpg(["--armor", "--export", &keys[0], &keys[1], &keys[2]], b"")
            .unwrap(),
    )
    .unwrap();
    let apart: Vec<_> = keys.iter().map(|key| keyring.export(key).unwrap()).collect();
    let joined = apart.concat();
    for key in &keys {
        let objects = Objects::by_gpg(&keyring, key);
        let expected = Ok(id(key));
        assert_eq!(objects.verified(&[("a.asc", &together)]), expected);
        assert_eq!(
            objects.verified(&[("a.asc", &joined)]),
            expected,
            "armor behind armor"
        );
        let rings = [
            ("a", apart[0].as_str()),
            ("b.gpg", &apart[1]),
            ("c.asc", &apart[2]),
        ];
        assert_eq!(objects.verified(&rings), expected);
    }
    let objects = Objects::by_gpg(&keyring, &keys[0]);
    assert_eq!(objects.verified(&[("a.asc", &apart[1])]), Err(NO_MATCH.into()));
}

#[test]
fn a_malformed_key_ring_does_not_affect_others() {
    let keyring = Keyring::create().unwrap();
    let (key, other) = (
        keyring.generate("ed25519").unwrap(),
        keyring.generate("ed25519").unwrap(),
    );
    let objects = Objects::by_gpg(&keyring, &key);
    let (good, foreign) = (keyring.export(&key).unwrap(), keyring.export(&other).unwrap());
    let lines: Vec<_> = good.lines().collect();
    let truncated = [&lines[..4], &lines[lines.len() - 1..]].concat().join("\n");
    for bad in [
        "",
        "no armor",
        truncated.as_str(),
        "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!!!\n",
    ] {
        assert_eq!(
            objects.verified(&[("a", bad), ("b", &good)]),
            Ok(id(&key)),
            "{bad}"
        );
        assert_eq!(
            objects.verified(&[("a", &good), ("b", bad)]),
            Ok(id(&key)),
            "{bad}"
        );
        assert_eq!(
            objects.verified(&[("a", bad), ("b", &foreign)]),
            Err(NO_MATCH.into()),
            "{bad}"
        );
        let error = objects.verified(&[("a", bad), ("b", bad)]).unwrap_err();
        assert!(
            error.starts_with("unable to verify Git commit: unable to read armored key ring: "),
            "{error}"
        );
    }
    let public = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHtQYp3Zp1Ju5dPjEF4ZrRAOBNVk3mmKbnlCuI9Ec4Ri";
    assert_eq!(
        objects.verified(&[("a.sshpub", public)]),
        Err("PGP signature detected but no PGP public keys found in secret (keys with .asc suffix)".into())
    );
    assert_eq!(
        objects.verified(&[("a.sshpub", public), ("a", &good)]),
        Ok(id(&key))
    );
}

#[test]
fn signatures_of_an_expired_key_are_invalid_even_if_made_before_the_expiry() {
    let keyring = Keyring::create().unwrap();
    let time = ["--faked-system-time", "20200101T000000"];
    let key = keyring.generate_at("ed25519", "1y", &time).unwrap();
    let objects = Objects::by_gpg_program(&keyring.program_at("20200201T000000").unwrap(), &key);
    let ring = keyring.export(&key).unwrap();
    let at = |text: &str| objects.verified_at(&[("a.asc", &ring)], text.parse().unwrap());
    assert_eq!(at("2020-06-01T00:00:00Z"), Ok(id(&key)));
    assert_eq!(
        at("2021-06-01T00:00:00Z"),
        Err(format!("{NO_MATCH} (key '{}': the key is expired)", id(&key)))
    );
    assert_eq!(
        at("2020-01-15T00:00:00Z"),
        Err(format!(
            "{NO_MATCH} (key '{}': the signature is from the future)",
            id(&key)
        ))
    );
    assert_eq!(
        at("2019-06-01T00:00:00Z"),
        Err(format!("{NO_MATCH} (key '{}': the key is expired)", id(&key))),
        "made later than now"
    );
}

#[test]
fn an_expired_subkey_or_signature_is_invalid() {
    let keyring = Keyring::create().unwrap();
    let time = ["--faked-system-time", "20200101T000000"];
    let key = keyring.generate_at("ed25519", "0", &time).unwrap();
    let content = SignedObject {
        payload: b"content".to_vec(),
        signature: Vec::new(),
    };
    let expiring = keyring
        .sign(
            &key,
            &content.payload,
            &[
                "--faked-system-time",
                "20200101T000000",
                "--default-sig-expire",
                "1m",
            ],
        )
        .unwrap();
    let add = [
        "--faked-system-time",
        "20200101T000000",
        "--quick-add-key",
        &key,
        "ed25519",
        "sign",
        "1y",
    ];
    keyring.gpg(add, b"").unwrap();
    let by_subkey = keyring
        .sign(
            &key,
            &content.payload,
            &["--faked-system-time", "20200101T000000"],
        )
        .unwrap();
    let ring = keyring.export(&key).unwrap();
    let at = |signature: &str, text: &str| {
        let signed = SignedObject {
            signature: signature.into(),
            ..content.clone()
        };
        check(
            &signed,
            ObjectKind::Commit,
            &[("a.asc", &ring)],
            text.parse().unwrap(),
        )
    };
    assert_eq!(at(&expiring, "2020-01-20T00:00:00Z"), Ok(id(&key)));
    assert_eq!(plain(&at(&expiring, "2020-03-01T00:00:00Z")), NO_MATCH);
    assert_eq!(at(&by_subkey, "2020-06-01T00:00:00Z"), Ok(id(&key)));
    assert_eq!(plain(&at(&by_subkey, "2021-06-01T00:00:00Z")), NO_MATCH);
}

#[test]
fn signatures_of_a_revoked_key_are_invalid_regardless_of_their_time() {
    let keyring = Keyring::create().unwrap();
    let key = keyring.generate("ed25519").unwrap();
    let objects = Objects::by_gpg(&keyring, &key);
    assert_eq!(
        objects.verified(&[("a", &keyring.export(&key).unwrap())]),
        Ok(id(&key))
    );
    keyring.revoke(&key).unwrap();
    let later = Timestamp::now() + SignedDuration::from_secs(5);
    assert_eq!(
        objects.verified_at(&[("a", &keyring.export(&key).unwrap())], later),
        Err(format!("{NO_MATCH} (key '{}': the key is revoked)", id(&key)))
    );
}

#[test]
fn a_revoked_subkey_is_invalid_and_its_primary_key_stays_valid() {
    let keyring = Keyring::create().unwrap();
    let key = keyring.generate("ed25519").unwrap();
    let before = Objects::by_gpg(&keyring, &key);
    keyring
        .gpg(["--quick-add-key", &key, "nistp256/ecdsa", "sign"], b"")
        .unwrap();
    let by_subkey = Objects::by_gpg(&keyring, &key);
    let edit = ["--command-fd", "0", "--edit-key", &key];
    keyring.gpg(edit, b"key 1\nrevkey\ny\n0\n\ny\nsave\n").unwrap();
    let ring = keyring.export(&key).unwrap();
    let later = Timestamp::now() + SignedDuration::from_secs(5);
    assert_eq!(before.verified_at(&[("a", &ring)], later), Ok(id(&key)));
    assert_eq!(
        by_subkey.verified_at(&[("a", &ring)], later),
        Err(format!("{NO_MATCH} (key '{}': the key is revoked)", id(&key)))
    );
}

#[test]
fn weak_hashes_are_accepted_as_in_flux() {
    let keyring = Keyring::create().unwrap();
    let key = keyring.generate("rsa2048").unwrap();
    let ring = keyring.export(&key).unwrap();
    for (hash, confirmed) in [
        ("SHA512", true),
        ("SHA224", true),
        ("SHA1", true),
        ("MD5", false),
        ("RIPEMD160", false),
    ] {
        let weak = ["--allow-weak-digest-algos", "--digest-algo", hash];
        let signature = keyring.sign(&key, b"content", &weak).unwrap();
        let signed = SignedObject {
            payload: b"content".to_vec(),
            signature: signature.into(),
        };
        let verified = check(&signed, ObjectKind::Commit, &[("a", &ring)], Timestamp::now());
        assert_eq!(verified.is_ok(), confirmed, "{hash}: {verified:?}");
    }
}

#[test]
fn of_several_signatures_the_first_by_a_known_key_decides() {
    let keyring = Keyring::create().unwrap();
    let (one, two) = (
        keyring.generate("ed25519").unwrap(),
        keyring.generate("nistp256").unwrap(),
    );
    let sign = [
        "--armor",
        "--local-user",
        &one,
        "--local-user",
        &two,
        "--detach-sign",
    ];
    let both = keyring.gpg(sign, b"content").unwrap();
    let signed = SignedObject {
        payload: b"content".to_vec(),
        signature: both,
    };
    let verified = |ring: &str| check(&signed, ObjectKind::Commit, &[("a", ring)], Timestamp::now());
    assert_eq!(verified(&keyring.export(&one).unwrap()), Ok(id(&one)));
    assert_eq!(verified(&keyring.export(&two).unwrap()), Ok(id(&two)));
}

#[test]
fn damaged_and_decorated_signatures() {
    let keyring = Keyring::create().unwrap();
    let key = keyring.generate("ed25519").unwrap();
    let ring = keyring.export(&key).unwrap();
    let good = keyring.sign(&key, b"content", &[]).unwrap();
    let verified = |signature: String| {
        let signed = SignedObject {
            payload: b"content".to_vec(),
            signature: signature.into(),
        };
        check(&signed, ObjectKind::Commit, &[("a", &ring)], Timestamp::now())
    };
    for decorated in [
        good.clone(),
        format!("\n\t {good}\n\n "),
        good.replace('\n', "\r\n"),
        format!("{good}garbage behind the end\n"),
        good.trim_end().to_owned(),
        good.replacen("\n\n", "\nComment: hello\nVersion: 1\n\n", 1),
    ] {
        assert_eq!(verified(decorated.clone()), Ok(id(&key)), "{decorated}");
    }
    let lines: Vec<_> = good.lines().collect();
    let middle = lines.len() / 2;
    let truncated = [&lines[..middle], &lines[lines.len() - 1..]].concat().join("\n");
    // The last line of data contains the signature itself; unsigned parts precede it.
    let last = lines[lines.len() - 3];
    let letter = if last.starts_with('A') { "B" } else { "A" };
    let corrupted = good.replacen(last, &format!("{letter}{}", &last[1..]), 1);
    for damaged in [
        truncated,
        corrupted,
        good.replace("SIGNATURE-----\n\n", "SIGNATURE-----\n\n!!!!"),
        lines[..middle].join("\n"),
        "-----BEGIN PGP SIGNATURE-----\n-----END PGP SIGNATURE-----\n".into(),
        "-----BEGIN PGP SIGNATURE-----".into(),
        format!("-----BEGIN PGP SIGNATURE-----\n\n{}", "A".repeat(200_000)),
        ring.replace("PUBLIC KEY BLOCK", "SIGNATURE"),
    ] {
        assert_eq!(plain(&verified(damaged.clone())), NO_MATCH, "{damaged}");
    }
    for (text, kind) in [
        (good.replace("PGP SIGNATURE", "PGP MESSAGE"), "unknown"),
        (good.replace("PGP SIGNATURE", "SIGNED MESSAGE"), "x509"),
        (String::new(), "empty"),
        ("nonsense".into(), "unknown"),
    ] {
        assert_eq!(verified(text), Err(format!("unsupported signature type: {kind}")));
    }
    let mismatched = verified(good.replace("PGP SIGNATURE", "SSH SIGNATURE"));
    assert_eq!(
        mismatched,
        Err(
            "SSH signature detected but no SSH public keys found in secret (keys with .sshpub suffix)".into()
        )
    );
}
