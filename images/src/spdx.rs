//! The software bill of materials of an image, as an SPDX 2.3 document in JSON.

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use crate::archive::architecture;
use crate::contents::CliProgram;
use crate::crates::LinkedCrate;
use crate::debian::Package;
use crate::pack::PackedImage;

/// The name of the program among its crates.
const PROGRAM: &str = "sluice";
const DOCUMENT_ID: &str = "SPDXRef-DOCUMENT";
const IMAGE_ID: &str = "SPDXRef-Image";
const PROGRAM_ID: &str = "SPDXRef-Program";
/// What SPDX demands where nothing is known.
const UNKNOWN: &str = "NOASSERTION";
/// Characters that a package URL has as they are.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// An SPDX document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    spdx_version: &'static str,
    data_license: &'static str,
    #[serde(rename = "SPDXID")]
    id: &'static str,
    name: String,
    document_namespace: String,
    creation_info: CreationInfo,
    packages: Vec<SpdxPackage>,
    relationships: Vec<Relationship>,
}

#[derive(Debug, Serialize)]
struct CreationInfo {
    created: String,
    creators: [String; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SpdxPackage {
    name: String,
    #[serde(rename = "SPDXID")]
    id: String,
    version_info: String,
    download_location: &'static str,
    files_analyzed: bool,
    license_concluded: &'static str,
    license_declared: String,
    copyright_text: &'static str,
    primary_package_purpose: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checksums: Vec<Checksum>,
    external_refs: [ExternalReference; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Checksum {
    algorithm: &'static str,
    checksum_value: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExternalReference {
    reference_category: &'static str,
    reference_type: &'static str,
    reference_locator: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Relationship {
    spdx_element_id: &'static str,
    relationship_type: &'static str,
    related_spdx_element: String,
}

/// What the program is made of.
#[derive(Clone, Copy, Debug)]
pub struct ProgramParts<'a> {
    /// All crates, the program's own included.
    pub crates: &'a [LinkedCrate],
    /// The version of the compiler, whose standard library is linked too.
    pub compiler: &'a str,
}

/// Returns the document of an image. It depends only on the contents of the image and on `created`.
#[must_use]
pub fn document(packed: &PackedImage, parts: ProgramParts<'_>, created: Timestamp) -> Document {
    let image = &packed.image;
    let mut document = Document {
        spdx_version: "SPDX-2.3",
        data_license: "CC0-1.0",
        id: DOCUMENT_ID,
        name: image.reference.to_string(),
        document_namespace: format!(
            "https://sluice.invalid/spdx/{}/{}",
            packed.kind.name(),
            image.digest
        ),
        creation_info: CreationInfo {
            created: created.to_string(),
            creators: [format!("Tool: sluice-images-{}", env!("CARGO_PKG_VERSION"))],
        },
        packages: Vec::new(),
        relationships: Vec::new(),
    };
    document.add(DOCUMENT_ID, "DESCRIBES", image_package(packed));
    for one in parts.crates {
        if one.name == PROGRAM {
            document.add(IMAGE_ID, "CONTAINS", program_package(one));
        } else {
            document.add(PROGRAM_ID, "STATIC_LINK", crate_package(one));
        }
    }
    document.add(PROGRAM_ID, "STATIC_LINK", standard_library(parts.compiler));
    for package in &packed.packages {
        document.add(IMAGE_ID, "CONTAINS", debian_package(package));
    }
    for cli in &packed.clis {
        document.add(IMAGE_ID, "CONTAINS", cli_package(cli));
    }
    document
}

impl Document {
    fn add(&mut self, element: &'static str, relationship: &'static str, package: SpdxPackage) {
        self.relationships.push(Relationship {
            spdx_element_id: element,
            relationship_type: relationship,
            related_spdx_element: package.id.clone(),
        });
        self.packages.push(package);
    }
}

fn package(id: String, name: &str, version: &str, purpose: &'static str, url: String) -> SpdxPackage {
    SpdxPackage {
        name: name.to_owned(),
        id,
        version_info: version.to_owned(),
        download_location: UNKNOWN,
        files_analyzed: false,
        license_concluded: UNKNOWN,
        license_declared: UNKNOWN.to_owned(),
        copyright_text: UNKNOWN,
        primary_package_purpose: purpose,
        checksums: Vec::new(),
        external_refs: [ExternalReference {
            reference_category: "PACKAGE-MANAGER",
            reference_type: "purl",
            reference_locator: url,
        }],
    }
}

fn image_package(packed: &PackedImage) -> SpdxPackage {
    let (name, reference) = (packed.kind.name(), &packed.image.reference);
    let url = format!(
        "pkg:oci/{name}@sha256%3A{}?arch={}&repository_url={}&tag={}",
        packed.image.digest,
        architecture(),
        encoded(reference.name()),
        encoded(reference.tag())
    );
    SpdxPackage {
        license_declared: "Apache-2.0".to_owned(),
        checksums: sha256(&packed.image.digest),
        ..package(IMAGE_ID.to_owned(), name, reference.tag(), "CONTAINER", url)
    }
}

fn program_package(one: &LinkedCrate) -> SpdxPackage {
    let url = generic_url(&one.name, &one.version);
    SpdxPackage {
        license_declared: license(one),
        ..package(PROGRAM_ID.to_owned(), &one.name, &one.version, "APPLICATION", url)
    }
}

fn crate_package(one: &LinkedCrate) -> SpdxPackage {
    // A crate of the workspace is not the crate of that name in the registry.
    let url = match &one.digest {
        Some(_) => format!("pkg:cargo/{}@{}", one.name, encoded(&one.version)),
        None => generic_url(&one.name, &one.version),
    };
    SpdxPackage {
        license_declared: license(one),
        checksums: one.digest.as_deref().map(sha256).unwrap_or_default(),
        ..package(
            id("Crate", &one.name, &one.version),
            &one.name,
            &one.version,
            "LIBRARY",
            url,
        )
    }
}

fn standard_library(compiler: &str) -> SpdxPackage {
    SpdxPackage {
        license_declared: "MIT OR Apache-2.0".to_owned(),
        ..package(
            id("Crate", "std", compiler),
            "std",
            compiler,
            "LIBRARY",
            generic_url("rust-std", compiler),
        )
    }
}

fn debian_package(one: &Package) -> SpdxPackage {
    let url = format!(
        "pkg:deb/debian/{}@{}?arch={}&distro=debian-12",
        one.name,
        encoded(&one.version),
        one.architecture
    );
    SpdxPackage {
        checksums: sha256(&one.digest),
        ..package(
            id("Debian", &one.name, &one.version),
            &one.name,
            &one.version,
            "LIBRARY",
            url,
        )
    }
}

fn cli_package(cli: &CliProgram) -> SpdxPackage {
    let url = match cli.name.as_str() {
        "tofu" => format!(
            "pkg:golang/github.com/opentofu/opentofu@v{}",
            encoded(&cli.version)
        ),
        _ => format!(
            "pkg:golang/github.com/hashicorp/terraform@v{}",
            encoded(&cli.version)
        ),
    };
    // The default may be one of the installed versions too.
    let kind = if cli.is_default { "Cli" } else { "InstalledCli" };
    package(
        id(kind, &cli.name, &cli.version),
        &cli.name,
        &cli.version,
        "APPLICATION",
        url,
    )
}

fn license(one: &LinkedCrate) -> String {
    one.license.clone().unwrap_or_else(|| UNKNOWN.to_owned())
}

fn sha256(digest: &str) -> Vec<Checksum> {
    vec![Checksum {
        algorithm: "SHA256",
        checksum_value: digest.to_owned(),
    }]
}

fn generic_url(name: &str, version: &str) -> String {
    format!("pkg:generic/{name}@{}", encoded(version))
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// Returns an identifier, which has letters, digits, `.` and `-` only.
fn id(kind: &str, name: &str, version: &str) -> String {
    let plain = |text: &str| {
        let character = |one: char| {
            if one.is_ascii_alphanumeric() || one == '.' {
                one
            } else {
                '-'
            }
        };
        text.chars().map(character).collect::<String>()
    };
    format!("SPDXRef-{kind}-{}-{}", plain(name), plain(version))
}

#[cfg(test)]
mod tests {
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
}
