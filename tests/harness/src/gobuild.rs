//! Builds the programs that the suites need from the Go modules pinned under `tests/assets`.
//!
//! A binary is kept under `<target>/tools/<name>-<hash>/<name>`, where the hash covers go.mod, go.sum, the module's own
//! code and the flags: what is there is right, and what is not there is built. A lock keeps two builders from doing the same work twice.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

/// Same flags on each build, or Go's cache is missed.
const FLAGS: &str = "-trimpath -buildvcs=false -mod=readonly";
/// A line of progress at most this often.
const PACE: Duration = Duration::from_secs(5);
/// Lines of Go's output that an error shows.
const SHOWN: usize = 20;

/// A program that can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// The store behind the API server.
    Etcd,
    /// The Kubernetes API.
    KubeApiserver,
    /// Kubernetes' own controllers, for garbage collection and namespaces.
    KubeControllerManager,
    /// The client that people use.
    Kubectl,
    /// The free continuation of Terraform.
    Tofu,
    /// The suites' own provider, of which the source is here.
    TrialProvider,
}

/// Why a program is not there.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// No Go.
    #[error(
        "`{0}` has to be built, and `go` is not on PATH: install Go (https://go.dev/dl/), or put `{0}` on PATH"
    )]
    NoGo(&'static str),
    /// Go said no.
    #[error("`go build` of {name} failed:\n{output}")]
    Failed {
        /// The program.
        name: &'static str,
        /// The last lines that Go printed.
        output: String,
    },
    /// The cache folder cannot be read or written.
    #[error("cannot use {path}: {source}")]
    Cache {
        /// File or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Tool {
    /// Every program, in the order in which they build fastest.
    pub const ALL: [Self; 6] = [
        Self::TrialProvider,
        Self::Etcd,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::Kubectl,
        Self::Tofu,
    ];

    /// The program's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::Kubectl => "kubectl",
            Self::Tofu => "tofu",
            Self::TrialProvider => "terraform-provider-trial",
        }
    }

    /// The program of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    const fn module(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver | Self::KubeControllerManager | Self::Kubectl => "kube",
            Self::Tofu => "tofu",
            Self::TrialProvider => "trial",
        }
    }

    const fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::Tofu => "github.com/opentofu/opentofu/cmd/tofu",
            Self::TrialProvider => "sluice.dev/assets/trial",
        }
    }

    /// Kubernetes' programs say `v0.0.0-master` and `tofu` says `-dev` unless told otherwise.
    const fn linker_flags(self) -> &'static str {
        match self {
            Self::Etcd | Self::TrialProvider => "-s -w",
            Self::KubeApiserver | Self::KubeControllerManager | Self::Kubectl => concat!(
                "-s -w -X k8s.io/component-base/version.gitVersion=v1.34.4",
                " -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34"
            ),
            Self::Tofu => "-s -w -X github.com/opentofu/opentofu/version.dev=no",
        }
    }
}

/// Where a program is, or will be once it is built.
///
/// # Errors
/// When the module's files cannot be read.
pub fn place(tool: Tool) -> Result<PathBuf, BuildError> {
    let module = module(tool);
    let mut hash = Sha256::new();
    for path in sources(&module)? {
        hash.update(fs::read(&path).map_err(|source| BuildError::Cache { path, source })?);
    }
    for flag in [
        FLAGS,
        tool.package(),
        tool.linker_flags(),
        std::env::consts::OS,
        std::env::consts::ARCH,
    ] {
        hash.update([0]);
        hash.update(flag);
    }
    let hash = hex::encode(hash.finalize());
    Ok(tools()
        .join(format!("{}-{}", tool.name(), &hash[..12]))
        .join(tool.name()))
}

/// What a module is made of, beside the modules that it pins.
fn sources(module: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let unreadable = |source| BuildError::Cache {
        path: module.to_owned(),
        source,
    };
    let mut files = vec![module.join("go.mod"), module.join("go.sum")];
    let mut code = Vec::new();
    for entry in fs::read_dir(module).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "go") {
            code.push(path);
        }
    }
    code.sort();
    files.append(&mut code);
    Ok(files)
}

