//! An image as one file: an OCI image layout in a tar archive that also has Docker's `manifest.json`, so that `docker load`,
//! `podman load`, `ctr images import` and `skopeo copy oci-archive:` read it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tar::EntryType;

use crate::layer::{WrittenLayer, header};

const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
/// The annotation from which containerd takes the name of an image.
const NAME_ANNOTATION: &str = "io.containerd.image.name";
/// The annotation of the OCI for the tag.
const TAG_ANNOTATION: &str = "org.opencontainers.image.ref.name";

/// An archive cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The name is not one of an image.
    #[error(
        "{name:?} is not the name of an image: use lower-case letters, as in registry.example.com/sluice/tf-runner:0.1.0"
    )]
    InvalidName {
        /// The name.
        name: String,
    },
    /// A file cannot be read or written.
    #[error("cannot write the image {path}: {source}")]
    Write {
        /// The archive.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// The name of an image with its tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    name: String,
    tag: String,
}

impl Reference {
    /// Joins the name of a repository and a tag.
    ///
    /// # Errors
    /// When one of them has a character that no image has there.
    pub fn new(name: &str, tag: &str) -> Result<Self, ArchiveError> {
        let invalid = || ArchiveError::InvalidName {
            name: format!("{name}:{tag}"),
        };
        let is_name = |part: &str| {
            let inner =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-:".contains(&byte);
            !part.is_empty() && part.bytes().all(inner)
        };
        let is_tag_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let last = name.rsplit('/').next().unwrap_or_default();
        let is_valid = name.split('/').all(is_name)
            && !last.contains(':')
            && !tag.is_empty()
            && tag.bytes().all(is_tag_byte);
        is_valid
            .then(|| Self {
                name: name.to_owned(),
                tag: tag.to_owned(),
            })
            .ok_or_else(invalid)
    }

    /// Returns the name without the tag.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the tag.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.name, self.tag)
    }
}

/// How a container of the image starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageConfig {
    /// The numeric user, which is also the group.
    pub user: u32,
    /// Absolute path of the program.
    pub entrypoint: String,
    /// Environment variables.
    pub environment: BTreeMap<String, String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// An image in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenImage {
    /// Its name.
    pub reference: Reference,
    /// The archive.
    pub archive: PathBuf,
    /// SHA-256 of the manifest in hexadecimal digits, which identifies the image.
    pub digest: String,
    /// Bytes of the layers, uncompressed.
    pub size: u64,
}

/// The name of this machine's architecture in images: that of Go.
#[must_use]
pub const fn architecture() -> &'static str {
    // `match` compares no strings in constants, and only these two are built.
    if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    }
}

#[derive(Serialize)]
struct Platform {
    architecture: &'static str,
    os: &'static str,
}

const PLATFORM: Platform = Platform {
    architecture: architecture(),
    os: "linux",
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: &'static str,
    digest: String,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<Platform>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'static str, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: u8,
    media_type: &'static str,
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u8,
    media_type: &'static str,
    manifests: [Descriptor; 1],
}

/// The configuration of the OCI.
#[derive(Serialize)]
struct Configuration<'a> {
    created: String,
    #[serde(flatten)]
    platform: Platform,
    config: ContainerConfiguration<'a>,
    rootfs: RootFileSystem,
    history: Vec<History>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ContainerConfiguration<'a> {
    user: String,
    env: Vec<String>,
    entrypoint: [&'a str; 1],
    working_dir: &'static str,
    labels: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct RootFileSystem {
    #[serde(rename = "type")]
    kind: &'static str,
    diff_ids: Vec<String>,
}

#[derive(Serialize)]
struct History {
    created: String,
    created_by: String,
}

/// An image in Docker's own list.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    repo_tags: [String; 1],
    layers: Vec<String>,
}

/// Writes an image of layers, the lowest first. `created` is shown to users; nothing else depends on the time.
///
/// # Errors
/// When a layer cannot be read or the archive cannot be written.
pub fn write(
    reference: &Reference,
    config: &ImageConfig,
    layers: &[&WrittenLayer],
    created: Timestamp,
    archive: &Path,
) -> Result<WrittenImage, ArchiveError> {
    let failed = |source| ArchiveError::Write {
        path: archive.to_owned(),
        source,
    };
    let configuration = json(&configuration(config, layers, created)).map_err(failed)?;
    let manifest = json(&manifest(&configuration, layers)).map_err(failed)?;
    let image = WrittenImage {
        reference: reference.clone(),
        archive: archive.to_owned(),
        digest: hex::encode(Sha256::digest(&manifest)),
        size: layers.iter().map(|layer| layer.size).sum(),
    };
    write_archive(&image, &configuration, &manifest, layers).map_err(failed)?;
    Ok(image)
}

