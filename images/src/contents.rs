//! The contents of the images, as layers that they share.
//!
//! | Layer | Contents | In |
//! |---|---|---|
//! | base | C library, certificates of public authorities, users, `/tmp` | every image |
//! | program | `sluice`, and its links | every image |
//! | tools | what modules call: Git, SSH, `gpg`, a shell with the usual commands | `tf-runner` |
//! | cli | OpenTofu or Terraform | `tf-runner` |

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::archive::ImageConfig;
use crate::debian::{Package, add_files};
use crate::layer::{Layer, LayerError};

/// The packages of the layer `base`.
pub const BASE_PACKAGES: [&str; 5] = [
    "base-files",
    "ca-certificates",
    "gcc-12-base",
    "libc6",
    "libgcc-s1",
];

/// The packages of the layer `tools`: programs, and the libraries that they load. Not Perl: neither a clone nor a submodule needs
/// the scripts that are written in it.
pub const TOOL_PACKAGES: [&str; 48] = [
    "busybox",
    "git",
    "gpg",
    "gpg-agent",
    "gpgconf",
    "libassuan0",
    "libbrotli1",
    "libbsd0",
    "libbz2-1.0",
    "libcbor0.8",
    "libcom-err2",
    "libcurl3-gnutls",
    "libedit2",
    "libffi8",
    "libfido2-1",
    "libgcrypt20",
    "libgmp10",
    "libgnutls30",
    "libgpg-error0",
    "libgssapi-krb5-2",
    "libhogweed6",
    "libidn2-0",
    "libk5crypto3",
    "libkeyutils1",
    "libkrb5-3",
    "libkrb5support0",
    "libldap-2.5-0",
    "libmd0",
    "libnettle8",
    "libnghttp2-14",
    "libnpth0",
    "libp11-kit0",
    "libpcre2-8-0",
    "libpsl5",
    "libreadline8",
    "librtmp1",
    "libsasl2-2",
    "libselinux1",
    "libsqlite3-0",
    "libssh2-1",
    "libssl3",
    "libtasn1-6",
    "libtinfo6",
    "libudev1",
    "libunistring2",
    "libzstd1",
    "openssh-client",
    "zlib1g",
];

/// The commands of `busybox`: those that scripts of Git and of `local-exec` provisioners use. The shell is `/bin/sh`.
const COMMANDS: &str = "[ [[ ash awk base64 basename bc bunzip2 bzcat bzip2 cat chgrp chmod chown clear cmp cp cpio cut date dd \
     diff dirname du echo egrep env expand expr factor false fgrep find fold getopt grep groups gunzip gzip head hexdump hostid hostname id \
     kill killall less link ln logname ls lzcat md5sum mkdir mkfifo mktemp more mv nc nl nproc nslookup od paste patch pidof ping \
     printf ps pwd readlink realpath rev rm rmdir sed seq sh sha1sum sha256sum sha512sum shuf sleep sort stat strings stty \
     sync tac tail tar tee test time timeout top touch tr true truncate tty uname unexpand uniq unlink unxz unzip uptime usleep vi watch wc \
     wget which who whoami xargs xxd xz xzcat yes zcat";

/// The user of the controllers, as in Flux's images.
pub const CONTROLLER_USER: u32 = 65534;
/// The user of runs, as in tofu-controller's image of runs.
pub const RUNNER_USER: u32 = 65532;
/// The home directory of runs, where Jobs mount a volume.
const RUNNER_HOME: &str = "/home/runner";
/// Programs of the project and CLIs.
const PROGRAMS: &str = "/usr/local/bin";
/// The directory of installed CLI versions: the default of `--tools-dir` for Jobs.
const TOOLS: &str = "/opt/tools";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The names under which the program is a controller or the runner.
const LINKS: [&str; 5] = [
    "repo-controller",
    "source-controller",
    "tf-controller",
    "tf-runner",
    "tofu-controller",
];

const USERS: &str = "root:x:0:0:root:/root:/sbin/nologin\n\
     nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n\
     runner:x:65532:65532:runner:/home/runner:/bin/sh\n";
const GROUPS: &str = "root:x:0:\nnogroup:x:65534:\nrunner:x:65532:\n";
const NAME_SERVICES: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// The certificates of a package, and the file in which the programs of every layer find them.
const CERTIFICATES: &str = "usr/share/ca-certificates/mozilla";
const CERTIFICATE_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// An image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// The program; a container is source-controller.
    SourceController,
    /// The same layers; a container is tf-controller.
    TfController,
    /// The program, a CLI, and what modules call.
    TfRunner,
}

impl ImageKind {
    /// Every image.
    pub const ALL: [Self; 3] = [Self::SourceController, Self::TfController, Self::TfRunner];

    /// Returns the last part of the image's name, which is also the name of its program.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SourceController => "source-controller",
            Self::TfController => "tf-controller",
            Self::TfRunner => "tf-runner",
        }
    }

    /// Returns how a container of the image starts.
    #[must_use]
    pub fn config(self, version: &str) -> ImageConfig {
        let variables: &[(&str, &str)] = match self {
            Self::SourceController | Self::TfController => &[("PATH", PATH)],
            // The home directory may be read-only, and tofu-controller's image has the same value.
            Self::TfRunner => &[("GNUPGHOME", "/tmp"), ("HOME", RUNNER_HOME), ("PATH", PATH)],
        };
        let user = match self {
            Self::SourceController | Self::TfController => CONTROLLER_USER,
            Self::TfRunner => RUNNER_USER,
        };
        let texts = |all: &[(&str, &str)]| {
            let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            all.iter().map(pair).collect::<BTreeMap<_, _>>()
        };
        ImageConfig {
            user,
            entrypoint: format!("{PROGRAMS}/{}", self.name()),
            environment: texts(variables),
            labels: texts(&[
                ("org.opencontainers.image.licenses", "Apache-2.0"),
                ("org.opencontainers.image.title", self.name()),
                ("org.opencontainers.image.version", version),
            ]),
        }
    }
}

