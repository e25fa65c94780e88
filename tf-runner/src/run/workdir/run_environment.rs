//! The execution environment of the CLI: its variables, its configuration and mapped files. Files are written without following
//! links. Directories have the mode 0700, files 0600.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sluice_tf_core::artifact_path;
use sluice_tf_core::bundle::{Bundle, Location, RunEnvironment};
use sluice_tf_core::workdir::Home;

use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use crate::run::workdir::write_private;

/// Variables that would change commands or output. tofu-controller rejects them as well.
const REJECTED: [&str; 12] = [
    "TF_INPUT",
    "TF_IN_AUTOMATION",
    "TF_LOG",
    "TF_LOG_CORE",
    "TF_LOG_PATH",
    "TF_LOG_PROVIDER",
    "TF_REATTACH_PROVIDERS",
    "TF_APPEND_USER_AGENT",
    "TF_WORKSPACE",
    "TF_DISABLE_PLUGIN_TLS",
    "TF_SKIP_PROVIDER_VERIFY",
    "TF_CLI_ARGS",
];
/// Ignored if a stack sets it: downloads must be in the module directory, where approvals cover them.
const DATA_DIRECTORY: &str = "TF_DATA_DIR";
/// The CLI's variable for the path of its configuration.
const CLI_CONFIG_VARIABLE: &str = "TF_CLI_CONFIG_FILE";

/// The argument of the kubernetes backend that names a kubeconfig.
const KUBECONFIG_ARGUMENT: &str = "config_path";
/// The start of a kubernetes backend in `backend_override.tf`.
const KUBERNETES_BACKEND: &str = "backend \"kubernetes\"";

/// Whether an inherited variable is dropped: it moves files that an apply depends on, or selects another API server for the
/// `kubernetes` backend.
fn is_dropped(name: &str) -> bool {
    name == DATA_DIRECTORY || name.starts_with("KUBE_")
}

/// Whether a stack may not set the variable.
fn is_rejected(name: &str) -> bool {
    REJECTED.contains(&name) || name.starts_with("TF_VAR_") || name.starts_with("TF_CLI_ARGS_")
}

/// Whether a variable has the value `1` or `true`.
pub(crate) fn is_enabled(environment: &BTreeMap<String, String>, name: &str) -> bool {
    let value = environment.get(name);
    value.is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"))
}

/// The first variable of a stack that is rejected.
pub(crate) fn find_rejected(variables: &BTreeMap<String, String>) -> Option<&String> {
    variables.keys().find(|name| is_rejected(name))
}

/// Composes the variables: the permitted inherited ones, those of the stack, and the fixed ones, with increasing precedence.
pub(crate) fn compose(
    inherited: impl IntoIterator<Item = (String, String)>,
    own: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = inherited
        .into_iter()
        .filter(|(name, _)| !is_rejected(name) && !is_dropped(name))
        .collect();
    let own = own.iter().filter(|(name, _)| *name != DATA_DIRECTORY);
    all.extend(own.map(|(name, value)| (name.clone(), value.clone())));
    for (name, value) in [
        ("TF_IN_AUTOMATION", "1"),
        ("TF_INPUT", "0"),
        ("CHECKPOINT_DISABLE", "1"),
        (
            "TF_APPEND_USER_AGENT",
            concat!("sluice/", env!("CARGO_PKG_VERSION")),
        ),
    ] {
        all.insert(name.to_owned(), value.to_owned());
    }
    all
}

/// The CLI's environment, with the kubeconfig of its kubernetes backend.
pub(crate) fn command_environment(
    context: &Context,
    bundle: &Bundle,
    module: &Path,
    home: &Home,
) -> Result<BTreeMap<String, String>, RunError> {
    let rejected = find_rejected(&bundle.environment).or_else(|| find_rejected(&bundle.pod_environment));
    if let Some(name) = rejected {
        return Err(RunError::Environment { name: name.clone() });
    }
    let mut all = compose(context.environment.clone(), &bundle.environment);
    if context.backend_kubeconfig.is_some() {
        // The user's own, for providers. The arguments of the backend take precedence.
        for name in ["KUBE_CONFIG_PATH", "KUBE_CONFIG_PATHS"] {
            if let Some(value) = context.environment.get(name) {
                all.entry(name.to_owned()).or_insert_with(|| value.clone());
            }
        }
    } else if let Some(kubeconfig) = &context.kubeconfig {
        all.entry("KUBE_CONFIG_PATH".to_owned())
            .or_insert_with(|| kubeconfig.display().to_string());
    }
    all.extend(path_variables(
        module,
        home,
        &bundle.run_environment,
        &bundle.environment,
    ));
    Ok(all)
}

/// The variables that name the configuration and the mapped files. A `HOME` of the stack takes precedence.
pub(crate) fn path_variables(
    module: &Path,
    home: &Home,
    environment: &RunEnvironment,
    own: &BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let mut all = Vec::new();
    if let Some(config) = &environment.cli_config {
        let path = module.join(&config.name);
        all.push((CLI_CONFIG_VARIABLE.to_owned(), path.display().to_string()));
    }
    let mapped = environment
        .files
        .iter()
        .any(|file| file.location == Location::Home);
    if mapped && !own.contains_key("HOME") {
        all.push(("HOME".to_owned(), home.path.display().to_string()));
    }
    all
}

