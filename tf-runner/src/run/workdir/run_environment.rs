//! Puts what the CLI finds around the module in its place: its configuration and mapped files. No link is followed on the
//! way to a file, and none leads out: folders are 0700, files 0600.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use crate::run::workdir::prepare::write_private;
use sluice_tf_core::artifact_path;
use sluice_tf_core::bundle::Location;
use sluice_tf_core::bundle::{Bundle, RunEnvironment};
use sluice_tf_core::workdir::Home;

/// The CLI's own variable for the place of its configuration.
const CLI_CONFIG: &str = "TF_CLI_CONFIG_FILE";

/// The argument of the kubernetes backend that names a kubeconfig.
const KUBECONFIG_ARGUMENT: &str = "config_path";
/// Start of a kubernetes backend in `backend_override.tf`.
const KUBERNETES_BACKEND: &str = "backend \"kubernetes\"";

/// Writes the CLI's configuration and the mapped files.
pub(crate) fn write(module: &Path, home: &Home, given: &RunEnvironment) -> Result<(), RunError> {
    if let Some(config) = &given.cli_config {
        write_below(module, &config.name, &config.content.0)?;
    }
    for file in &given.files {
        let base = match file.location {
            Location::Home => home.create()?,
            Location::Workspace => module,
        };
        write_below(base, &file.path, &file.content.0)?;
    }
    Ok(())
}

/// The variables that lead the CLI to them. A stack's own `HOME` stands.
pub(crate) fn environment(
    module: &Path,
    home: &Home,
    given: &RunEnvironment,
    own: &BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let mut all = Vec::new();
    if let Some(config) = &given.cli_config {
        let path = module.join(&config.name);
        all.push((CLI_CONFIG.to_owned(), path.display().to_string()));
    }
    let mapped = given.files.iter().any(|file| file.location == Location::Home);
    if mapped && !own.contains_key("HOME") {
        all.push(("HOME".to_owned(), home.path.display().to_string()));
    }
    all
}

