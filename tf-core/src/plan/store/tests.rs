use super::*;
use crate::bundle::tests::bundle;

fn stack() -> Stack {
    Stack {
        namespace: "team".into(),
        name: "net".into(),
        uid: "u-1".into(),
    }
}

fn name(run: &str) -> PlanName {
    PlanName {
        stack: stack(),
        workspace: "default".into(),
        id: "plan-main-1-2".into(),
        run: run.into(),
    }
}

fn stored(plan: Vec<u8>) -> StoredPlan {
    let files = vec![GeneratedFile::new("out/x.zip".into(), 0o644, b"zip")];
    let context = PlanContext {
        bundle: bundle(),
        provider_lock: Some("lock".into()),
        files,
        files_omitted: false,
        omitted_files: Vec::new(),
        modules: String::new(),
        effect: "2".into(),
        tool: "terraform".into(),
        tool_version: "1.11.4".into(),
        destroy: false,
        secrets: Vec::new(),
        secrets_omitted: false,
    };
    StoredPlan { plan, context }
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..length).map(next).collect()
}

#[test]
fn a_small_plan_is_one_immutable_secret_with_upstreams_marks() {
    let secrets = encode(&stored(b"plan".to_vec()), &name("net-1"), None).unwrap();
    assert_eq!(secrets.len(), 1);
    let secret = &secrets[0];
    let full = secret.metadata.name.as_deref().unwrap();
    assert!(
        full.starts_with("tfplan-default-net-") && full.ends_with("-0"),
        "{full}"
    );
    assert_eq!(full.len(), "tfplan-default-net-".len() + 10 + 2);
    assert_eq!(secret.immutable, Some(true));
    assert_eq!(annotation_of(&secret.metadata, "savedPlan"), "plan-main-1-2");
    assert_eq!(annotation_of(&secret.metadata, "encoding"), "gzip");
    assert_eq!(
        annotation_of(&secret.metadata, "infra.contrib.fluxcd.io/plan-chunk"),
        "0"
    );
    assert_eq!(
        secret.metadata.labels.as_ref().unwrap()["infra.contrib.fluxcd.io/plan-name"],
        "net"
    );
    let owner = &secret.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.uid.as_str(), owner.controller, owner.block_owner_deletion),
        ("u-1", None, None)
    );
}

#[test]
fn a_large_plan_survives_in_any_order_and_among_others() {
    let large = stored(noise(2_500_000));
    let mut secrets = encode(&large, &name("net-2"), None).unwrap();
    assert_eq!(secrets.len(), 3);
    secrets.reverse();
    secrets.extend(encode(&stored(b"older".to_vec()), &name("net-1"), None).unwrap());
    assert!(decode(&secrets, &name("net-2"), &[]).unwrap() == large);
    assert_eq!(decode(&secrets, &name("net-1"), &[]).unwrap().plan, b"older");
}

#[test]
fn a_stored_plan_without_file_digests_is_read() {
    let mut context = stored(Vec::new()).context;
    context.files_omitted = true;
    context.omitted_files = vec![OmittedFile {
        path: "big".into(),
        sha256: "ab".into(),
    }];
    let mut value = serde_json::to_value(&context).unwrap();
    assert_eq!(
        value["omitted"],
        serde_json::json!([{ "path": "big", "sha256": "ab" }])
    );
    assert!(serde_json::from_value::<PlanContext>(value.clone()).unwrap() == context);
    value.as_object_mut().unwrap().remove("omitted");
    let before: PlanContext = serde_json::from_value(value).unwrap();
    assert!(before.files_omitted && before.omitted_files.is_empty());
}

#[test]
fn missing_or_modified_chunks_are_detected() {
    let mut secrets = encode(&stored(noise(2_500_000)), &name("net-2"), None).unwrap();
    let load = |secrets: &[Secret]| decode(secrets, &name("net-2"), &[]).err().unwrap();
    let incomplete = |found| StoreError::Broken {
        id: "plan-main-1-2".into(),
        source: ChunkError::Incomplete { found, expected: 3 },
    };
    assert_eq!(load(&secrets[..2]), incomplete(2));
    assert_eq!(load(&secrets[1..]), incomplete(2));
    assert_eq!(
        load(&[]),
        StoreError::NotFound {
            id: "plan-main-1-2".into()
        }
    );
    secrets[1].data.as_mut().unwrap().get_mut("tfplan").unwrap().0[17] ^= 1;
    assert_eq!(
        load(&secrets),
        StoreError::Broken {
            id: "plan-main-1-2".into(),
            source: ChunkError::Altered
        }
    );
}

#[test]
fn long_names_become_short_labels() {
    let long = "n".repeat(70);
    let label = short_label(&long);
    assert_eq!(label.len(), 63);
    assert!(label.starts_with(&"n".repeat(46)));
    assert_ne!(label, short_label(&"n".repeat(71)));
    assert_eq!(short_label("short"), "short");
}

fn key(id: &str, byte: u8) -> PlanKey {
    PlanKey {
        id: id.into(),
        key: hex::encode([byte; 32]),
    }
}

fn annotated<'s>(secret: &'s mut Secret, name: &str) -> &'s mut String {
    secret
        .metadata
        .annotations
        .as_mut()
        .unwrap()
        .get_mut(name)
        .unwrap()
}

