//! Packs the images from the program, the CLIs and Debian's packages.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use jiff::Timestamp;
use serde_json::Value;

use crate::archive::{self, ArchiveError, Reference, WrittenImage};
use crate::contents::{self, BASE_PACKAGES, CliProgram, ImageKind, TOOL_PACKAGES};
use crate::debian::{self, DebianError, Lock, Package, run};
use crate::layer::{Layer, LayerError, WrittenLayer};
use crate::links::dead_link;
use crate::loader::{Loader, LoaderError};

/// The programs that are a CLI.
const CLI_NAMES: [&str; 2] = ["terraform", "tofu"];

/// The images cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// A layer cannot be made.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// An archive cannot be written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A package is not available.
    #[error(transparent)]
    Debian(#[from] DebianError),
    /// A program does not run in the image.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// The program is not a CLI.
    #[error(
        "{path} is not a CLI: it must be named tofu or terraform, run on this machine, and answer `version -json`: {why}"
    )]
    Cli {
        /// The program.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The shell's package lacks commands, to which the image has links.
    #[error(
        "busybox of Debian's package has no {commands}: remove them from the commands of the layer `tools`"
    )]
    MissingCommands {
        /// The commands.
        commands: String,
    },
    /// A link leads nowhere.
    #[error(
        "the link /{path} leads to {target}, which the image does not have: a package of it is missing, or has changed"
    )]
    DeadLink {
        /// The link, without the first slash.
        path: String,
        /// Its target.
        target: String,
    },
    /// The image is larger than the limit.
    #[error(
        "the image {image} has {size} bytes, and its limit is {limit}: find out what made the program or its packages larger"
    )]
    TooLarge {
        /// Its name.
        image: String,
        /// Bytes of its layers.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A directory cannot be read or written.
    #[error("cannot use the directory {path}: {source}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// What to pack.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// The program `sluice`.
    pub program: &'a Path,
    /// The CLIs of the image of runs.
    pub clis: &'a [CliProgram],
    /// The part of the images' names before their last slash.
    pub registry: &'a str,
    /// Their tag.
    pub tag: &'a str,
    /// The locked packages; `None`: any version.
    pub lock: Option<&'a Lock>,
    /// Directory of downloaded packages.
    pub cache: &'a Path,
    /// Directory of the archives.
    pub output: &'a Path,
    /// The time that images show.
    pub created: Timestamp,
    /// Maximum number of bytes of the layers of a controller's image; `None`: any size.
    pub controller_limit: Option<u64>,
}

/// A packed image.
#[derive(Clone, Debug)]
pub struct PackedImage {
    /// Which one.
    pub kind: ImageKind,
    /// Its archive.
    pub image: WrittenImage,
    /// Debian's packages in it; their unpacked files are removed.
    pub packages: Vec<Package>,
    /// The CLIs in it.
    pub clis: Vec<CliProgram>,
}

/// The layers of the images, the lowest first.
struct Layers {
    base: WrittenLayer,
    program: WrittenLayer,
    tools: WrittenLayer,
    cli: WrittenLayer,
}

impl Layers {
    fn of(&self, kind: ImageKind) -> Vec<&WrittenLayer> {
        match kind {
            ImageKind::SourceController | ImageKind::TfController => vec![&self.base, &self.program],
            ImageKind::TfRunner => vec![&self.base, &self.tools, &self.cli, &self.program],
        }
    }
}

/// Packs all images: one archive `NAME.tar` for each, and the layers below `layers`.
///
/// # Errors
/// When a package is not available, a program does not run with the libraries of its image, an image exceeds its limit, or a file
/// cannot be written.
pub fn pack(options: &Options<'_>) -> Result<Vec<PackedImage>, PackError> {
    let folder = options.output.join("layers");
    fs::create_dir_all(&folder).map_err(unusable(&folder))?;
    let work = tempfile::tempdir_in(options.output).map_err(unusable(options.output))?;
    let fetch = |names: &[&str]| debian::fetch(names, options.lock, options.cache, work.path());
    let (base, tools) = (fetch(&BASE_PACKAGES)?, fetch(&TOOL_PACKAGES)?);
    let all = [base.as_slice(), &tools].concat();

    let layers = [
        contents::base(&base)?,
        contents::program(options.program)?,
        contents::tools(&tools)?,
        contents::cli(options.clis)?,
    ];
    let version = check(&layers, &base, &tools)?;

    let write = |layer: &Layer, name: &str| layer.write(&folder.join(name).with_extension("tar"));
    let layers = Layers {
        base: write(&layers[0], "base")?,
        program: write(&layers[1], "program")?,
        tools: write(&layers[2], "tools")?,
        cli: write(&layers[3], "cli")?,
    };
    ImageKind::ALL
        .into_iter()
        .map(|kind| {
            let image = write_image(options, kind, &layers, &version)?;
            let (packages, clis) = match kind {
                ImageKind::SourceController | ImageKind::TfController => (base.clone(), Vec::new()),
                ImageKind::TfRunner => (all.clone(), options.clis.to_vec()),
            };
            Ok(PackedImage {
                kind,
                image,
                packages,
                clis,
            })
        })
        .collect()
}