/// The value of `TF_CLI_ARGS_init`. The arguments hold credentials: everybody on a machine can read the words of a
/// command line, but nobody the environment of another's process.
/// `api` is the kubeconfig of a kubernetes backend.
pub(crate) fn init_arguments(given: &RunEnvironment, api: Option<&Path>) -> Option<String> {
    let api = api.map(|path| (KUBECONFIG_ARGUMENT.to_owned(), path.display().to_string()));
    let words: Vec<_> = given
        .backend_arguments
        .clone()
        .into_iter()
        .chain(api)
        .map(|(name, value)| quoted(&format!("-backend-config={name}={value}")))
        .collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Writes the kubeconfig of the CLI's kubernetes backend, if the run has one and the generated backend needs it; returns its path.
pub(crate) fn write_kubeconfig(
    context: &Context,
    bundle: &Bundle,
    root: &Path,
) -> Result<Option<PathBuf>, RunError> {
    let Some(kubeconfig) = &context.backend_kubeconfig else {
        return Ok(None);
    };
    if !needs_kubeconfig(bundle) {
        return Ok(None);
    }
    let path = kubeconfig_path(root);
    write_private(&path, kubeconfig.as_bytes())?;
    Ok(Some(path))
}

/// Whether the backend is kubernetes and does not configure an API itself.
fn needs_kubeconfig(bundle: &Bundle) -> bool {
    let text = bundle.backend.as_deref().unwrap_or_default();
    let arguments = &bundle.run_environment.backend_arguments;
    text.contains(KUBERNETES_BACKEND)
        && !text.contains(KUBECONFIG_ARGUMENT)
        && !arguments
            .keys()
            .any(|name| name.starts_with(KUBECONFIG_ARGUMENT) || name == "host")
}

/// Next to the stack's directory, with a name that no stack has. A plan stores the path, so it is the same for each run.
fn kubeconfig_path(root: &Path) -> PathBuf {
    let base = root.file_name().unwrap_or_default().to_string_lossy();
    root.with_file_name(format!(".{base}.kubeconfig"))
}

/// One word, as the CLI's splitter of words reads it back.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Writes a file below `base`, and the folders on the way. `..` stays at `base`, as if it were the root of the file system.
fn write_below(base: &Path, path: &str, bytes: &[u8]) -> Result<(), RunError> {
    let failed = |why: String| RunError::Mapped {
        path: path.to_owned(),
        why,
    };
    let system = |error: Errno| match error {
        Errno::LOOP | Errno::NOTDIR => failed("a link or a file is in the way".to_owned()),
        error => failed(std::io::Error::from(error).to_string()),
    };
    let clean = artifact_path::normalize(path);
    let names: Vec<_> = clean.iter().collect();
    let Some((file, folders)) = names.split_last() else {
        return Err(failed("it names no file".to_owned()));
    };
    let folder = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(base, folder, Mode::empty()).map_err(system)?;
    for name in folders {
        match rustix::fs::mkdirat(&at, *name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(system(error)),
        }
        at = rustix::fs::openat(&at, *name, folder | OFlags::NOFOLLOW, Mode::empty()).map_err(system)?;
    }
    let how = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let private = Mode::RUSR | Mode::WUSR;
    let opened = rustix::fs::openat(&at, *file, how, private).map_err(system)?;
    // One that came with the artifact has other permissions.
    rustix::fs::fchmod(&opened, private).map_err(system)?;
    File::from(opened)
        .write_all(bytes)
        .map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn files_are_private_and_replace_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &str| {
            let found = std::fs::metadata(dir.path().join(path)).unwrap();
            found.permissions().mode() & 0o777
        };
        std::fs::write(dir.path().join("old"), "a longer text").unwrap();
        write_below(dir.path(), "/old", b"new").unwrap();
        write_below(dir.path(), "a/./b/key.pem", b"k").unwrap();
        assert_eq!(std::fs::read(dir.path().join("old")).unwrap(), b"new");
        assert_eq!(
            (mode("old"), mode("a"), mode("a/b/key.pem")),
            (0o600, 0o700, 0o600)
        );
    }

    #[test]
    fn a_path_that_climbs_stays_below() {
        let parent = tempfile::tempdir().unwrap();
        let base = parent.path().join("base");
        std::fs::create_dir(&base).unwrap();
        for path in ["../x", "a/../../x", "/../../x", "none/../x"] {
            write_below(&base, path, path.as_bytes()).unwrap();
            assert_eq!(std::fs::read(base.join("x")).unwrap(), path.as_bytes());
        }
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(&base).unwrap().count(), 1);
    }

    #[test]
    fn nothing_is_written_through_a_link_or_outside() {
        let outside = tempfile::tempdir().unwrap();
        let dir = tempfile::tempdir().unwrap();
        symlink(outside.path(), dir.path().join("folder")).unwrap();
        symlink(outside.path().join("x"), dir.path().join("file")).unwrap();
        for path in [
            "folder/x",
            "file",
            "../folder/x",
            "a/../file",
            "",
            "/",
            ".",
            "..",
            "a/..",
        ] {
            let refused = write_below(dir.path(), path, b"secret");
            assert!(matches!(refused, Err(RunError::Mapped { .. })), "{path}");
        }
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn arguments_of_init_are_one_word_each() {
        let given = RunEnvironment {
            backend_arguments: [
                ("b".to_owned(), "it's $HOME".to_owned()),
                ("a".to_owned(), String::new()),
            ]
            .into(),
            ..RunEnvironment::default()
        };
        assert_eq!(
            init_arguments(&given, None).unwrap(),
            "'-backend-config=a=' '-backend-config=b=it'\\''s $HOME'"
        );
        assert_eq!(init_arguments(&RunEnvironment::default(), None), None);
    }

    proptest! {
        /// No path, however odd, makes or changes a file outside.
        #[test]
        fn no_path_leads_out(path in "[./a\u{0}-]{0,12}") {
            let parent = tempfile::tempdir().unwrap();
            let base = parent.path().join("base");
            std::fs::create_dir(&base).unwrap();
            let _ = write_below(&base, &path, b"x");
            prop_assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 1);
        }
    }
}
