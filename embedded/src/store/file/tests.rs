//! Disk errors, damage, permissions and formats.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::Ordering;

use serde_json::json;

use super::fault_injection::faulty_file;
use super::*;
use crate::store::{Origin, Write, inspect};

fn record(name: &str, revision: u64) -> Record {
    Record {
        key: Key::new("secrets", "default", name),
        kind: ChangeType::Put,
        object: Arc::new(json!({"metadata": {"name": name}})),
        revision,
        origin: Origin::default(),
    }
}

fn names(path: &Path) -> Vec<String> {
    let objects = inspect(path).unwrap().objects;
    objects
        .iter()
        .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Retries at once, without the reopen interval.
fn recover_now(file: &mut File) -> Result<Vec<Record>, StoreError> {
    file.reopen()
}

#[test]
fn a_full_disk_is_survived_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("objects.redb");
    let (mut file, _, faults) = faulty_file(&path);
    file.persist(&[record("a", 2)]).unwrap();
    assert_eq!(file.health(), StorageHealth::Writable);
    faults.write.store(true, Ordering::SeqCst);
    file.persist(&[record("b", 3)]).unwrap_err();
    assert!(matches!(file.health(), StorageHealth::Failing(_)));
    assert!(!file.reserve.is_allocated(), "the reserve is used");
    assert!(file.recover().is_err(), "not retried at once");
    faults.write.store(false, Ordering::SeqCst);
    assert!(
        recover_now(&mut file).unwrap().is_empty(),
        "the failed commit is not stored"
    );
    assert_eq!(file.health(), StorageHealth::OnReserve);
    file.persist(&[record("c", 3)]).unwrap();
    file.restore_reserve();
    assert_eq!(file.health(), StorageHealth::Writable);
    drop(file);
    assert_eq!(names(&path), ["a", "c"]);
}

#[test]
fn a_resumable_version_that_is_stored_needs_no_space() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _, faults) = faulty_file(&dir.path().join("objects.redb"));
    for version in [None, Some(7)] {
        file.set_resumable_from(version).unwrap();
        faults.write.store(true, Ordering::SeqCst);
        file.set_resumable_from(version).unwrap();
        faults.write.store(false, Ordering::SeqCst);
        assert_eq!(file.resumable_from().unwrap(), version);
    }
}

#[test]
fn the_content_of_the_file_decides_after_a_failed_sync() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("objects.redb");
    let (mut file, _, faults) = faulty_file(&path);
    faults.sync.store(true, Ordering::SeqCst);
    let outcome = file.persist(&[record("a", 2)]);
    faults.sync.store(false, Ordering::SeqCst);
    let supported = outcome.is_ok() || !recover_now(&mut file).unwrap().is_empty();
    file.persist(&[record("b", if supported { 3 } else { 2 })])
        .unwrap();
    drop(file);
    let expected: &[&str] = if supported { &["a", "b"] } else { &["b"] };
    assert_eq!(names(&path), expected);
}

#[test]
fn a_crash_between_any_two_writes_leaves_only_complete_commits() {
    let dir = tempfile::tempdir().unwrap();
    let (path, images) = (dir.path().join("objects.redb"), dir.path().join("images"));
    let (mut file, _, faults) = faulty_file(&path);
    file.persist(&[record("a", 2)]).unwrap();
    fs::create_dir(&images).unwrap();
    *faults.images.lock().unwrap() = Some(images.clone());
    file.persist(&[record("b", 3), record("c", 4), record("d", 5)])
        .unwrap();
    *faults.images.lock().unwrap() = None;
    let mut contents = BTreeMap::new();
    for image in fs::read_dir(&images).unwrap() {
        let image = image.unwrap().path();
        let (file, state) = File::open(&image).unwrap();
        let found = state.list("secrets", "default");
        assert_eq!(state.revision(), 1 + found.len() as u64, "{}", image.display());
        drop(file);
        *contents.entry(names(&image).join("")).or_insert(0) += 1;
        fs::remove_file(disk::with_extension(&image, "reserve")).unwrap();
    }
    let contents: Vec<_> = contents.keys().map(String::as_str).collect();
    assert_eq!(contents, ["a", "abcd"], "none or all of the commit");
}

#[test]
fn a_store_file_is_always_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("objects.redb");
    drop(File::open(&path).unwrap());
    let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    drop(File::open(&path).unwrap());
    assert_eq!(mode(), 0o600);
}

