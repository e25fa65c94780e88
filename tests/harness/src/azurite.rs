//! Azurite, Microsoft's emulator of Azure Blob Storage: it checks the signatures of requests, and has conditional writes, block lists and
//! batches.
//!
//! npm installs it once into cargo's target folder, as `<target>/tools/azurite-<hash>`. The hash covers `tests/assets/azurite`, which pins every
//! package by its digest.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::gobuild::{tools_dir, workspace};
use crate::process::Process;

/// The files that pin the packages.
const FILES: [&str; 2] = ["package.json", "package-lock.json"];
/// What the log has before the address.
const LISTENS: &str = "successfully listens on http://";
/// How long a start may take.
const START_LIMIT: Duration = Duration::from_mins(1);
/// Time between two looks at the log.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Azurite is not available.
#[derive(Debug, thiserror::Error)]
pub enum AzuriteError {
    /// npm did not install it.
    #[error("`npm ci` of Azurite failed:\n{0}")]
    Install(String),
    /// It has ended, or does not listen.
    #[error("Azurite did not start:\n{0}")]
    Start(String),
    /// A file or a process of the system.
    #[error("Azurite: {0}")]
    System(#[from] io::Error),
}

/// A running emulator with an empty account. It keeps everything in memory, and ends with this value.
#[derive(Debug)]
pub struct Azurite {
    address: SocketAddr,
    _process: Process,
    _folder: TempDir,
}

impl Azurite {
    /// Installs it if needed, and starts it at a free port of loopback. Blocks until it listens.
    ///
    /// # Errors
    /// When it cannot be installed, or does not listen within a minute.
    pub fn start() -> Result<Self, AzuriteError> {
        let program = install()?.join("node_modules/azurite/dist/src/blob/main.js");
        let folder = tempfile::tempdir()?;
        let mut arguments = vec![program.display().to_string()];
        arguments.extend(["--blobHost", "127.0.0.1", "--blobPort", "0"].map(str::to_owned));
        arguments.extend(["--inMemoryPersistence", "--disableTelemetry", "--silent"].map(str::to_owned));
        let log = folder.path().join("log");
        let mut process = Process::start(Path::new("node"), &arguments, &log, Some(folder.path()))?;
        let address = wait_for_address(&mut process)?;
        Ok(Self {
            address,
            _process: process,
            _folder: folder,
        })
    }

    /// Returns the address that it serves.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Waits until the log has the address.
fn wait_for_address(process: &mut Process) -> Result<SocketAddr, AzuriteError> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        // Before the log: what a process has written before its end counts.
        let has_ended = process.has_ended();
        let log = process.log_tail(20);
        let address = log
            .lines()
            .find_map(|line| line.split_once(LISTENS)?.1.trim().parse().ok());
        if let Some(address) = address {
            return Ok(address);
        }
        if has_ended || Instant::now() > deadline {
            return Err(AzuriteError::Start(log));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Returns the folder with its packages. A lock and a rename protect against concurrent test processes.
fn install() -> Result<PathBuf, AzuriteError> {
    let pinned = workspace().join("tests/assets/azurite");
    let mut hash = Sha256::new();
    for file in FILES {
        hash.update(fs::read(pinned.join(file))?);
    }
    let hash = hex::encode(hash.finalize());
    let root = tools_dir().join(format!("azurite-{}", &hash[..12]));
    if root.is_dir() {
        return Ok(root);
    }
    fs::create_dir_all(tools_dir())?;
    let lock = File::create(tools_dir().join("azurite.lock"))?;
    lock.lock()?;
    if root.is_dir() {
        return Ok(root);
    }
    eprintln!("azurite: installing its npm packages (once)");
    let folder = tempfile::tempdir_in(tools_dir())?;
    let packages = folder.path().join("azurite");
    fs::create_dir(&packages)?;
    for file in FILES {
        fs::copy(pinned.join(file), packages.join(file))?;
    }
    // None of the packages needs its scripts.
    let installed = Command::new("npm")
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(&packages)
        .stdin(Stdio::null())
        .output()?;
    if !installed.status.success() {
        let errors = String::from_utf8_lossy(&installed.stderr);
        return Err(AzuriteError::Install(errors.into_owned()));
    }
    fs::rename(&packages, &root)?;
    Ok(root)
}