fn write_image(
    options: &Options<'_>,
    kind: ImageKind,
    layers: &Layers,
    version: &str,
) -> Result<WrittenImage, PackError> {
    let reference = Reference::new(&format!("{}/{}", options.registry, kind.name()), options.tag)?;
    let archive = options.output.join(kind.name()).with_extension("tar");
    let config = kind.config(version);
    let image = archive::write(&reference, &config, &layers.of(kind), options.created, &archive)?;
    let limit = options.controller_limit.filter(|_| kind != ImageKind::TfRunner);
    match limit.filter(|limit| image.size > *limit) {
        Some(limit) => Err(PackError::TooLarge {
            image: reference.to_string(),
            size: image.size,
            limit,
        }),
        None => Ok(image),
    }
}

/// Checks that the images have what their programs and links need. Returns the version of the program.
fn check(layers: &[Layer; 4], base: &[Package], tools: &[Package]) -> Result<String, PackError> {
    let [base_layer, program, tool_layer, cli] = layers;
    for image in [
        vec![base_layer, program],
        vec![base_layer, program, tool_layer, cli],
    ] {
        if let Some((path, target)) = dead_link(&image) {
            return Err(PackError::DeadLink {
                path: path.to_owned(),
                target: target.to_owned(),
            });
        }
    }
    // The controllers have only the libraries of the layer `base`.
    let loader = Loader::find(base)?;
    for source in base_layer.sources().chain(program.sources()) {
        loader.check(source)?;
    }
    let version = program
        .sources()
        .map(|source| loader.run(source, &["--version"]))
        .next();
    let loader = Loader::find(&[base, tools].concat())?;
    for source in tool_layer.sources() {
        loader.check(source)?;
    }
    check_commands(&loader, tools)?;
    let version = version.transpose()?.unwrap_or_default();
    Ok(version.trim().trim_start_matches("sluice ").to_owned())
}

fn check_commands(loader: &Loader, packages: &[Package]) -> Result<(), PackError> {
    for package in packages.iter().filter(|package| package.name == "busybox") {
        let listed = loader.run(&package.files.join("bin/busybox"), &["--list"])?;
        let missing = contents::missing_commands(&listed);
        if !missing.is_empty() {
            let commands = missing.join(" ");
            return Err(PackError::MissingCommands { commands });
        }
    }
    Ok(())
}

/// Returns a CLI with the version that it reports.
///
/// # Errors
/// When the program has another name, does not run, or reports no version.
pub fn cli_program(path: &Path, is_default: bool) -> Result<CliProgram, PackError> {
    let failed = |why: String| PackError::Cli {
        path: path.to_owned(),
        why,
    };
    let name = path.file_name().unwrap_or_default().display().to_string();
    if !CLI_NAMES.contains(&name.as_str()) {
        return Err(failed("another name".to_owned()));
    }
    let mut command = Command::new(path);
    command.args(["version", "-json"]).env("CHECKPOINT_DISABLE", "1");
    let answer = run(&mut command).map_err(|error| failed(error.to_string()))?;
    // Warnings about its configuration may surround the JSON.
    let start = answer.find('{').unwrap_or_default();
    let mut answers = serde_json::Deserializer::from_str(&answer[start..]).into_iter();
    let answer: Value = answers
        .next()
        .ok_or_else(|| failed("no answer".to_owned()))?
        .map_err(|error| failed(error.to_string()))?;
    let version = answer.get("terraform_version").and_then(Value::as_str);
    Ok(CliProgram {
        name,
        version: version.ok_or_else(|| failed("no version".to_owned()))?.to_owned(),
        path: path.to_owned(),
        is_default,
    })
}

/// Returns the CLIs below a directory in the form of `--tools-dir`: `NAME/VERSION/NAME`.
///
/// # Errors
/// When a directory cannot be read, or a program is not the one that its directories name.
pub fn installed_clis(directory: &Path) -> Result<Vec<CliProgram>, PackError> {
    let mut programs = Vec::new();
    for name in CLI_NAMES {
        let folder = directory.join(name);
        if !folder.is_dir() {
            continue;
        }
        let entries = fs::read_dir(&folder).map_err(unusable(&folder))?;
        for entry in entries {
            let entry = entry.map_err(unusable(&folder))?;
            let program = cli_program(&entry.path().join(name), false)?;
            let version = entry.file_name().display().to_string();
            if program.version != version {
                return Err(PackError::Cli {
                    why: format!("it reports version {}, not {version}", program.version),
                    path: program.path,
                });
            }
            programs.push(program);
        }
    }
    if programs.is_empty() {
        let why = "it has no tofu/VERSION/tofu and no terraform/VERSION/terraform";
        return Err(unusable(directory)(io::Error::other(why)));
    }
    programs.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(programs)
}

fn unusable(path: &Path) -> impl Fn(io::Error) -> PackError {
    move |source| PackError::Directory {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
