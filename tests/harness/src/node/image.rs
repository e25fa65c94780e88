//! Images without a registry: a Docker archive of one layer, made of programs and files. The same files give the same bytes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use sha2::{Digest, Sha256};

/// A file of an image.
#[derive(Clone, Debug)]
pub struct ImageFile {
    /// The file on this machine; `None`: a symbolic link to `target`.
    source: Option<PathBuf>,
    target: String,
    /// Absolute path in the image.
    path: String,
}

impl ImageFile {
    /// A copy of a file, with its mode.
    #[must_use]
    pub fn program(source: PathBuf, path: &str) -> Self {
        Self {
            source: Some(source),
            target: String::new(),
            path: path.to_owned(),
        }
    }

    /// A symbolic link.
    #[must_use]
    pub fn link(path: &str, target: &str) -> Self {
        Self {
            source: None,
            target: target.to_owned(),
            path: path.to_owned(),
        }
    }
}

/// An image. Its first file is the entry point, its user is 65534.
#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    files: Vec<ImageFile>,
    environment: Vec<String>,
}

impl Image {
    /// An image without files. A name with a tag other than `latest` is never pulled.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            files: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// Adds a file.
    #[must_use]
    pub fn file(mut self, file: ImageFile) -> Self {
        self.files.push(file);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push(format!("{name}={value}"));
        self
    }

    /// Returns the name with the tag.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn write(&self, archive: &Path) -> io::Result<()> {
        let layer = archive.with_extension("layer");
        let digest = self.write_layer(&layer)?;
        let entry = self.files.first().map(|file| vec![file.path.clone()]);
        let config = json!({
            "architecture": "amd64", "os": "linux",
            "config": { "Entrypoint": entry, "WorkingDir": "/", "User": "65534:65534", "Env": self.environment },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
            "history": [{ "created_by": "sluice" }],
        })
        .to_string();
        let config_name = format!("{}.json", hex::encode(Sha256::digest(&config)));
        let manifest = json!([{ "Config": config_name, "RepoTags": [self.name], "Layers": ["layer.tar"] }]);
        let mut tar = tar::Builder::new(File::create(archive)?);
        append(&mut tar, &config_name, config.as_bytes())?;
        let mut file = File::open(&layer)?;
        let mut header = header(0o644, file.metadata()?.len());
        tar.append_data(&mut header, "layer.tar", &mut file)?;
        append(&mut tar, "manifest.json", manifest.to_string().as_bytes())?;
        tar.into_inner()?.sync_all()?;
        fs::remove_file(&layer)
    }

    /// Writes the layer and returns its digest, in hexadecimal.
    fn write_layer(&self, path: &Path) -> io::Result<String> {
        let mut tar = tar::Builder::new(DigestWriter {
            file: io::BufWriter::new(File::create(path)?),
            hash: Sha256::new(),
        });
        append_directory(&mut tar, "tmp", 0o1777)?;
        let mut directories = BTreeSet::from([String::new(), "tmp".to_owned()]);
        for file in &self.files {
            let path = file.path.trim_start_matches('/');
            let parents: Vec<_> = Path::new(path).ancestors().skip(1).collect();
            for parent in parents.iter().rev() {
                let parent = parent.to_string_lossy().into_owned();
                if directories.insert(parent.clone()) {
                    append_directory(&mut tar, &parent, 0o755)?;
                }
            }
            if let Some(source) = &file.source {
                let mut contents = File::open(source)?;
                let metadata = contents.metadata()?;
                let mut header = header(metadata.permissions().mode() & 0o777, metadata.len());
                tar.append_data(&mut header, path, &mut contents)?;
            } else {
                let mut header = header(0o777, 0);
                header.set_entry_type(tar::EntryType::Symlink);
                tar.append_link(&mut header, path, &file.target)?;
            }
        }
        let mut writer = tar.into_inner()?;
        writer.file.flush()?;
        Ok(hex::encode(writer.hash.finalize()))
    }
}

/// Hashes what it writes.
struct DigestWriter {
    file: io::BufWriter<File>,
    hash: Sha256,
}

impl io::Write for DigestWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn header(mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn append(tar: &mut tar::Builder<File>, name: &str, contents: &[u8]) -> io::Result<()> {
    tar.append_data(&mut header(0o644, contents.len() as u64), name, contents)
}

fn append_directory<W: io::Write>(tar: &mut tar::Builder<W>, path: &str, mode: u32) -> io::Result<()> {
    let mut header = header(mode, 0);
    header.set_entry_type(tar::EntryType::Directory);
    tar.append_data(&mut header, format!("{path}/"), io::empty())
}