/// A CLI that an image contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliProgram {
    /// `tofu` or `terraform`.
    pub name: String,
    /// The version that it reports.
    pub version: String,
    /// The program on this machine.
    pub path: PathBuf,
    /// Whether it is the one on `PATH`. Each is one of the installed versions.
    pub is_default: bool,
}

impl CliProgram {
    fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.version == other.version
    }
}

/// Returns the layer `base`.
///
/// # Errors
/// When a package cannot be read.
pub fn base(packages: &[Package]) -> Result<Layer, LayerError> {
    let mut layer = Layer::default();
    add_files(&mut layer, packages)?;
    for directory in ["/usr/bin", "/usr/sbin"] {
        layer.directory(directory, 0o755, 0)?;
    }
    for directory in ["bin", "lib", "lib64", "sbin"] {
        if layer.contains(&format!("/usr/{directory}")) {
            layer.link(&format!("/{directory}"), &format!("usr/{directory}"))?;
        }
    }
    layer.text("/etc/passwd", USERS)?;
    layer.text("/etc/group", GROUPS)?;
    layer.text("/etc/nsswitch.conf", NAME_SERVICES)?;
    layer.text(CERTIFICATE_BUNDLE, certificates(packages)?)?;
    layer.directory("/tmp", 0o1777, 0)?;
    Ok(layer)
}

/// Returns the layer `program`.
///
/// # Errors
/// Never: the paths are constants.
pub fn program(program: &Path) -> Result<Layer, LayerError> {
    let mut layer = Layer::default();
    layer.file(&format!("{PROGRAMS}/sluice"), program)?;
    for link in LINKS {
        layer.link(&format!("{PROGRAMS}/{link}"), "sluice")?;
    }
    Ok(layer)
}

/// Returns the layer `tools`.
///
/// # Errors
/// When a package cannot be read.
pub fn tools(packages: &[Package]) -> Result<Layer, LayerError> {
    let mut layer = Layer::default();
    add_files(&mut layer, packages)?;
    // Debian's package has a copy of the program here.
    layer.link("/usr/lib/git-core/git", "../../bin/git")?;
    for command in COMMANDS.split_ascii_whitespace() {
        layer.link(&format!("/usr/bin/{command}"), "busybox")?;
    }
    layer.directory(RUNNER_HOME, 0o755, RUNNER_USER)?;
    Ok(layer)
}

/// Returns the programs without those that are the default too: the image has one file of both.
pub(crate) fn distinct(programs: &[CliProgram]) -> impl Iterator<Item = &CliProgram> {
    programs.iter().filter(|program| {
        let is_default = |other: &CliProgram| other.is_default && other.is_same(program);
        program.is_default || !programs.iter().any(is_default)
    })
}

/// Returns the layer `cli`.
///
/// # Errors
/// When two installed programs, or two defaults, have one name.
pub fn cli(programs: &[CliProgram]) -> Result<Layer, LayerError> {
    let mut layer = Layer::default();
    for program in distinct(programs) {
        let CliProgram { name, version, .. } = program;
        let target = format!("{TOOLS}/{name}/{version}/{name}");
        if program.is_default {
            layer.link(&format!("{PROGRAMS}/{name}"), &format!("../../..{target}"))?;
        }
        layer.file(&target, &program.path)?;
    }
    Ok(layer)
}

/// Returns the commands that `busybox --list` lacks.
pub(crate) fn missing_commands(listed: &str) -> Vec<&'static str> {
    let commands = COMMANDS.split_ascii_whitespace();
    commands
        .filter(|command| !listed.lines().any(|line| line == *command))
        .collect()
}

/// Returns all certificates of the packages in one text, by the names of their files.
fn certificates(packages: &[Package]) -> Result<Vec<u8>, LayerError> {
    let mut bundle = Vec::new();
    for package in packages {
        let folder = package.files.join(CERTIFICATES);
        let mut read = || {
            if !folder.is_dir() {
                return Ok(());
            }
            let files = fs::read_dir(&folder)?;
            let mut paths = files
                .map(|entry| Ok(entry?.path()))
                .collect::<io::Result<Vec<_>>>()?;
            paths.sort();
            for path in paths {
                let certificate = fs::read(path)?;
                bundle.extend_from_slice(certificate.trim_ascii_end());
                bundle.push(b'\n');
            }
            Ok(())
        };
        read().map_err(|source| LayerError::Read {
            path: folder.clone(),
            source,
        })?;
    }
    Ok(bundle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debian::{ARCHITECTURES, Lock, PACKAGES_LOCK};

    #[test]
    fn the_lock_file_has_every_package_for_every_architecture_and_no_other() {
        let lock = Lock::parse(PACKAGES_LOCK).unwrap();
        let names = || BASE_PACKAGES.iter().chain(&TOOL_PACKAGES);
        for architecture in ARCHITECTURES {
            for name in names() {
                assert!(
                    lock.package(architecture, name).is_some(),
                    "{architecture} {name}"
                );
            }
        }
        assert_eq!(lock.to_string(), PACKAGES_LOCK);
        let head = 1;
        assert_eq!(
            PACKAGES_LOCK.lines().count(),
            head + names().count() * ARCHITECTURES.len()
        );
    }
}