#[test]
fn an_empty_file_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("objects.redb");
    fs::write(&path, "").unwrap();
    assert!(matches!(File::open(&path), Err(StoreError::Empty { .. })));
    assert!(matches!(inspect(&path), Err(StoreError::Empty { .. })));
}

#[test]
fn a_newer_format_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("objects.redb");
    create(&path).unwrap();
    let database = open(&path, true).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction
        .open_table(NUMBERS)
        .unwrap()
        .insert(FORMAT, CURRENT_FORMAT + 1)
        .unwrap();
    transaction.commit().unwrap();
    drop(database);
    assert!(matches!(
        File::open(&path),
        Err(StoreError::Newer {
            format: 2,
            supported: 1,
            ..
        })
    ));
    assert!(matches!(inspect(&path), Err(StoreError::Newer { .. })));
}

/// Creates a closed store with three large objects.
fn create_filled(path: &Path) {
    let (mut file, _) = File::open(path).unwrap();
    for (name, revision) in [("a", 2), ("b", 3), ("c", 4)] {
        let mut record = record(name, revision);
        record.object = Arc::new(json!({"metadata": {"name": name}, "data": {"x": name.repeat(20_000)}}));
        file.persist(&[record]).unwrap();
    }
}

#[test]
fn a_changed_byte_is_never_accepted_silently() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("objects.redb"), dir.path().join("copy.redb"));
    create_filled(&path);
    let bytes = fs::read(&path).unwrap();
    let whole = format!("{:?}", inspect(&path).unwrap().objects);
    let mut found = 0;
    // Non-zero bytes of all pages; the prime step reaches all parts of a page.
    let used = (0..bytes.len()).step_by(1361).filter(|at| bytes[*at] != 0);
    for at in used.chain(0..320) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x5a;
        fs::write(&copy, &changed).unwrap();
        match File::open(&copy) {
            Ok((_, state)) => {
                let objects: Vec<_> = state
                    .list("secrets", "default")
                    .iter()
                    .map(|o| Value::clone(o))
                    .collect();
                assert_eq!(format!("{objects:?}"), whole, "byte {at}");
            }
            Err(error) => {
                found += 1;
                assert!(error.to_string().contains("copy.redb"), "{error}");
            }
        }
        drop(fs::remove_file(disk::with_extension(&copy, "reserve")));
    }
    assert!(found > 20, "{found} changes were found");
}

#[test]
fn a_damaged_store_can_be_inspected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("objects.redb");
    create_filled(&path);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(64).position(|window| window == [b'b'; 64]).unwrap();
    bytes[at] = b'?';
    fs::write(&path, &bytes).unwrap();
    let error = File::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    let inspection = inspect(&path).unwrap();
    assert!(inspection.damage.is_some());
    assert_eq!(inspection.objects.len(), 3);
    assert_eq!(fs::read(&path).unwrap(), bytes, "the file is unchanged");
}

#[test]
fn a_bad_record_is_reported_and_can_be_discarded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("objects.redb");
    create_filled(&path);
    let database = open(&path, true).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction
        .open_table(OBJECTS)
        .unwrap()
        .insert("secrets/default/bad", b"{".as_slice())
        .unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = File::open(&path).unwrap_err();
    assert!(
        matches!(&error, StoreError::Corrupt { key, .. } if key == "secrets/default/bad"),
        "{error}"
    );
    assert_eq!(inspect(&path).unwrap().bad_records[0].key, "secrets/default/bad");
    assert!(
        !crate::store::discard(&path, "secrets/default/a").unwrap(),
        "a valid object remains"
    );
    assert!(crate::store::discard(&path, "secrets/default/bad").unwrap());
    assert_eq!(names(&path), ["a", "b", "c"]);
    File::open(&path).unwrap();
}

#[test]
fn the_reserve_accepts_only_essential_new_objects() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("objects.redb");
    let store = crate::store::Store::file(&path).unwrap();
    let put = |resource: &str| {
        store.write_now(&Key::new(resource, "default", "x"), |_| {
            Ok(Write::Put(json!({"metadata": {"name": "x"}})))
        })
    };
    put("configmaps").unwrap();
    if let Some(file) = store.backend.lock().unwrap().as_file() {
        file.reserve.release();
        store.update_health(file);
    }
    assert_eq!(*store.health().borrow(), StorageHealth::OnReserve);
    put("secrets").unwrap();
    put("configmaps").unwrap();
    let error = put("events").unwrap_err();
    assert!(error.message().contains("full"), "{}", error.message());
    store.maintain();
    assert_eq!(*store.health().borrow(), StorageHealth::Writable);
    put("events").unwrap();
}
