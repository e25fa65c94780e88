//! The software bill of materials of an image, as an SPDX 2.3 document in JSON.

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use crate::archive::architecture;
use crate::contents::{self, CliProgram};
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
    #[serde(rename = "documentNamespace")]
    namespace: String,
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
struct ExternalReference {
    #[serde(rename = "referenceCategory")]
    category: &'static str,
    #[serde(rename = "referenceType")]
    kind: &'static str,
    #[serde(rename = "referenceLocator")]
    locator: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Relationship {
    spdx_element_id: &'static str,
    #[serde(rename = "relationshipType")]
    kind: &'static str,
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
        namespace: format!(
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
    for cli in contents::distinct(&packed.clis) {
        document.add(IMAGE_ID, "CONTAINS", cli_package(cli));
    }
    document
}

impl Document {
    fn add(&mut self, element: &'static str, relationship: &'static str, package: SpdxPackage) {
        self.relationships.push(Relationship {
            spdx_element_id: element,
            kind: relationship,
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
            category: "PACKAGE-MANAGER",
            kind: "purl",
            locator: url,
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
    package(
        id("Cli", &cli.name, &cli.version),
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
mod tests;
