//! A cache that several runners use.

use super::*;

const LARGE: u64 = 1 << 20;

/// A provider whose package holds this text, and the package.
fn provider(dir: &Path, name: &str, text: &str) -> (LockedProvider, PathBuf) {
    let from = dir.join(name);
    fs::create_dir_all(&from).unwrap();
    fs::write(from.join("terraform-provider-x"), text).unwrap();
    let provider = LockedProvider {
        source: format!("sluice.test/sluice/{name}"),
        version: "1.0.0".to_owned(),
        hashes: vec!["h1:other".to_owned(), package::digest(&from).unwrap()],
    };
    (provider, from)
}

fn entries(root: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(root).unwrap().map(Result::unwrap);
    let packages = all.filter(|entry| entry.file_name() != verified::DIRECTORY);
    packages.map(|entry| entry.path()).collect()
}

#[test]
fn a_package_is_found_by_its_digest_only() {
    let dir = tempfile::tempdir().unwrap();
    let cache = ProviderCache::new(dir.path().join("cache"), LARGE);
    let (a, from) = provider(dir.path(), "a", "program");
    let to = dir.path().join("run/a");
    assert!(cache.copy_to(&a, &to).unwrap().is_none());
    cache.store(&a, &from).unwrap();
    cache.store(&a, &from).unwrap();
    assert_eq!(entries(&cache.root).len(), 1);
    assert!(cache.contains(&a) && cache.copy_to(&a, &to).unwrap().is_some());
    assert_eq!(fs::read(to.join("terraform-provider-x")).unwrap(), b"program");
    for other in [
        LockedProvider {
            hashes: vec!["h1:other".into()],
            ..a.clone()
        },
        LockedProvider {
            version: "1.0.1".into(),
            ..a.clone()
        },
        LockedProvider {
            source: "sluice.test/evil/a".into(),
            ..a
        },
    ] {
        assert!(
            !cache.contains(&other)
                && cache
                    .copy_to(&other, &dir.path().join("other"))
                    .unwrap()
                    .is_none()
        );
    }
}

#[test]
fn a_modified_package_is_rejected_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let cache = ProviderCache::new(dir.path().join("cache"), LARGE);
    let (a, from) = provider(dir.path(), "a", "program");
    let to = dir.path().join("run");
    let poisons: [fn(&Path); 3] = [
        |entry| fs::write(entry.join("terraform-provider-x"), "other").unwrap(),
        |entry| fs::write(entry.join("more"), "").unwrap(),
        |entry| std::os::unix::fs::symlink("/bin/sh", entry.join("link")).unwrap(),
    ];
    for poison in poisons {
        cache.store(&a, &from).unwrap();
        poison(&entries(&cache.root)[0]);
        assert!(cache.copy_to(&a, &to).unwrap().is_none() && !to.exists());
        assert_eq!(entries(&cache.root), Vec::<PathBuf>::new());
    }
    // It is not stored either.
    fs::write(from.join("terraform-provider-x"), "other").unwrap();
    cache.store(&a, &from).unwrap();
    assert_eq!(entries(&cache.root), Vec::<PathBuf>::new());
}

