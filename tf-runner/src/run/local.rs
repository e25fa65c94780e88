//! A module directory outside of a run, with the files, the arguments and the environment that a run would give the CLI. It is for plans of
//! files that are not pushed yet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::workdir::Home;

use crate::run::lifecycle::error::RunError;
use crate::run::plan::target_arguments;
use crate::run::workdir::{prepare, run_environment};

/// A prepared module directory.
pub struct LocalModule {
    /// The directory in which the CLI runs.
    pub directory: PathBuf,
    /// The arguments of `plan` that follow from the spec: variable files and targets.
    pub plan_arguments: Vec<String>,
    /// The environment of the CLI.
    pub environment: BTreeMap<String, String>,
}

/// The directory cannot be prepared. The text names the file or the field.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LocalModuleError(String);

/// Writes the generated files of a stack into its module below `root`: backend, variables, mapped files, CLI configuration, and `main.tf` from
/// a template. `root` must be a copy: files of the same names are replaced. `home` is the directory of files that are mapped to the
/// home directory; `inherited` is the environment of the user.
///
/// # Errors
/// The module or a variable file does not exist, a file cannot be written, or the stack sets a variable that it may not set.
pub fn prepare_local_module(
    root: &Path,
    home: &Path,
    bundle: &Bundle,
    inherited: &BTreeMap<String, String>,
) -> Result<LocalModule, LocalModuleError> {
    let prepared = prepare_module(root, home, bundle, inherited);
    prepared.map_err(|error| LocalModuleError(error.to_string()))
}

fn prepare_module(
    root: &Path,
    home: &Path,
    bundle: &Bundle,
    inherited: &BTreeMap<String, String>,
) -> Result<LocalModule, RunError> {
    let directory = prepare::module_directory(root, &bundle.path)?;
    let mut plan_arguments = prepare::variable_file_arguments(root, bundle)?;
    plan_arguments.extend(target_arguments(&bundle.options));
    let home = Home {
        path: home.to_owned(),
        is_of_stack: true,
    };
    prepare::write_generated(&directory, &home, bundle)?;
    let environment = local_environment(bundle, &directory, &home, inherited)?;
    Ok(LocalModule {
        directory,
        plan_arguments,
        environment,
    })
}

/// The CLI's environment for a plan outside of a run. `inherited` is that of the user, whose settings of the kubernetes backend stay.
fn local_environment(
    bundle: &Bundle,
    module: &Path,
    home: &Home,
    inherited: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, RunError> {
    if let Some(name) = run_environment::find_rejected(&bundle.environment) {
        return Err(RunError::Environment { name: name.clone() });
    }
    let mut all = run_environment::compose(inherited.clone(), &bundle.environment);
    let of_backend = inherited.iter().filter(|(name, _)| name.starts_with("KUBE_"));
    for (name, value) in of_backend {
        all.entry(name.clone()).or_insert_with(|| value.clone());
    }
    all.extend(run_environment::path_variables(
        module,
        home,
        &bundle.run_environment,
        &bundle.environment,
    ));
    let arguments = run_environment::init_arguments(&bundle.run_environment, None);
    all.extend(arguments.map(|arguments| ("TF_CLI_ARGS_init".to_owned(), arguments)));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_keeps_the_settings_of_the_kubernetes_backend() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let owned = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            owned.collect()
        };
        let bundle: Bundle = serde_json::from_value(serde_json::json!({
            "version": 1, "stack": { "namespace": "team", "name": "net", "uid": "u" }, "workspace": "default", "variables": "{}",
            "artifact": { "url": "", "digest": "", "revision": "" }, "options": { "planLock": true, "upgradeOnInit": false }, "inputsDigest": "", "key": "",
            "environment": { "REGION": "eu" }, "surroundings": { "backendArguments": { "bucket": "b" } } }))
        .unwrap();
        let home = Home {
            path: PathBuf::from("/home"),
            is_of_stack: true,
        };
        let inherited = map(&[("KUBE_CTX", "dev"), ("TF_VAR_x", "1"), ("PATH", "/bin")]);
        let all = local_environment(&bundle, Path::new("/module"), &home, &inherited).unwrap();
        assert_eq!((all["KUBE_CTX"].as_str(), all["REGION"].as_str()), ("dev", "eu"));
        assert_eq!(all["TF_CLI_ARGS_init"], "'-backend-config=bucket=b'");
        assert!(!all.contains_key("TF_VAR_x") && all.contains_key("PATH"));
    }
}
