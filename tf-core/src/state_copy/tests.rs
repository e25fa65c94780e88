//! Tests of the format and of the retention.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

fn stack(uid: &str) -> Stack {
    Stack {
        namespace: "team".into(),
        name: "net".into(),
        uid: uid.into(),
    }
}

fn key(byte: &str) -> PlanKey {
    PlanKey {
        id: format!("key-{byte}"),
        key: byte.repeat(32),
    }
}

fn state(serial: u64) -> (Vec<u8>, StateSummary) {
    let text = format!(
        "{{\"serial\":{serial},\"lineage\":\"l\",\"resources\":[{{\"mode\":\"managed\",\"instances\":[{{}}]}}]}}"
    );
    let summary = StateSummary::parse(text.as_bytes()).unwrap().unwrap();
    (text.into_bytes(), summary)
}

fn copy_of(state: &(Vec<u8>, StateSummary), run: &str, key: Option<&PlanKey>) -> Vec<Secret> {
    let stack = stack("u");
    let origin = CopyOrigin {
        stack: &stack,
        workspace: "default",
        run,
        revision: "main@sha1:1",
        time: "2026-01-01T00:00:00Z",
    };
    encode(&state.0, &state.1, origin, key, 1024 * 1024).unwrap()
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        u8::try_from(state >> 24).unwrap()
    };
    (0..length).map(next).collect()
}

#[test]
fn a_copy_says_what_it_is_a_copy_of_and_has_no_owner() {
    let secrets = copy_of(&state(7), "net-u-3", None);
    let [secret] = secrets.as_slice() else {
        panic!("{}", secrets.len())
    };
    let metadata = &secret.metadata;
    assert_eq!(
        metadata.owner_references, None,
        "it outlives the Terraform object"
    );
    assert_eq!(secret.immutable, Some(true));
    let id = id_of(metadata);
    assert_eq!(
        metadata.name.as_deref(),
        Some(format!("tfcopy-default-net-{id}-00").as_str())
    );
    assert_eq!(label_of(metadata, SERIAL), "7");
    for (annotation, value) in [
        (LINEAGE, "l"),
        (RESOURCES, "1"),
        (RUN, "net-u-3"),
        (REVISION, "main@sha1:1"),
        (TIME, "2026-01-01T00:00:00Z"),
    ] {
        assert_eq!(annotation_of(metadata, annotation), value);
    }
    let opened = decode(&secrets, &stack("u"), "default", &[]).unwrap();
    assert_eq!((opened.state, opened.is_sealed), (state(7).0, false));
}

#[test]
fn the_same_state_has_the_same_names_and_data() {
    for key in [None, Some(&key("ab"))] {
        let (one, other) = (
            copy_of(&state(7), "net-u-3", key),
            copy_of(&state(7), "net-u-4", key),
        );
        assert_eq!(one[0].metadata.name, other[0].metadata.name);
        assert_eq!(one[0].data, other[0].data);
        let changed = copy_of(&state(8), "net-u-4", key);
        assert_ne!(one[0].metadata.name, changed[0].metadata.name);
    }
}

#[test]
fn a_sealed_copy_is_opened_by_a_later_object_of_the_same_name_only() {
    let sealed = copy_of(&state(7), "net-u-3", Some(&key("ab")));
    let data = sealed[0].data.as_ref().unwrap();
    assert!(
        data.values()
            .all(|bytes| !bytes.0.windows(7).any(|part| part == b"lineage"))
    );
    let open = |name: &str, workspace: &str, keys: &[PlanKey]| {
        let stack = Stack {
            name: name.into(),
            ..stack("another uid")
        };
        decode(&sealed, &stack, workspace, keys)
    };
    let keys = [key("cd"), key("ab")];
    let opened = open("net", "default", &keys).unwrap();
    assert_eq!((opened.state, opened.is_sealed), (state(7).0, true));
    for (name, workspace, keys) in [
        ("other", "default", &keys[..]),
        ("net", "blue", &keys),
        ("net", "default", &keys[..1]),
        ("net", "default", &[]),
    ] {
        let error = open(name, workspace, keys).unwrap_err();
        assert!(matches!(error, StateCopyError::Sealed { .. }), "{error}");
    }
}

#[test]
fn a_large_state_has_several_secrets_that_sort_by_their_index() {
    let large = (noise(11 * chunk::CHUNK_SIZE), StateSummary::default());
    let stack = stack("u");
    let origin = CopyOrigin {
        stack: &stack,
        workspace: "default",
        run: "net-u-1",
        revision: "",
        time: "",
    };
    let limit = 12 * chunk::CHUNK_SIZE as u64;
    let secrets = encode(&large.0, &large.1, origin, None, limit).unwrap();
    assert_eq!(secrets.len(), 12);
    let names: Vec<_> = secrets
        .iter()
        .map(|secret| secret.metadata.name.clone())
        .collect();
    assert!(names.is_sorted(), "{names:?}");
    assert_eq!(decode(&secrets, &stack, "default", &[]).unwrap().state, large.0);
    let broken = decode(&secrets[1..], &stack, "default", &[]).unwrap_err();
    assert!(matches!(broken, StateCopyError::Broken { .. }), "{broken}");
    let mut altered = secrets;
    altered[3].data.as_mut().unwrap().get_mut(DATA_KEY).unwrap().0[7] ^= 1;
    assert!(decode(&altered, &stack, "default", &[]).is_err());
    let refused = encode(&large.0, &large.1, origin, None, 1000).unwrap_err();
    assert!(
        refused.to_string().contains("more than --state-copy-limit=1000"),
        "{refused}"
    );
    // The documented command joins the base64 texts of the chunks: only the last may have padding.
    assert_eq!(chunk::CHUNK_SIZE % 3, 0);
}