/// The program, built first when it is not there. `progress` is given lines for a person.
///
/// # Errors
/// When Go is missing or the build fails.
pub fn build(tool: Tool, progress: &mut dyn FnMut(&str)) -> Result<PathBuf, BuildError> {
    let wanted = place(tool)?;
    if wanted.is_file() {
        return Ok(wanted);
    }
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| BuildError::Cache { path, source }
    };
    let home = wanted.parent().unwrap_or(&wanted);
    fs::create_dir_all(home).map_err(at(home))?;
    let lock = tools().join(format!("{}.lock", tool.name()));
    let held = File::create(&lock).map_err(at(&lock))?;
    held.lock().map_err(at(&lock))?;
    if wanted.is_file() {
        return Ok(wanted);
    }
    let unfinished = wanted.with_extension("unfinished");
    compile(tool, &unfinished, progress)?;
    fs::rename(&unfinished, &wanted).map_err(at(&wanted))?;
    Ok(wanted)
}

fn compile(tool: Tool, output: &Path, progress: &mut dyn FnMut(&str)) -> Result<(), BuildError> {
    let (name, started) = (tool.name(), Instant::now());
    progress(&format!("{name}: building from its Go module; this happens once"));
    let mut child = go(tool, output)?;
    let mut packages = 0_u32;
    let (mut told, mut last) = (started, Vec::new());
    for line in child
        .stderr
        .take()
        .into_iter()
        .flat_map(|stderr| BufReader::new(stderr).lines())
        .map_while(Result::ok)
    {
        // `go build -v` prints one import path per package that it compiles; anything with a blank is a message.
        packages += u32::from(!line.contains(' '));
        if told.elapsed() >= PACE {
            told = Instant::now();
            progress(&format!(
                "{name}: {packages} packages, {} s ({line})",
                started.elapsed().as_secs()
            ));
        }
        last.push(line);
        if last.len() > SHOWN {
            last.remove(0);
        }
    }
    let ended = child.wait().map_err(|source| BuildError::Cache {
        path: output.into(),
        source,
    })?;
    if !ended.success() {
        return Err(BuildError::Failed {
            name,
            output: last.join("\n"),
        });
    }
    progress(&format!("{name}: built in {} s", started.elapsed().as_secs()));
    Ok(())
}

fn go(tool: Tool, output: &Path) -> Result<Child, BuildError> {
    let mut command = Command::new("go");
    command
        .args(["build", "-v", "-ldflags", tool.linker_flags(), "-o"])
        .arg(output)
        .arg(tool.package());
    command
        .current_dir(module(tool))
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", FLAGS)
        .env_remove("GOWORK");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => BuildError::NoGo(tool.name()),
        _ => BuildError::Cache {
            path: "go".into(),
            source,
        },
    })
}

/// The workspace's root: two folders above this crate.
#[must_use]
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

fn module(tool: Tool) -> PathBuf {
    workspace().join("tests/assets").join(tool.module())
}

/// `tools` in cargo's target folder, which the environment may have moved: programs that are got once.
pub(crate) fn tools() -> PathBuf {
    let moved = std::env::var_os("CARGO_TARGET_DIR").or_else(|| std::env::var_os("CARGO_BUILD_TARGET_DIR"));
    workspace()
        .join(moved.unwrap_or_else(|| "target".into()))
        .join("tools")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_pinned_module_and_a_place_of_its_own() {
        let places: Vec<_> = Tool::ALL.into_iter().map(|tool| place(tool).unwrap()).collect();
        let distinct: std::collections::BTreeSet<_> = places.iter().collect();
        assert_eq!(distinct.len(), Tool::ALL.len());
        for (tool, place) in Tool::ALL.into_iter().zip(&places) {
            assert_eq!(Tool::named(tool.name()), Some(tool));
            assert!(place.starts_with(tools()), "{}", place.display());
            let listed = fs::read_to_string(module(tool).join("go.mod")).unwrap();
            assert!(listed.contains(tool.package()), "{}", tool.package());
        }
    }

    #[test]
    fn without_go_the_error_says_what_to_install() {
        let text = BuildError::NoGo("tofu").to_string();
        assert!(
            text.contains("go.dev/dl") && text.contains("`tofu` on PATH"),
            "{text}"
        );
    }
}
