use super::*;
use crate::bundle::{Artifact, Options, ReadablePlan, VERSION};

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
    let bundle = Bundle {
        version: VERSION,
        stack: stack(),
        artifact: Artifact {
            url: String::new(),
            digest: String::new(),
            size: None,
            revision: String::new(),
        },
        path: String::new(),
        workspace: "default".into(),
        tool: None,
        backend: None,
        variables: "{}".into(),
        variable_files: vec![],
        environment: BTreeMap::new(),
        options: Options::default(),
        outputs: None,
        readable_plan: ReadablePlan::None,
        inputs_digest: "sha256:1".into(),
        surroundings: crate::bundle::Surroundings::default(),
        grace_seconds: None,
        last_apply: None,
        key: "ab".repeat(32),
    };
    let files = vec![MadeFile::new("out/x.zip".into(), 0o644, b"zip")];
    let context = PlanContext {
        bundle,
        provider_lock: Some("lock".into()),
        files,
        files_omitted: false,
        modules: String::new(),
        effect: "2".into(),
        tool: "terraform".into(),
        tool_version: "1.11.4".into(),
        destroy: false,
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
    let secrets = encode(&stored(b"plan".to_vec()), &name("net-1")).unwrap();
    assert_eq!(secrets.len(), 1);
    let secret = &secrets[0];
    let full = secret.metadata.name.as_deref().unwrap();
    assert!(
        full.starts_with("tfplan-default-net-") && full.ends_with("-0"),
        "{full}"
    );
    assert_eq!(full.len(), "tfplan-default-net-".len() + 10 + 2);
    assert_eq!(secret.immutable, Some(true));
    assert_eq!(held(secret, "savedPlan"), "plan-main-1-2");
    assert_eq!(held(secret, "encoding"), "gzip");
    assert_eq!(held(secret, "infra.contrib.fluxcd.io/plan-chunk"), "0");
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
    let mut secrets = encode(&large, &name("net-2")).unwrap();
    assert_eq!(secrets.len(), 3);
    secrets.reverse();
    secrets.extend(encode(&stored(b"older".to_vec()), &name("net-1")).unwrap());
    assert!(decode(&secrets, "plan-main-1-2", "net-2").unwrap() == large);
    assert_eq!(decode(&secrets, "plan-main-1-2", "net-1").unwrap().plan, b"older");
}

#[test]
fn what_is_missing_or_altered_is_noticed() {
    let mut secrets = encode(&stored(noise(2_500_000)), &name("net-2")).unwrap();
    let load = |secrets: &[Secret]| decode(secrets, "plan-main-1-2", "net-2").err().unwrap();
    let incomplete = |found| StoreError::Broken {
        id: "plan-main-1-2".into(),
        source: ChunkError::Incomplete { found, wanted: 3 },
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
