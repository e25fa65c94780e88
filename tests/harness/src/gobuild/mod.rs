//! Builds programs of the suites from the Go modules pinned under `tests/assets`.
//!
//! A binary is cached as `<target>/tools/<name>-<hash>/<name>`. The hash covers go.mod, go.sum, the module's own code and
//! the flags, so a cached binary is never outdated. A lock prevents two concurrent builds of the same program.

mod tool;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
pub use tool::Tool;

/// The same flags for each build, to hit Go's cache.
const FLAGS: &str = "-trimpath -buildvcs=false -mod=readonly";
/// Shortest interval between progress lines.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Number of lines of Go's output in an error.
const MAX_ERROR_LINES: usize = 20;

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
        tool.source().package,
        tool.source().linker_flags,
        std::env::consts::OS,
        std::env::consts::ARCH,
    ] {
        hash.update([0]);
        hash.update(flag);
    }
    if !tool.source().tags.is_empty() {
        hash.update([0]);
        hash.update(tool.source().tags);
    }
    let hash = hex::encode(hash.finalize());
    Ok(tools_dir()
        .join(format!("{}-{}", tool.name(), &hash[..12]))
        .join(tool.name()))
}

/// Returns the version of the module that contains the program's package, if it is published: `v1.2.3`.
#[must_use]
pub fn version(tool: Tool) -> Option<String> {
    let text = fs::read_to_string(module(tool).join("go.mod")).ok()?;
    required_version(&text, tool.source().package).map(str::to_owned)
}

/// Returns the version of the module of a package among the requirements of a `go.mod`.
fn required_version<'a>(text: &'a str, package: &str) -> Option<&'a str> {
    let is_inside = |module: &str| {
        let rest = package.strip_prefix(module);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let requirements = text.lines().filter_map(|line| {
        let line = line.trim();
        let (module, version) = line.strip_prefix("require ").unwrap_or(line).split_once(' ')?;
        let version = version.split(' ').next()?;
        (version.starts_with('v') && is_inside(module)).then_some((module, version))
    });
    // A module can contain the path of another one.
    let (_, version) = requirements.max_by_key(|(module, _)| module.len())?;
    Some(version)
}

/// Returns the folder with the files of the module that contains the program's package, such as its manifests. Downloads it first if needed.
///
/// # Errors
/// When Go is missing or does not find the module.
pub fn package_folder(tool: Tool) -> Result<PathBuf, BuildError> {
    let mut list = Command::new("go");
    list.args(["list", "-f", "{{.Dir}}", tool.source().package])
        .current_dir(module(tool))
        .env("GOFLAGS", FLAGS)
        .env_remove("GOWORK")
        .stdin(Stdio::null());
    let output = list.output().map_err(|source| no_go(tool, source))?;
    if !output.status.success() {
        return Err(BuildError::Failed {
            name: tool.name(),
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().into())
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
    if tool.source().missing_file.is_empty() {
        compile(tool, &module(tool), &unfinished, progress)?;
    } else {
        let copy = complete_module(tool, home)?;
        compile(tool, &copy, &unfinished, progress)?;
        fs::remove_dir_all(&copy).map_err(at(&copy))?;
    }
    fs::rename(&unfinished, &binary).map_err(at(&binary))?;
    Ok(binary)
}

/// Copies the module of the program's package to `home`, and adds the file that the published module lacks: its authors generate it for
/// their releases. Go builds the copy with the versions and hashes of the module's own go.mod and go.sum, which the pinned hash covers.
fn complete_module(tool: Tool, home: &Path) -> Result<PathBuf, BuildError> {
    let package = tool.source().package;
    let path = package.split_once("/cmd/").map_or(package, |(path, _)| path);
    let mut download = Command::new("go");
    download
        .args(["mod", "download", "-json", path])
        .current_dir(module(tool))
        .env("GOFLAGS", FLAGS)
        .env_remove("GOWORK")
        .stdin(Stdio::null());
    let output = download.output().map_err(|source| no_go(tool, source))?;
    let failed = |reason: &[u8]| BuildError::Failed {
        name: tool.name(),
        output: String::from_utf8_lossy(reason).into_owned(),
    };
    let described: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|_| failed(&output.stderr))?;
    let folder = described["Dir"].as_str().ok_or_else(|| failed(&output.stdout))?;
    let copy = home.join("module");
    let at = |source| BuildError::Cache {
        path: copy.clone(),
        source,
    };
    if copy.exists() {
        fs::remove_dir_all(&copy).map_err(at)?;
    }
    copy_folder(Path::new(folder), &copy).map_err(at)?;
    let missing = copy.join(tool.source().missing_file);
    fs::create_dir_all(missing.parent().unwrap_or(&copy)).map_err(at)?;
    fs::write(missing, "# Only releases have manifests here.\n").map_err(at)?;
    Ok(copy)
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_folder(&path, &target)?;
        } else {
            fs::copy(&path, &target)?;
        }
    }
    Ok(())
}

fn compile(
    tool: Tool,
    folder: &Path,
    output: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<(), BuildError> {
    let (name, started) = (tool.name(), Instant::now());
    progress(&format!("{name}: building from its Go module (once)"));
    let mut child = go(tool, folder, output)?;
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

fn go(tool: Tool, folder: &Path, output: &Path) -> Result<Child, BuildError> {
    let mut command = Command::new("go");
    command
        .args(["build", "-v", "-tags", tool.source().tags])
        .args(["-ldflags", tool.source().linker_flags, "-o"])
        .arg(output)
        .arg(tool.source().package);
    command
        .current_dir(folder)
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", FLAGS)
        .env_remove("GOWORK");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command.spawn().map_err(|source| no_go(tool, source))
}

fn no_go(tool: Tool, source: io::Error) -> BuildError {
    match source.kind() {
        io::ErrorKind::NotFound => BuildError::NoGo(tool.name()),
        _ => BuildError::Cache {
            path: "go".into(),
            source,
        },
    }
}

/// Returns the root of the workspace: two folders above this crate.
#[must_use]
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

fn module(tool: Tool) -> PathBuf {
    workspace().join("tests/assets").join(tool.source().module)
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
            assert!(
                listed.contains(tool.source().package),
                "{}",
                tool.source().package
            );
        }
    }

    #[test]
    fn the_version_of_a_program_is_that_of_its_module() {
        let text = "module m\n\nrequire a.example/a v1.0.0\n\nrequire (\n\ta.example/a/api v1.2.0\n\ta.example/ab v3.0.0 // indirect\n)\n\n\
             replace a.example/c => a.example/a v9.0.0\n";
        let version = |package| required_version(text, package);
        assert_eq!(version("a.example/a"), Some("v1.0.0"));
        assert_eq!(version("a.example/a/cmd"), Some("v1.0.0"));
        assert_eq!(version("a.example/a/api/cmd"), Some("v1.2.0"));
        assert_eq!(version("a.example/ab"), Some("v3.0.0"));
        assert_eq!(version("a.example/c"), None);
        let flux = super::version(Tool::FluxSourceController).unwrap();
        assert!(flux.starts_with("v1."), "{flux}");
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
