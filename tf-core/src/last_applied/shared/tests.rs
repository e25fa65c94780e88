use super::*;
use crate::last_applied::tests::bundle;

fn stack(name: &str) -> Stack {
    Stack {
        namespace: "team".into(),
        name: name.into(),
        uid: name.into(),
    }
}

fn key(id: &str, byte: &str) -> PlanKey {
    PlanKey {
        id: id.into(),
        key: byte.repeat(32),
    }
}

fn stored(files: &[u8], name: &str, key: Option<&PlanKey>) -> SharedFiles {
    encode(files, &stack(name), key).unwrap()
}

/// The inputs of a record with these files.
fn inputs(files: &SharedFiles) -> Inputs {
    Inputs {
        bundle: bundle(),
        provider_lock: None,
        files_omitted: false,
        shared_files: Some(files.digest.clone()),
        sealed_label: files.sealed_label.clone(),
    }
}

fn names(files: &SharedFiles) -> Vec<String> {
    files
        .chunks
        .iter()
        .filter_map(|s| s.metadata.name.clone())
        .collect()
}

#[test]
fn two_stacks_share_the_secrets_of_equal_files() {
    let files: Vec<u8> = (0..2 * chunk::CHUNK_SIZE + 5)
        .map(|n| n.to_le_bytes()[1])
        .collect();
    let (old, new) = (key("old", "01"), key("new", "02"));
    for key in [None, Some(&old)] {
        let [one, other] = ["net", "app"].map(|name| stored(&files, name, key));
        assert_eq!((names(&one), one.chunks.len()), (names(&other), 3));
        for (one, other) in one.chunks.iter().zip(&other.chunks) {
            assert_eq!(
                (&one.data, &one.metadata.annotations),
                (&other.data, &other.metadata.annotations)
            );
        }
        let label = inputs(&one).files_label().unwrap().to_owned();
        assert!(
            names(&one)
                .iter()
                .all(|name| name.starts_with(&format!("tffiles-{label}-")))
        );
        let mut found = one.chunks.clone();
        found.push(one.owner.clone());
        found.reverse();
        let keys = [new.clone(), old.clone()];
        assert_eq!(
            decode(&found, &inputs(&one), &stack("app"), &keys),
            Ok(files.clone())
        );
        assert_ne!(names(&stored(b"other", "net", key)), names(&one));
    }
}

#[test]
fn names_of_sealed_files_depend_on_the_key_and_reveal_nothing() {
    let files = b"resource";
    let plain = stored(files, "net", None);
    let mut all: Vec<_> = [key("a", "01"), key("a", "02"), key("b", "01")]
        .iter()
        .map(|key| stored(files, "net", Some(key)))
        .collect();
    for sealed in &all {
        let text = format!("{:?}", sealed.chunks);
        assert!(!text.contains(&plain.digest[..8]), "{text}");
        let bytes = &sealed.chunks[0].data.as_ref().unwrap()["sealed"].0;
        assert!(!bytes.windows(files.len()).any(|part| part == files));
    }
    all.push(plain);
    let names: std::collections::BTreeSet<_> = all.iter().map(names).collect();
    assert_eq!(names.len(), all.len());
}

#[test]
fn modified_stored_files_are_rejected() {
    let files = vec![7; chunk::CHUNK_SIZE + 1];
    let one = stored(&files, "net", None);
    let read = |secrets: &[Secret]| decode(secrets, &inputs(&one), &stack("net"), &[]);
    let incomplete = |found, expected| Err(ChunkError::Incomplete { found, expected }.into());
    assert_eq!(read(&one.chunks[..1]), incomplete(1, 2));
    assert_eq!(read(&[]), incomplete(0, 1));
    let forged = stored(b"forged", "net", None).chunks;
    let mixed = [one.chunks[0].clone(), forged[0].clone()];
    assert!(read(&mixed).is_err());
    assert_eq!(read(&forged), Err(ChunkError::Altered.into()));
}

#[test]
fn sealed_files_open_with_their_key_in_their_namespace_only() {
    let (files, own) = (vec![7; chunk::CHUNK_SIZE + 1], key("a", "01"));
    let one = stored(&files, "net", Some(&own));
    let read = |secrets: &[Secret], key: &PlanKey, of: &Stack| {
        decode(secrets, &inputs(&one), of, std::slice::from_ref(key))
    };
    assert_eq!(read(&one.chunks, &own, &stack("app")), Ok(files));
    let missing = SealError::KeyMissing { key: "a".into() };
    assert_eq!(
        read(&one.chunks, &key("b", "01"), &stack("net")),
        Err(missing.into())
    );
    let elsewhere = Stack {
        namespace: "other".into(),
        ..stack("net")
    };
    let refused = [
        read(&one.chunks, &key("a", "02"), &stack("net")),
        read(&one.chunks, &own, &elsewhere),
        read(&stored(b"forged", "net", None).chunks, &own, &stack("net")),
        read(&stored(b"forged", "net", Some(&own)).chunks, &own, &stack("net")),
    ];
    assert!(refused.iter().all(Result::is_err), "{refused:?}");
}
