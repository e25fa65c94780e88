//! Builds programs of the suites from the Go modules pinned under `tests/assets`.
//!
//! A binary is cached as `<target>/tools/<name>-<hash>/<name>`. The hash covers go.mod, go.sum, the module's own code and
//! the flags, so a cached binary is never outdated. A lock prevents two concurrent builds of the same program.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

/// The same flags for each build, to hit Go's cache.
const FLAGS: &str = "-trimpath -buildvcs=false -mod=readonly";
/// Shortest interval between progress lines.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Number of lines of Go's output in an error.
const MAX_ERROR_LINES: usize = 20;

/// A program that can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// The store of the API server.
    Etcd,
    /// The Kubernetes API.
    KubeApiserver,
    /// Kubernetes' own controllers, for garbage collection and namespaces.
    KubeControllerManager,
    /// Assigns pods to the node.
    KubeScheduler,
    /// Runs pods.
    Kubelet,
    /// Routes service addresses to pods.
    KubeProxy,
    /// Resolves service names.
    Coredns,
    /// The process that holds the namespaces of a pod.
    Pause,
    /// The Kubernetes command-line client.
    Kubectl,
    /// The installer of charts.
    Helm,
    /// Checks and tests the rules of Prometheus.
    Promtool,
    /// OpenTofu.
    Tofu,
    /// The provider of the suites; its source is in this repository.
    TrialProvider,
}

/// Why a program is not available.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Go is not installed.
    #[error(
        "`{0}` has to be built, and `go` is not on PATH: install Go (https://go.dev/dl/), or put `{0}` on PATH"
    )]
    NoGo(&'static str),
    /// `go build` failed.
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
        /// The error of the system.
        source: io::Error,
    },
}

impl Tool {
    /// Every program, ordered by build time.
    pub const ALL: [Self; 13] = [
        Self::Pause,
        Self::TrialProvider,
        Self::Etcd,
        Self::Promtool,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kubelet,
        Self::KubeProxy,
        Self::Coredns,
        Self::Kubectl,
        Self::Helm,
        Self::Tofu,
    ];

    /// Returns the program's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Coredns => "coredns",
            Self::Pause => "pause",
            Self::Kubectl => "kubectl",
            Self::Helm => "helm",
            Self::Promtool => "promtool",
            Self::Tofu => "tofu",
            Self::TrialProvider => "terraform-provider-trial",
        }
    }

    /// Returns the program with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    const fn module(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubelet
            | Self::KubeProxy
            | Self::Kubectl => "kube",
            Self::Coredns => "coredns",
            Self::Pause => "pause",
            Self::Helm => "helm",
            Self::Promtool => "promtool",
            Self::Tofu => "tofu",
            Self::TrialProvider => "trial",
        }
    }

    const fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::KubeScheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
            Self::Kubelet => "k8s.io/kubernetes/cmd/kubelet",
            Self::KubeProxy => "k8s.io/kubernetes/cmd/kube-proxy",
            Self::Coredns => "sluice.dev/assets/coredns",
            Self::Pause => "sluice.dev/assets/pause",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::Helm => "helm.sh/helm/v3/cmd/helm",
            Self::Promtool => "github.com/prometheus/prometheus/cmd/promtool",
            Self::Tofu => "github.com/opentofu/opentofu/cmd/tofu",
            Self::TrialProvider => "sluice.dev/assets/trial",
        }
    }

    /// Without these flags the Kubernetes programs report `v0.0.0-master`, `tofu` reports `-dev`, and `helm template` renders for
    /// Kubernetes 1.20.
    const fn linker_flags(self) -> &'static str {
        match self {
            Self::Etcd | Self::Promtool | Self::TrialProvider | Self::Coredns | Self::Pause => "-s -w",
            Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubelet
            | Self::KubeProxy
            | Self::Kubectl => concat!(
                "-s -w -X k8s.io/component-base/version.gitVersion=v1.34.4",
                " -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34"
            ),
            Self::Helm => concat!(
                "-s -w -X helm.sh/helm/v3/internal/version.version=v3.19.5",
                " -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1",
                " -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=34"
            ),
            Self::Tofu => "-s -w -X github.com/opentofu/opentofu/version.dev=no",
        }
    }

    /// Build tags. Without this one, promtool contains the service discovery of every cloud.
    const fn tags(self) -> &'static str {
        match self {
            Self::Promtool => "remove_all_sd",
            _ => "",
        }
    }
}

