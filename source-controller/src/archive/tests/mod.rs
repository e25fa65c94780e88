//! Golden digests of whole tar files (compressors differ), and properties of arbitrary trees.

mod copies;
mod damage;
pub(super) mod fixture;
mod incremental;
mod large;
mod readers;

use std::collections::BTreeMap;
use std::io::Read;

use fixture::{Text, directory, file, scratch};
use flate2::read::GzDecoder;
use proptest::prelude::*;

use super::{Algorithm, Entry, Hasher, Totals};
use crate::ignore::{IgnoreFile, Rules};

/// `(path, content)`; a directory has no content.
type Tree<'a> = &'a [(&'a str, Option<&'a str>)];

const MANIFEST: &str = "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: dummy\n";

/// Archives the files of `tree` that the rules include. `prefix` precedes each name: empty in production, the path of
/// the directory in vectors that were created from a relative directory.
fn pack(tree: Tree<'_>, spec_ignore: Option<&str>, prefix: &str) -> (Vec<u8>, Totals) {
    let files = tree
        .iter()
        .filter_map(|(path, content)| {
            let directory = path.strip_suffix(".sourceignore")?.trim_end_matches('/');
            Some(IgnoreFile {
                directory: directory.into(),
                content: (*content)?.into(),
            })
        })
        .collect();
    let rules = Rules::new(files, spec_ignore);
    let name = |path: &str| {
        if prefix.is_empty() {
            path.to_owned()
        } else {
            format!("{prefix}/{path}")
        }
    };
    let root = if prefix.is_empty() { "." } else { prefix };
    let included = tree
        .iter()
        .filter(|(path, content)| !rules.excludes(path.as_bytes(), content.is_none()));
    let entries = included.map(|(path, content)| match content {
        Some(content) => file(&name(path), content.as_bytes()),
        None => directory(&name(path)),
    });
    let entries: Vec<Entry<Text>> = std::iter::once(directory(root)).chain(entries).collect();
    let written = scratch(&entries, 2);
    (written.out, written.totals)
}

fn unpacked(gzip: &[u8]) -> Vec<u8> {
    let mut tar = Vec::new();
    GzDecoder::new(gzip).read_to_end(&mut tar).unwrap();
    tar
}

fn tar_digest(gzip: &[u8]) -> String {
    Hasher::of(Algorithm::Sha256, unpacked(gzip).as_slice())
        .unwrap()
        .hex()
        .to_owned()
}

#[test]
fn golden_tars_are_reproduced() {
    let simple: Tree<'_> = &[
        (".sourceignore", Some("**.txt\n")),
        ("foo.txt", Some("")),
        ("manifest.yaml", Some(MANIFEST)),
    ];
    let namespace = |name: &str| MANIFEST.replace("dummy", name);
    let (apps, clusters) = (namespace("apps"), namespace("clusters"));
    let nested: Tree<'_> = &[
        (".sourceignore", Some("/*\n!/apps/\n!/clusters/\n")),
        ("apps", None),
        ("apps/manifest.yaml", Some(&apps)),
        ("clusters", None),
        ("clusters/manifest.yaml", Some(&clusters)),
        ("other", None),
        ("other/manifest.yaml", Some(MANIFEST)),
    ];
    let relative = "testdata/git/repository";
    for (what, tree, spec, prefix, digest) in [
        (
            "in production",
            simple,
            None,
            "",
            "aa38843e96128eacd63d3da1864e01b6c1f8813ed00efbe84cb89c8e9b89a98d",
        ),
        (
            "from a relative directory",
            simple,
            None,
            relative,
            "66f69dfe96f98efbd7059561bf056deea852962bbe8c61567f90dedd79f806ce",
        ),
        (
            "with a file brought back",
            simple,
            Some("!**.txt\n"),
            relative,
            "906aab85d1c01736a96ec041022c790e1bbdf54a475cc9f3f25464795ec65ac1",
        ),
        (
            "of two of three directories",
            nested,
            None,
            "",
            "0b14255b98c49592cd49ffb8a943e4b826e9cd15f8237295567e0a098dbb2ea7",
        ),
    ] {
        let (gzip, totals) = pack(tree, spec, prefix);
        assert_eq!(tar_digest(&gzip), digest, "{what}");
        assert_eq!(totals.unpacked, unpacked(&gzip).len() as u64);
    }
}

#[test]
fn the_first_golden_tar_has_the_recorded_size() {
    let tree: Tree<'_> = &[
        (".sourceignore", Some("**.txt\n")),
        ("manifest.yaml", Some(MANIFEST)),
    ];
    let (_, totals) = pack(tree, None, "");
    assert_eq!((totals.unpacked, totals.files), (3584, 2));
}

#[test]
fn the_gzip_header_contains_no_time_and_no_system() {
    let (gzip, totals) = pack(&[("a", Some("b"))], None, "");
    assert_eq!(gzip[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]);
    assert_eq!(totals.size, gzip.len() as u64);
    assert_eq!(
        totals.digest,
        Hasher::of(Algorithm::Sha256, gzip.as_slice()).unwrap()
    );
}

proptest! {
    #[test]
    fn a_reader_extracts_every_file_unchanged(
        files in proptest::collection::btree_map("[a-zü]{1,120}(/[a-z]{1,60}){0,3}", proptest::collection::vec(any::<u8>(), 0..1500), 0..6)
    ) {
        let entries: Vec<_> = files.iter().map(|(path, content)| file(path, content)).collect();
        let gzip = scratch(&entries, 1).out;
        let mut reader = tar::Archive::new(GzDecoder::new(gzip.as_slice()));
        let mut found = BTreeMap::new();
        for entry in reader.entries().unwrap() {
            let mut entry = entry.unwrap();
            if entry.header().entry_type().is_file() {
                let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                found.insert(path, content);
            }
        }
        prop_assert_eq!(found, files);
    }
}