#[test]
fn a_package_that_is_unchanged_since_its_digest_is_left_to_the_cli() {
    let dir = tempfile::tempdir().unwrap();
    let cache = ProviderCache::new(dir.path().join("cache"), LARGE);
    let (a, from) = provider(dir.path(), "a", "program");
    cache.store(&a, &from).unwrap();
    let entry = entries(&cache.root).remove(0);
    let fingerprint = || package::fingerprint(&entry).unwrap();
    assert!(cache.verified().contains(&entry, &fingerprint()), "stored");
    fs::write(entry.join("terraform-provider-x"), "other").unwrap();
    assert!(!cache.verified().contains(&entry, &fingerprint()), "written into");
    // A forged record lets the copy through, which the CLI refuses. Then the package is removed.
    for (name, is_replaced) in [("replaced", true), ("failed", false)] {
        cache.store(&a, &from).unwrap();
        fs::write(entry.join("terraform-provider-x"), "other").unwrap();
        cache.verified().record(&entry, &fingerprint());
        let forged = cache.copy_to(&a, &dir.path().join(name)).unwrap().unwrap();
        if is_replaced {
            fs::write(forged.path.join("terraform-provider-x"), "program").unwrap();
        }
        assert!(cache.discard_if_refused(&forged, !is_replaced) && !entry.exists());
    }
    // One that the CLI uses stays, also if it fails for another reason.
    cache.store(&a, &from).unwrap();
    let kept = cache.copy_to(&a, &dir.path().join("kept")).unwrap().unwrap();
    for has_failed in [false, true] {
        assert!(!cache.discard_if_refused(&kept, has_failed));
    }
    // Without a record, a copy is digested and recorded.
    cache.verified().remove(&entry);
    assert!(cache.copy_to(&a, &dir.path().join("again")).unwrap().is_some());
    assert!(cache.verified().contains(&entry, &fingerprint()));
    fs::remove_dir_all(&entry).unwrap();
    let (b, from_b) = provider(dir.path(), "b", "more");
    cache.store(&b, &from_b).unwrap();
    let records = fs::read_dir(cache.root.join(verified::DIRECTORY)).unwrap();
    assert_eq!(records.count(), 1, "that of the removed package is gone");
}

#[test]
fn ten_runs_at_once_share_one_package() {
    let dir = tempfile::tempdir().unwrap();
    let cache = ProviderCache::new(dir.path().join("cache"), LARGE);
    let (a, from) = provider(dir.path(), "a", &"program".repeat(10_000));
    let digest = package::digest(&from).unwrap();
    let start = std::sync::Barrier::new(10);
    std::thread::scope(|scope| {
        for number in 0..10 {
            let (cache, a, from, start, digest) = (&cache, &a, &from, &start, &digest);
            let to = dir.path().join(format!("run-{number}"));
            scope.spawn(move || {
                start.wait();
                // Of some runs the package is already there, others store it.
                if cache.copy_to(a, &to).unwrap().is_none() {
                    cache.store(a, from).unwrap();
                    assert!(cache.copy_to(a, &to).unwrap().is_some());
                }
                assert_eq!(package::digest(&to).unwrap(), *digest);
            });
        }
    });
    assert_eq!(entries(&cache.root), [cache.entry(&a, &digest)]);
}

#[test]
fn beyond_the_limit_the_least_recently_used_go() {
    let dir = tempfile::tempdir().unwrap();
    let cache = ProviderCache::new(dir.path().join("cache"), 10);
    let (a, from_a) = provider(dir.path(), "a", "four");
    let (b, from_b) = provider(dir.path(), "b", "five5");
    let (c, from_c) = provider(dir.path(), "c", "six");
    let (huge, from_huge) = provider(dir.path(), "huge", "more than ten");
    for (given, from) in [(&a, &from_a), (&b, &from_b)] {
        cache.store(given, from).unwrap();
    }
    let at = |provider: &LockedProvider| cache.entry(provider, &provider.hashes[1]);
    for (given, age) in [(&a, 20), (&b, 10)] {
        let when = SystemTime::now() - Duration::from_secs(age);
        File::open(at(given)).unwrap().set_modified(when).unwrap();
    }
    let abandoned = cache.root.join(format!("{TEMPORARY_PREFIX}old"));
    fs::create_dir(&abandoned).unwrap();
    let when = SystemTime::now() - ABANDONED_AFTER * 2;
    File::open(&abandoned).unwrap().set_modified(when).unwrap();
    assert!(
        cache.copy_to(&a, &dir.path().join("run")).unwrap().is_some(),
        "used"
    );
    cache.store(&c, &from_c).unwrap();
    assert!(cache.contains(&a) && !cache.contains(&b) && cache.contains(&c) && !abandoned.exists());
    cache.store(&huge, &from_huge).unwrap();
    assert!(cache.contains(&a) && !cache.contains(&huge));
}
