//! `images pack` packs the images; `images lock` writes the lock file of their Debian packages.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use jiff::Timestamp;
use sluice_images::contents::{BASE_PACKAGES, TOOL_PACKAGES};
use sluice_images::crates::{self, CratesError};
use sluice_images::debian::{DebianError, Lock, LockError, PACKAGES_LOCK, index};
use sluice_images::pack::{Options, PackError, PackedImage, cli_program, installed_clis, pack};
use sluice_images::spdx::{self, ProgramParts};

/// Maximum number of bytes of the layers of a controller's image.
const CONTROLLER_LIMIT: u64 = 60_000_000;

/// Packs the images of Sluice without a container engine.
#[derive(Parser)]
#[command(name = "images", version)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write an archive and an SBOM for each image.
    Pack(PackArgs),
    /// Write the lock file of Debian's packages, with the newest versions.
    Lock {
        /// The lock file.
        #[arg(long, default_value = "images/packages.lock")]
        file: PathBuf,
    },
}

#[derive(Args)]
struct PackArgs {
    /// The release build of `sluice`.
    #[arg(long)]
    program: PathBuf,
    /// The CLI on `PATH` of the image of runs, also one of its versions: a program named `tofu` or `terraform`.
    #[arg(long)]
    cli: PathBuf,
    /// More versions for the image of runs: a directory with `NAME/VERSION/NAME`.
    #[arg(long)]
    tools_dir: Option<PathBuf>,
    /// The part of the images' names before their last slash.
    #[arg(long, default_value = "sluice.invalid")]
    registry: String,
    /// The tag of the images.
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
    tag: String,
    /// Directory of the archives.
    #[arg(long, default_value = "target/images")]
    output: PathBuf,
    /// The time that images show, in seconds since 1970.
    #[arg(long, env = "SOURCE_DATE_EPOCH", default_value_t = 0)]
    created: i64,
    /// The workspace, whose lock file lists the crates of the program.
    #[arg(long, default_value = ".")]
    workspace: PathBuf,
}

/// A command failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Pack(#[from] PackError),
    #[error(transparent)]
    Crates(#[from] CratesError),
    #[error(transparent)]
    Debian(#[from] DebianError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("--created: {0}")]
    Created(#[from] jiff::Error),
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
}

fn main() -> ExitCode {
    let result = match Program::parse().command {
        Command::Pack(args) => pack_images(&args),
        Command::Lock { file } => write_lock(&file),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("images: {error}");
            ExitCode::FAILURE
        }
    }
}

fn pack_images(args: &PackArgs) -> Result<(), Error> {
    let lock = Lock::parse(PACKAGES_LOCK)?;
    let mut clis = vec![cli_program(&args.cli, true)?];
    if let Some(directory) = &args.tools_dir {
        clis.extend(installed_clis(directory)?);
    }
    let created = Timestamp::from_second(args.created)?;
    let packed = pack(&Options {
        program: &args.program,
        clis: &clis,
        registry: &args.registry,
        tag: &args.tag,
        lock: Some(&lock),
        cache: &args.output.join("packages"),
        output: &args.output,
        created,
        controller_limit: Some(CONTROLLER_LIMIT),
    })?;
    let (crates, compiler) = crates::linked(&args.workspace)?;
    let parts = ProgramParts {
        crates: &crates,
        compiler: &compiler,
    };
    for one in &packed {
        let document = serde_json::to_string_pretty(&spdx::document(one, parts, created));
        let document = document.map_err(io::Error::other);
        let path = args.output.join(format!("{}.spdx.json", one.kind.name()));
        let written = document.and_then(|text| fs::write(&path, text + "\n"));
        written.map_err(at(&path))?;
    }
    print_table(&packed).map_err(at(Path::new("standard output")))
}

fn print_table(packed: &[PackedImage]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    for one in packed {
        let tenths = one.image.size / 100_000;
        writeln!(
            output,
            "{:<50} {:>5}.{} MB  sha256:{}  {}",
            one.image.reference.to_string(),
            tenths / 10,
            tenths % 10,
            one.image.digest,
            one.image.archive.display()
        )?;
    }
    output.flush()
}

fn write_lock(file: &Path) -> Result<(), Error> {
    let work = tempfile::tempdir().map_err(at(Path::new("a temporary directory")))?;
    let names: Vec<&str> = BASE_PACKAGES.iter().chain(&TOOL_PACKAGES).copied().collect();
    let lock = index::newest(&names, work.path())?;
    fs::write(file, lock.to_string()).map_err(at(file))
}

fn at(path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::File {
        path: path.to_owned(),
        source,
    }
}