/// The metadata of a copy of the state with this serial, as the API stores it.
fn stored(serial: u64, second: u32, run: &str) -> ObjectMeta {
    let mut metadata = copy_of(&state(serial), run, None).remove(0).metadata;
    let created = format!("2026-01-01T00:00:{second:02}Z");
    metadata.creation_timestamp = Some(Time(created.parse().unwrap()));
    annotate(&mut metadata, TIME, &created);
    metadata
}

fn annotate(metadata: &mut ObjectMeta, name: &str, value: &str) {
    let annotations = metadata.annotations.as_mut().unwrap();
    annotations.insert(name.to_owned(), value.to_owned());
}

#[test]
fn the_newest_copies_remain() {
    let all = [
        stored(1, 1, "net-u-1"),
        stored(4, 2, "net-u-10"),
        stored(2, 2, "net-u-2"),
        stored(3, 2, "net-u-9"),
    ];
    let copies = stored_copies(&all);
    let serials =
        |copies: &[&StoredCopy]| -> Vec<String> { copies.iter().map(|copy| copy.serial.clone()).collect() };
    assert_eq!(serials(&copies.iter().collect::<Vec<_>>()), ["4", "3", "2", "1"]);
    let id = |serial: &str| {
        copies
            .iter()
            .find(|copy| copy.serial == serial)
            .unwrap()
            .id
            .clone()
    };
    assert_eq!(serials(&outdated(&copies, &id("4"), 3)), ["1"]);
    assert_eq!(serials(&outdated(&copies, &id("4"), 1)), ["3", "2", "1"]);
    assert_eq!(
        serials(&outdated(&copies, &id("1"), 3)),
        ["2"],
        "the newest state was copied long ago"
    );
    assert_eq!(outdated(&copies, &id("4"), 4), Vec::<&StoredCopy>::new());
}

#[test]
fn an_incomplete_copy_is_deleted_and_does_not_count() {
    let mut half = stored(9, 9, "net-u-9");
    annotate(&mut half, COUNT, "2");
    let all = [stored(1, 1, "net-u-1"), stored(2, 2, "net-u-2"), half];
    let copies = stored_copies(&all);
    assert!(!copies[0].is_complete() && copies[1].is_complete());
    let gone = outdated(&copies, &copies[1].id, 2);
    assert_eq!(gone.len(), 1);
    assert_eq!(gone[0].serial, "9");
}

#[test]
fn a_copy_that_is_needed_again_is_the_newest() {
    let mut again = stored(1, 1, "net-u-1");
    // What the later run would have stored, if the copy did not exist.
    let later = stored(1, 9, "net-u-9");
    let origin = origin_annotations(&later);
    assert_eq!(
        origin,
        BTreeMap::from([
            (RUN, "net-u-9".to_owned()),
            (REVISION, "main@sha1:1".to_owned()),
            (TIME, "2026-01-01T00:00:09Z".to_owned()),
        ])
    );
    for (name, value) in &origin {
        annotate(&mut again, name, value);
    }
    let all = [again, stored(2, 2, "net-u-2"), stored(3, 3, "net-u-3")];
    let copies = stored_copies(&all);
    let serials: Vec<_> = copies.iter().map(|copy| copy.serial.as_str()).collect();
    assert_eq!(serials, ["1", "3", "2"]);
    // Another state is copied next: the oldest is the one that was needed first.
    let gone = outdated(&copies, "another", 3);
    assert_eq!(gone.len(), 1);
    assert_eq!(gone[0].serial, "2");
}

#[test]
fn a_copy_without_a_time_counts_from_its_creation() {
    let mut unknown = stored(2, 2, "net-u-2");
    annotate(&mut unknown, TIME, "yesterday");
    let all = [stored(1, 1, "net-u-1"), unknown, stored(3, 3, "net-u-3")];
    let copies = stored_copies(&all);
    let serials: Vec<_> = copies.iter().map(|copy| copy.serial.as_str()).collect();
    assert_eq!(serials, ["3", "2", "1"]);
}

#[test]
fn the_copy_of_a_node_with_a_slow_clock_is_not_outdated() {
    let mut slow = stored(3, 3, "net-u-3");
    annotate(&mut slow, TIME, "2025-12-31T23:00:00Z");
    let all = [stored(1, 1, "net-u-1"), stored(2, 2, "net-u-2"), slow];
    let copies = stored_copies(&all);
    let serials: Vec<_> = copies.iter().map(|copy| copy.serial.as_str()).collect();
    assert_eq!(serials, ["3", "2", "1"]);
}