fn write_archive(
    image: &WrittenImage,
    configuration: &[u8],
    manifest: &[u8],
    layers: &[&WrittenLayer],
) -> io::Result<()> {
    let blob = |digest: &str| format!("blobs/sha256/{digest}");
    let config_blob = blob(&hex::encode(Sha256::digest(configuration)));
    let docker = [DockerImage {
        config: config_blob.clone(),
        repo_tags: [image.reference.to_string()],
        layers: layers.iter().map(|layer| blob(&layer.digest)).collect(),
    }];
    let mut tar = tar::Builder::new(BufWriter::new(File::create(&image.archive)?));
    append(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append(&mut tar, "index.json", &json(&index(image, manifest))?)?;
    append(&mut tar, "manifest.json", &json(&docker)?)?;
    append(&mut tar, &config_blob, configuration)?;
    append(&mut tar, &blob(&image.digest), manifest)?;
    for layer in layers {
        let mut header = header(EntryType::Regular, 0o644, layer.size);
        tar.append_data(&mut header, blob(&layer.digest), File::open(&layer.path)?)?;
    }
    tar.into_inner()?.flush()
}

fn configuration<'a>(
    config: &'a ImageConfig,
    layers: &[&WrittenLayer],
    created: Timestamp,
) -> Configuration<'a> {
    let created = created.to_string();
    let name = |layer: &WrittenLayer| layer.path.file_stem().unwrap_or_default().display().to_string();
    Configuration {
        created: created.clone(),
        platform: PLATFORM,
        config: ContainerConfiguration {
            user: format!("{0}:{0}", config.user),
            env: config
                .environment
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
            entrypoint: [&config.entrypoint],
            working_dir: "/",
            labels: &config.labels,
        },
        rootfs: RootFileSystem {
            kind: "layers",
            diff_ids: layers.iter().map(|layer| prefixed(&layer.digest)).collect(),
        },
        history: layers
            .iter()
            .map(|layer| History {
                created: created.clone(),
                created_by: format!("sluice: {}", name(layer)),
            })
            .collect(),
    }
}

fn manifest(configuration: &[u8], layers: &[&WrittenLayer]) -> Manifest {
    Manifest {
        schema_version: 2,
        media_type: MANIFEST_TYPE,
        config: descriptor(CONFIG_TYPE, configuration),
        layers: layers
            .iter()
            .map(|layer| Descriptor {
                media_type: LAYER_TYPE,
                digest: prefixed(&layer.digest),
                size: layer.size,
                platform: None,
                annotations: BTreeMap::new(),
            })
            .collect(),
    }
}

fn index(image: &WrittenImage, manifest: &[u8]) -> Index {
    Index {
        schema_version: 2,
        media_type: INDEX_TYPE,
        manifests: [Descriptor {
            platform: Some(PLATFORM),
            annotations: BTreeMap::from([
                (NAME_ANNOTATION, image.reference.to_string()),
                (TAG_ANNOTATION, image.reference.tag().to_owned()),
            ]),
            ..descriptor(MANIFEST_TYPE, manifest)
        }],
    }
}

fn descriptor(media_type: &'static str, contents: &[u8]) -> Descriptor {
    Descriptor {
        media_type,
        digest: prefixed(&hex::encode(Sha256::digest(contents))),
        size: contents.len() as u64,
        platform: None,
        annotations: BTreeMap::new(),
    }
}

fn prefixed(digest: &str) -> String {
    format!("sha256:{digest}")
}

fn json(value: &impl Serialize) -> io::Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(io::Error::other)
}

fn append<W: Write>(tar: &mut tar::Builder<W>, name: &str, contents: &[u8]) -> io::Result<()> {
    tar.append_data(
        &mut header(EntryType::Regular, 0o644, contents.len() as u64),
        name,
        contents,
    )
}

#[cfg(test)]
mod tests;