/// Returns the path of a program, whether it is built or not.
///
/// # Errors
/// When the module's files cannot be read.
pub fn binary_path(tool: Tool) -> Result<PathBuf, BuildError> {
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
    if !tool.tags().is_empty() {
        hash.update([0]);
        hash.update(tool.tags());
    }
    let hash = hex::encode(hash.finalize());
    Ok(tools_dir()
        .join(format!("{}-{}", tool.name(), &hash[..12]))
        .join(tool.name()))
}

/// Returns the source files of a module; the modules that it pins are covered by go.sum.
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

/// Returns the path of a program; builds it first if needed. `progress` receives lines for the terminal.
///
/// # Errors
/// When Go is missing or the build fails.
pub fn build(tool: Tool, progress: &mut dyn FnMut(&str)) -> Result<PathBuf, BuildError> {
    let binary = binary_path(tool)?;
    if binary.is_file() {
        return Ok(binary);
    }
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| BuildError::Cache { path, source }
    };
    let home = binary.parent().unwrap_or(&binary);
    fs::create_dir_all(home).map_err(at(home))?;
    let lock = tools_dir().join(format!("{}.lock", tool.name()));
    let lock_file = File::create(&lock).map_err(at(&lock))?;
    lock_file.lock().map_err(at(&lock))?;
    if binary.is_file() {
        return Ok(binary);
    }
    let unfinished = binary.with_extension("unfinished");
    compile(tool, &unfinished, progress)?;
    fs::rename(&unfinished, &binary).map_err(at(&binary))?;
    Ok(binary)
}

fn compile(tool: Tool, output: &Path, progress: &mut dyn FnMut(&str)) -> Result<(), BuildError> {
    let (name, started) = (tool.name(), Instant::now());
    progress(&format!("{name}: building from its Go module (once)"));
    let mut child = go(tool, output)?;
    let mut packages = 0_u32;
    let (mut last_progress, mut last_lines) = (started, Vec::new());
    for line in child
        .stderr
        .take()
        .into_iter()
        .flat_map(|stderr| BufReader::new(stderr).lines())
        .map_while(Result::ok)
    {
        // `go build -v` prints one import path per compiled package; a line with a space is a message.
        packages += u32::from(!line.contains(' '));
        if last_progress.elapsed() >= PROGRESS_INTERVAL {
            last_progress = Instant::now();
            progress(&format!(
                "{name}: {packages} packages, {} s ({line})",
                started.elapsed().as_secs()
            ));
        }
        last_lines.push(line);
        if last_lines.len() > MAX_ERROR_LINES {
            last_lines.remove(0);
        }
    }
    let ended = child.wait().map_err(|source| BuildError::Cache {
        path: output.into(),
        source,
    })?;
    if !ended.success() {
        return Err(BuildError::Failed {
            name,
            output: last_lines.join("\n"),
        });
    }
    progress(&format!("{name}: built in {} s", started.elapsed().as_secs()));
    Ok(())
}

fn go(tool: Tool, output: &Path) -> Result<Child, BuildError> {
    let mut command = Command::new("go");
    command
        .args(["build", "-v", "-tags", tool.tags()])
        .args(["-ldflags", tool.linker_flags(), "-o"])
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

/// Returns the root of the workspace: two folders above this crate.
#[must_use]
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

fn module(tool: Tool) -> PathBuf {
    workspace().join("tests/assets").join(tool.module())
}

/// Returns `tools` in cargo's target folder, which environment variables may have moved.
#[must_use]
pub fn tools_dir() -> PathBuf {
    let moved = std::env::var_os("CARGO_TARGET_DIR").or_else(|| std::env::var_os("CARGO_BUILD_TARGET_DIR"));
    workspace()
        .join(moved.unwrap_or_else(|| "target".into()))
        .join("tools")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_pinned_module_and_its_own_path() {
        let paths: Vec<_> = Tool::ALL
            .into_iter()
            .map(|tool| binary_path(tool).unwrap())
            .collect();
        let distinct: std::collections::BTreeSet<_> = paths.iter().collect();
        assert_eq!(distinct.len(), Tool::ALL.len());
        for (tool, path) in Tool::ALL.into_iter().zip(&paths) {
            assert_eq!(Tool::named(tool.name()), Some(tool));
            assert!(path.starts_with(tools_dir()), "{}", path.display());
            let listed = fs::read_to_string(module(tool).join("go.mod")).unwrap();
            assert!(listed.contains(tool.package()), "{}", tool.package());
        }
    }

    #[test]
    fn without_go_the_error_names_what_to_install() {
        let text = BuildError::NoGo("tofu").to_string();
        assert!(
            text.contains("go.dev/dl") && text.contains("`tofu` on PATH"),
            "{text}"
        );
    }
}
