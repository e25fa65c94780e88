use std::io::Read as _;

use proptest::prelude::*;

use super::*;
use crate::bundle::{Artifact, Options, ReadablePlan, VERSION};

pub(super) fn bundle() -> Bundle {
    serde_json::from_value(serde_json::json!({ "version": VERSION,
        "stack": { "namespace": "team", "name": "net", "uid": "u-1" },
        "artifact": Artifact { url: "http://source/x.tar.gz".into(), digest: "sha256:00".into(), size: None, revision: "main@sha1:1".into() },
        "path": "infra", "workspace": "default", "variables": "{}", "options": Options::default(),
        "readablePlan": ReadablePlan::None, "inputsDigest": "sha256:1", "key": "ab".repeat(32) }))
    .unwrap()
}

fn stack() -> Stack {
    bundle().stack
}

fn applied(files: Option<Vec<u8>>) -> LastApplied {
    LastApplied {
        inputs: Inputs {
            bundle: bundle(),
            provider_lock: Some("lock".into()),
            files_omitted: files.is_none(),
            shared_files: None,
            sealed_label: None,
        },
        files,
    }
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33).to_le_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut tar = tar::Builder::new(gzip);
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o755);
        header.set_mtime(77);
        header.set_entry_type(tar::EntryType::Regular);
        tar.append_data(&mut header, name, *bytes).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

fn listed(bytes: &[u8]) -> Vec<(String, String)> {
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(bytes));
    tar.entries()
        .unwrap()
        .map(|entry| {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (entry.path().unwrap().display().to_string(), text)
        })
        .collect()
}

#[test]
fn records_are_decoded_from_secrets_in_any_order() {
    let small = applied(Some(b"files".to_vec()));
    let large = applied(Some(noise(2 * chunk::CHUNK_SIZE)));
    let mut all = encode(&small, "net-abcd-9", None).unwrap();
    all.extend(encode(&large, "net-abcd-10", None).unwrap());
    all.push(Secret::default());
    all.reverse();
    assert!(all.len() > 3 && all.iter().take(2).all(|secret| secret.immutable != Some(false)));
    assert!(decode(&all, &stack(), "net-abcd-9", &[]).unwrap() == small);
    assert!(decode(&all, &stack(), "net-abcd-10", &[]).unwrap() == large);
    assert_eq!(
        runs(&all, "u-1"),
        ["net-abcd-10", "net-abcd-9"],
        "newest first, by number"
    );
    assert!(runs(&all, "u-2").is_empty(), "a namesake's are not taken");
    let names: BTreeSet<_> = all
        .iter()
        .filter_map(|secret| secret.metadata.name.clone())
        .collect();
    assert_eq!(names.len() + 1, all.len(), "each has a name of its own");
    let again = encode(&small, "net-abcd-11", None).unwrap();
    assert!(
        !names.contains(again[0].metadata.name.as_ref().unwrap()),
        "another run, other Secrets"
    );
}

#[test]
fn incomplete_records_are_rejected() {
    let secrets = encode(&applied(Some(noise(2 * chunk::CHUNK_SIZE))), "net-abcd-1", None).unwrap();
    let error = |secrets: &[Secret]| decode(secrets, &stack(), "net-abcd-1", &[]).err().unwrap();
    let broken = |source| LastAppliedError::Broken {
        run: "net-abcd-1".into(),
        source,
    };
    assert_eq!(
        error(&secrets[1..]),
        broken(ChunkError::Incomplete {
            found: secrets.len() - 1,
            expected: secrets.len()
        })
    );
    let mut altered = secrets.clone();
    let data = altered[1].data.as_mut().unwrap().values_mut().next().unwrap();
    data.0[0] ^= 1;
    assert_eq!(error(&altered), broken(ChunkError::Altered));
    assert_eq!(
        error(&[]),
        LastAppliedError::NotFound {
            run: "net-abcd-1".into()
        }
    );
}

fn key(id: &str, byte: u8) -> PlanKey {
    PlanKey {
        id: id.into(),
        key: hex::encode([byte; 32]),
    }
}

#[test]
fn sealed_records_are_opaque_and_readable_after_key_rotation() {
    let large = applied(Some([b"hunter2".to_vec(), noise(2 * chunk::CHUNK_SIZE)].concat()));
    let (old, new) = (key("2026-01", 1), key("2026-02", 2));
    let mut all = encode(&large, "net-abcd-1", Some(&old)).unwrap();
    // Records without a seal remain readable.
    all.extend(encode(&applied(Some(b"files".to_vec())), "net-abcd-2", None).unwrap());
    let keys = [new, old];
    assert!(decode(&all, &stack(), "net-abcd-1", &keys).unwrap() == large);
    assert!(decode(&all, &stack(), "net-abcd-2", &keys).is_ok());
    let sealed = &all[0];
    assert_eq!(annotation_of(&sealed.metadata, SEALED_WITH), "2026-01");
    let data = sealed.data.as_ref().unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["sealed"]);
    assert!(!data["sealed"].0.windows(7).any(|window| window == b"hunter2"));
}