/// Writes the CLI's configuration and the mapped files.
pub(crate) fn write(module: &Path, home: &Home, environment: &RunEnvironment) -> Result<(), RunError> {
    if let Some(config) = &environment.cli_config {
        write_below(module, &config.name, &config.content.0)?;
    }
    for file in &environment.files {
        let base = match file.location {
            Location::Home => home.create()?,
            Location::Workspace => module,
        };
        write_below(base, &file.path, &file.content.0)?;
    }
    Ok(())
}

/// The value of `TF_CLI_ARGS_init`. The arguments contain credentials, and other users of the machine can read a command line
/// but not the environment. `kubeconfig` is that of a kubernetes backend.
pub(crate) fn init_arguments(environment: &RunEnvironment, kubeconfig: Option<&Path>) -> Option<String> {
    let kubeconfig = kubeconfig.map(|path| (KUBECONFIG_ARGUMENT.to_owned(), path.display().to_string()));
    let args: Vec<_> = environment
        .backend_arguments
        .clone()
        .into_iter()
        .chain(kubeconfig)
        .map(|(name, value)| quote(&format!("-backend-config={name}={value}")))
        .collect();
    (!args.is_empty()).then(|| args.join(" "))
}

/// Quotes a text for a shell, which takes single-quoted text literally.
pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
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

/// The kubeconfig of the CLI's backend: a path beside the stack's directory that no stack uses. A plan stores it, so it is the same in each run.
pub(crate) fn kubeconfig_path(root: &Path) -> PathBuf {
    let base = root.file_name().unwrap_or_default().to_string_lossy();
    root.with_file_name(format!(".{base}.kubeconfig"))
}

/// Writes a file below `base` and creates its directories. `..` does not leave `base`.
fn write_below(base: &Path, path: &str, bytes: &[u8]) -> Result<(), RunError> {
    let failed = |why: String| RunError::MappedFile {
        path: path.to_owned(),
        why,
    };
    let system_error = |error: Errno| match error {
        Errno::LOOP | Errno::NOTDIR => failed("a link or a file is in the way".to_owned()),
        error => failed(std::io::Error::from(error).to_string()),
    };
    let relative = artifact_path::normalize(path);
    let names: Vec<_> = relative.iter().collect();
    let Some((file, directories)) = names.split_last() else {
        return Err(failed("it does not name a file".to_owned()));
    };
    let directory_flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(base, directory_flags, Mode::empty()).map_err(system_error)?;
    for name in directories {
        match rustix::fs::mkdirat(&at, *name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(system_error(error)),
        }
        at = rustix::fs::openat(&at, *name, directory_flags | OFlags::NOFOLLOW, Mode::empty())
            .map_err(system_error)?;
    }
    let file_flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let private = Mode::RUSR | Mode::WUSR;
    let opened = rustix::fs::openat(&at, *file, file_flags, private).map_err(system_error)?;
    // A file of the artifact may have other permissions.
    rustix::fs::fchmod(&opened, private).map_err(system_error)?;
    File::from(opened)
        .write_all(bytes)
        .map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use proptest::prelude::*;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn inherited_variables_that_change_the_run_are_dropped() {
        let inherited = map(&[
            ("PATH", "/bin"),
            ("AWS_PROFILE", "me"),
            ("TF_LOG", "trace"),
            ("TF_VAR_x", "1"),
            ("TF_CLI_ARGS_plan", "-destroy"),
            ("TF_DATA_DIR", "/elsewhere"),
            ("KUBE_HOST", "https://elsewhere"),
            ("TF_TOKEN_example_com", "t"),
        ]);
        let all = compose(
            inherited,
            &map(&[("AWS_PROFILE", "stack"), ("TF_DATA_DIR", "/x")]),
        );
        let names: Vec<_> = all.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "AWS_PROFILE",
                "CHECKPOINT_DISABLE",
                "PATH",
                "TF_APPEND_USER_AGENT",
                "TF_INPUT",
                "TF_IN_AUTOMATION",
                "TF_TOKEN_example_com"
            ]
        );
        assert_eq!(all["AWS_PROFILE"], "stack");
    }

    #[test]
    fn a_stack_may_not_set_them() {
        let rejected = find_rejected(&map(&[("A", "1"), ("TF_VAR_a", "2")])).cloned();
        assert_eq!(rejected.as_deref(), Some("TF_VAR_a"));
        assert_eq!(find_rejected(&map(&[("TF_TOKEN_x", "1")])), None);
    }

    #[test]
    fn one_and_true_enable_it() {
        for (value, enabled) in [
            ("1", true),
            ("true", true),
            ("True", true),
            ("", false),
            ("0", false),
            ("false", false),
        ] {
            assert_eq!(is_enabled(&map(&[("X", value)]), "X"), enabled, "{value}");
        }
        assert!(!is_enabled(&map(&[]), "X"));
    }

    #[test]
    fn files_are_private_and_replace_existing_ones() {
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
    fn a_path_with_dots_stays_below_the_root() {
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
            assert!(matches!(refused, Err(RunError::MappedFile { .. })), "{path}");
        }
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn arguments_of_init_are_one_word_each() {
        let environment = RunEnvironment {
            backend_arguments: [
                ("b".to_owned(), "it's $HOME".to_owned()),
                ("a".to_owned(), String::new()),
            ]
            .into(),
            ..RunEnvironment::default()
        };
        assert_eq!(
            init_arguments(&environment, None).unwrap(),
            "'-backend-config=a=' '-backend-config=b=it'\\''s $HOME'"
        );
        assert_eq!(init_arguments(&RunEnvironment::default(), None), None);
    }

    proptest! {
        /// No path creates or changes a file outside of the base.
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
