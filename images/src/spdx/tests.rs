use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use super::*;
use crate::archive::{Reference, WrittenImage};
use crate::contents::ImageKind;

fn linked(name: &str, version: &str, digest: Option<&str>) -> LinkedCrate {
    LinkedCrate {
        name: name.to_owned(),
        version: version.to_owned(),
        license: digest.map(|_| "MIT OR Apache-2.0".to_owned()),
        digest: digest.map(str::to_owned),
    }
}

fn packed(folder: &str) -> PackedImage {
    PackedImage {
        kind: ImageKind::TfRunner,
        image: WrittenImage {
            reference: Reference::new("registry.example.com/sluice/tf-runner", "0.1.0").unwrap(),
            archive: PathBuf::from(folder).join("tf-runner.tar"),
            digest: "a".repeat(64),
            size: 7,
        },
        packages: vec![Package {
            name: "git".to_owned(),
            version: "1:2.39.5-0+deb12u3".to_owned(),
            architecture: "amd64".to_owned(),
            digest: "b".repeat(64),
            control: String::new(),
            files: PathBuf::from(folder).join("git"),
        }],
        clis: [true, false]
            .map(|is_default| CliProgram {
                name: "tofu".to_owned(),
                version: "1.12.6".to_owned(),
                path: PathBuf::from(folder).join("tofu"),
                is_default,
            })
            .to_vec(),
    }
}

fn text(folder: &str, seconds: i64) -> String {
    let digest = "c".repeat(64);
    let crates = [
        linked("libgit2-sys", "0.18.2+1.9.1", Some(&digest)),
        linked("sluice", "0.1.0", None),
        linked("sluice-api", "0.1.0", None),
    ];
    let parts = ProgramParts {
        crates: &crates,
        compiler: "1.95.0",
    };
    let created = Timestamp::from_second(seconds).unwrap();
    serde_json::to_string(&document(&packed(folder), parts, created)).unwrap()
}

#[test]
fn equal_contents_give_equal_bytes_in_two_folders_and_the_time_is_only_the_given_one() {
    assert_eq!(text("/one", 7), text("/other", 7));
    assert_eq!(
        text("/one", 7).replace("1970-01-01T00:00:07Z", "1970-01-01T00:00:08Z"),
        text("/one", 8)
    );
}

/// The fields that the JSON schema of SPDX 2.3 requires, and its rules for identifiers.
#[test]
fn the_document_has_what_spdx_requires() {
    let document: Value = serde_json::from_str(&text("/one", 7)).unwrap();
    for (field, value) in [
        ("spdxVersion", "SPDX-2.3"),
        ("dataLicense", "CC0-1.0"),
        ("SPDXID", "SPDXRef-DOCUMENT"),
        ("name", "registry.example.com/sluice/tf-runner:0.1.0"),
    ] {
        assert_eq!(document[field], value);
    }
    let namespace = document["documentNamespace"].as_str().unwrap();
    assert!(
        namespace.starts_with("https://") && !namespace.contains('#'),
        "{namespace}"
    );
    assert_eq!(document["creationInfo"]["created"], "1970-01-01T00:00:07Z");
    let creator = document["creationInfo"]["creators"][0].as_str().unwrap();
    assert!(creator.starts_with("Tool: "), "{creator}");

    let mut ids = BTreeSet::from(["SPDXRef-DOCUMENT".to_owned()]);
    for package in document["packages"].as_array().unwrap() {
        for field in [
            "name",
            "SPDXID",
            "downloadLocation",
            "versionInfo",
            "licenseDeclared",
        ] {
            assert!(
                !package[field].as_str().unwrap().is_empty(),
                "{field} of {package}"
            );
        }
        let id = package["SPDXID"].as_str().unwrap();
        let rest = id.strip_prefix("SPDXRef-").unwrap();
        assert!(
            rest.chars()
                .all(|one| one.is_ascii_alphanumeric() || ".-".contains(one)),
            "{id}"
        );
        assert!(ids.insert(id.to_owned()), "{id} is there twice");
        for checksum in package["checksums"].as_array().into_iter().flatten() {
            assert_eq!(checksum["algorithm"], "SHA256");
            assert_eq!(checksum["checksumValue"].as_str().unwrap().len(), 64);
        }
    }
    let relationships = document["relationships"].as_array().unwrap();
    for relationship in relationships {
        for field in ["spdxElementId", "relatedSpdxElement"] {
            assert!(
                ids.contains(relationship[field].as_str().unwrap()),
                "{relationship}"
            );
        }
    }
    assert_eq!(relationships.len(), ids.len() - 1);
    assert_eq!(relationships[0]["relationshipType"], "DESCRIBES");
}

#[test]
fn package_urls_name_packages_for_scanners() {
    let document: Value = serde_json::from_str(&text("/one", 7)).unwrap();
    let urls: Vec<_> = document["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| package["externalRefs"][0]["referenceLocator"].as_str().unwrap())
        .collect();
    assert_eq!(
        urls[1..],
        [
            "pkg:cargo/libgit2-sys@0.18.2%2B1.9.1",
            "pkg:generic/sluice@0.1.0",
            "pkg:generic/sluice-api@0.1.0",
            "pkg:generic/rust-std@1.95.0",
            "pkg:deb/debian/git@1%3A2.39.5-0%2Bdeb12u3?arch=amd64&distro=debian-12",
            "pkg:golang/github.com/opentofu/opentofu@v1.12.6",
        ]
    );
    assert!(
        urls[0].starts_with("pkg:oci/tf-runner@sha256%3Aaaaa"),
        "{}",
        urls[0]
    );
    assert!(urls[0].contains("repository_url=registry.example.com%2Fsluice%2Ftf-runner&tag=0.1.0"));
}