#[test]
fn a_missing_key_is_named_and_sealed_data_is_bound_to_its_stack() {
    let mut sealed = encode(
        &applied(Some(noise(2 * chunk::CHUNK_SIZE))),
        "net-abcd-1",
        Some(&key("a", 1)),
    )
    .unwrap();
    let error = |secrets: &[Secret], stack: &Stack, run: &str, key: PlanKey| {
        decode(secrets, stack, run, &[key]).err().unwrap().to_string()
    };
    let missing = error(&sealed, &stack(), "net-abcd-1", key("b", 1));
    assert!(
        missing.contains("run net-abcd-1 is sealed with the key \"a\""),
        "{missing}"
    );
    let another = error(&sealed, &stack(), "net-abcd-1", key("a", 2));
    assert!(
        another.contains("cannot be decrypted with the key \"a\""),
        "{another}"
    );
    let mut namesake = stack();
    namesake.uid = "u-2".into();
    let stolen = error(&sealed, &namesake, "net-abcd-1", key("a", 1));
    assert!(stolen.contains("cannot be decrypted"), "{stolen}");
    for secret in &mut sealed {
        let annotations = secret.metadata.annotations.as_mut().unwrap();
        annotations.insert(RUN.to_owned(), "net-abcd-2".to_owned());
    }
    let moved = error(&sealed, &stack(), "net-abcd-2", key("a", 1));
    assert!(moved.contains("cannot be decrypted"), "{moved}");
}

#[test]
fn secret_names_are_valid_for_any_workspace() {
    let mut applied = applied(None);
    for (workspace, stack) in [("Blue_1", "net".to_owned()), ("default", "n".repeat(253))] {
        workspace.clone_into(&mut applied.inputs.bundle.workspace);
        applied.inputs.bundle.stack.name = stack;
        let secrets = encode(&applied, "net-abcd-1", None).unwrap();
        let name = secrets[0].metadata.name.as_deref().unwrap();
        let allowed = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '-' | '.');
        assert!(name.len() <= 253 && name.chars().all(allowed), "{name}");
    }
}

#[test]
fn omitted_files_differ_from_no_files() {
    let secrets = encode(&applied(None), "net-abcd-1", None).unwrap();
    assert_eq!(decode(&secrets, &stack(), "net-abcd-1", &[]).unwrap().files, None);
    let empty = encode(&applied(Some(Vec::new())), "net-abcd-1", None).unwrap();
    assert_eq!(
        decode(&empty, &stack(), "net-abcd-1", &[]).unwrap().files,
        Some(Vec::new())
    );
    let limit = usize::try_from(FILES_LIMIT).unwrap();
    assert!(
        encode(&applied(Some(noise(limit))), "net-abcd-1", None).is_ok(),
        "the limit itself fits"
    );
}

#[test]
fn only_inputs_are_stored_and_the_archive_is_reproducible() {
    let all: [(&str, &[u8]); 4] = [
        ("net/main.tf", b"1"),
        ("network/main.tf", b"2"),
        ("mod/a/x.tf", b"3"),
        ("vars/a.tfvars", b"4"),
    ];
    let reads = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
    let select = |paths: &[&str]| {
        files::select(&archive(&all)[..], &reads(paths), FILES_LIMIT)
            .unwrap()
            .unwrap()
    };
    let names = |bytes: &[u8]| {
        listed(bytes)
            .into_iter()
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(&select(&["net", "./mod", "vars/a.tfvars"])),
        ["net/main.tf", "mod/a/x.tf", "vars/a.tfvars"]
    );
    assert_eq!(names(&select(&[])).len(), 4);
    assert_eq!(names(&select(&[""])).len(), 4, "the root is all of it");
    assert_eq!(
        listed(&select(&["mod"])),
        [("mod/a/x.tf".to_owned(), "3".to_owned())]
    );
    let mut moved = all;
    moved[1].1 = b"changed";
    let other = files::select(&archive(&moved)[..], &reads(&["net"]), FILES_LIMIT)
        .unwrap()
        .unwrap();
    assert_eq!(other, select(&["net"]));
}

#[test]
fn files_above_the_limit_are_omitted_and_a_broken_archive_is_an_error() {
    let large = noise(100_000);
    let bytes = archive(&[("main.tf", &large)]);
    assert_eq!(files::select(&bytes[..], &[], 50_000).unwrap(), None);
    assert!(files::select(&bytes[..], &[], 200_000).unwrap().is_some());
    assert!(files::select(&bytes[..5000], &[], 200_000).is_err());
}

proptest! {
    #[test]
    fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..300), position in 0_usize..3) {
        prop_assert!(files::select(&bytes[..], &[], 1000).is_err());
        let mut secrets = encode(&applied(Some(b"files".to_vec())), "net-abcd-1", None).unwrap();
        let keys = ["inputs", "files", "other"];
        secrets[0].data.as_mut().unwrap().insert(keys[position].into(), k8s_openapi::ByteString(bytes));
        prop_assert!(position == 2 || decode(&secrets, &stack(), "net-abcd-1", &[]).is_err());
    }
}