#[test]
fn a_sealed_plan_is_opened_with_its_key_and_shows_nothing() {
    let large = stored([b"hunter2".to_vec(), noise(2_500_000)].concat());
    let sealed = encode(&large, &name("net-2"), Some(&key("2026-01", 1))).unwrap();
    assert_eq!(sealed.len(), 3);
    assert_eq!(annotation_of(&sealed[0].metadata, "encoding"), "gzip+aes-256-gcm");
    assert_eq!(
        annotation_of(&sealed[0].metadata, annotation::PLAN_HASH),
        "",
        "a hash tells which plan it is"
    );
    let keys = [key("2026-02", 2), key("2026-01", 1)];
    assert!(
        decode(&sealed, &name("net-2"), &keys).unwrap() == large,
        "after a rotation too"
    );
    let again = encode(&large, &name("net-2"), Some(&key("2026-01", 1))).unwrap();
    assert_ne!(sealed[0].data, again[0].data, "each has a key of its own");
    let small = encode(&stored(b"hunter2".to_vec()), &name("net-1"), Some(&key("a", 1))).unwrap();
    let bytes = &small[0].data.as_ref().unwrap()["sealed"].0;
    assert!(
        !bytes.windows(7).any(|window| window == b"hunter2") && small[0].data.as_ref().unwrap().len() == 1
    );
}

#[test]
fn a_missing_or_another_key_is_named() {
    let sealed = encode(&stored(b"plan".to_vec()), &name("net-1"), Some(&key("a", 1))).unwrap();
    let load = |keys: &[PlanKey]| decode(&sealed, &name("net-1"), keys).err().unwrap().to_string();
    assert!(load(&[]).contains(
        "sealed with the key \"a\", which the Secret of --plan-encryption-secret does not contain"
    ));
    assert!(load(&[key("b", 1)]).contains("does not contain"));
    assert!(load(&[key("a", 2)]).contains("cannot be decrypted with the key \"a\""));
}

/// Returns altered chunks with recomputed annotations, which any writer of Secrets can create.
fn forged(sealed: &[Secret], edit: &dyn Fn(&mut Vec<Secret>)) -> Vec<Secret> {
    let mut forged = sealed.to_vec();
    edit(&mut forged);
    let bytes: Vec<Vec<u8>> = forged
        .iter()
        .map(|secret| secret.data.as_ref().unwrap()["sealed"].0.clone())
        .collect();
    let parts: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
    let (digest, count) = (digest(&parts), forged.len().to_string());
    for secret in &mut forged {
        annotated(secret, DIGEST).clone_from(&digest);
        annotated(secret, CHUNKS).clone_from(&count);
    }
    forged
}

#[test]
fn a_sealed_chunk_opens_nowhere_else() {
    let keys = [key("a", 1)];
    let sealed = encode(&stored(noise(2_500_000)), &name("net-2"), Some(&keys[0])).unwrap();
    let opens = |forged: &[Secret], name: &PlanName| match decode(forged, name, &keys) {
        Ok(_) => true,
        Err(error) => {
            assert!(matches!(error, StoreError::NotOpened { .. }), "{error}");
            false
        }
    };
    assert!(opens(&forged(&sealed, &|_| ()), &name("net-2")));
    let fewer = forged(&sealed, &|all| drop(all.pop()));
    assert!(!opens(&fewer, &name("net-2")), "one fewer");
    let swapped = forged(&sealed, &|all| {
        let first = all[0].data.clone();
        all[0].data = all[1].data.clone();
        all[1].data = first;
    });
    assert!(!opens(&swapped, &name("net-2")), "in another order");
    let altered = forged(&sealed, &|all| {
        all[1].data.as_mut().unwrap().get_mut("sealed").unwrap().0[7] ^= 1;
    });
    assert!(!opens(&altered, &name("net-2")), "altered");
    let moved = forged(&sealed, &|all| {
        for secret in all {
            *annotated(secret, RUN) = "net-3".into();
            *annotated(secret, annotation::PLAN_ID) = "plan-main-1-3".into();
        }
    });
    let others = PlanName {
        id: "plan-main-1-3".into(),
        ..name("net-3")
    };
    assert!(!opens(&moved, &others), "as the plan of another run");
    let mut other = name("net-2");
    other.stack.uid = "u-2".into();
    assert!(!opens(&sealed, &other), "as the plan of another stack");
}

#[test]
fn forty_mebibytes_are_stored_and_one_byte_more_is_refused() {
    let largest = stored(noise(PLAN_LIMIT));
    let secrets = encode(&largest, &name("net-2"), Some(&key("a", 1))).unwrap();
    assert!(secrets.len() <= CHUNK_LIMIT, "{}", secrets.len());
    assert!(decode(&secrets, &name("net-2"), &[key("a", 1)]).unwrap() == largest);
    let refused = encode(&stored(vec![0; PLAN_LIMIT + 1]), &name("net-2"), None)
        .err()
        .unwrap();
    assert_eq!(refused, StoreError::TooLarge { size: PLAN_LIMIT + 1 });
    assert!(refused.to_string().contains("split the stack"));
}
