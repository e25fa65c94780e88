//! The arguments of each CLI command. They are those of tofu-controller, so that plans are compatible.

use std::path::{Path, PathBuf};

/// File name of the plan in the module directory, as in tofu-controller.
pub const PLAN_FILE: &str = "tfplan";

/// Options of a plan or an apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `-target` addresses, in order.
    pub targets: Vec<String>,
    /// `-lock-timeout` in the syntax of the CLI; empty: `0s`.
    pub lock_timeout: String,
    /// Whether a plan takes the state lock.
    pub plan_lock: bool,
    /// `-parallelism` of an apply; 0: 10, the default of the CLI.
    pub parallelism: u32,
}

/// `init` before a plan. `may_copy`: Sluice configures the backend, so the state may be migrated to it.
#[must_use]
pub fn init(upgrade: bool, may_copy: bool) -> Vec<String> {
    let mut arguments = arguments(&["init", "-no-color", "-input=false", "-backend=true", "-get=true"]);
    arguments.push(format!("-upgrade={upgrade}"));
    if may_copy {
        arguments.push("-force-copy".to_owned());
    }
    arguments
}

/// `init` before the apply of a stored plan: providers and the dependency lock file may not change.
#[must_use]
pub fn init_readonly(may_copy: bool) -> Vec<String> {
    let mut arguments = init(false, may_copy);
    arguments.push("-lockfile=readonly".to_owned());
    arguments
}

/// `plan` into `out`. The exit code is 0 without changes and 2 with changes.
#[must_use]
pub fn plan(out: &Path, destroy: bool, var_files: &[PathBuf], options: &Options) -> Vec<String> {
    plan_arguments(Some(out), destroy, var_files, options)
}

/// `plan` without a plan file, for backends that cannot save plans.
#[must_use]
pub fn plan_unsaved(destroy: bool, var_files: &[PathBuf], options: &Options) -> Vec<String> {
    plan_arguments(None, destroy, var_files, options)
}

fn plan_arguments(
    out: Option<&Path>,
    destroy: bool,
    var_files: &[PathBuf],
    options: &Options,
) -> Vec<String> {
    let mut arguments = arguments(&["plan", "-no-color", "-input=false", "-detailed-exitcode"]);
    arguments.push(lock_timeout_argument(&options.lock_timeout));
    arguments.extend(out.map(|out| format!("-out={}", out.display())));
    arguments.extend(var_file_arguments(var_files));
    arguments.push(format!("-lock={}", options.plan_lock));
    arguments.push("-parallelism=10".to_owned());
    arguments.push("-refresh=true".to_owned());
    if destroy {
        arguments.push("-destroy".to_owned());
    }
    arguments.extend(targets(options));
    arguments
}

fn var_file_arguments(var_files: &[PathBuf]) -> impl Iterator<Item = String> {
    var_files
        .iter()
        .map(|file| format!("-var-file={}", file.display()))
}

fn targets(options: &Options) -> impl Iterator<Item = String> {
    options.targets.iter().map(|target| format!("-target={target}"))
}

/// `apply` of a stored plan. The plan file has the targets, but OpenTofu requires the variable files again.
#[must_use]
pub fn apply(plan: &Path, var_files: &[PathBuf], options: &Options) -> Vec<String> {
    let mut arguments = apply_arguments(var_files, options);
    arguments.push(plan.display().to_string());
    arguments
}

/// `apply` without a plan file.
#[must_use]
pub fn apply_unsaved(var_files: &[PathBuf], options: &Options) -> Vec<String> {
    let mut arguments = apply_arguments(var_files, options);
    arguments.extend(targets(options));
    arguments
}

/// `destroy` without a plan file.
#[must_use]
pub fn destroy(var_files: &[PathBuf], options: &Options) -> Vec<String> {
    let mut arguments = arguments(&[
        "destroy",
        "-no-color",
        "-auto-approve",
        "-input=false",
        "-lock-timeout=0s",
        "-lock=true",
        "-parallelism=10",
        "-refresh=true",
    ]);
    arguments.extend(var_file_arguments(var_files));
    arguments.extend(targets(options));
    arguments
}

fn apply_arguments(var_files: &[PathBuf], options: &Options) -> Vec<String> {
    let mut arguments = arguments(&[
        "apply",
        "-no-color",
        "-auto-approve",
        "-input=false",
        "-lock=true",
    ]);
    let parallelism = if options.parallelism == 0 {
        10
    } else {
        options.parallelism
    };
    arguments.push(format!("-parallelism={parallelism}"));
    arguments.push("-refresh=true".to_owned());
    arguments.extend(var_file_arguments(var_files));
    arguments
}

/// `show` of a plan file as text.
#[must_use]
pub fn show(plan: &Path) -> Vec<String> {
    arguments(&["show", "-no-color", &plan.display().to_string()])
}

/// `show -json` of a plan file.
#[must_use]
pub fn show_json(plan: &Path) -> Vec<String> {
    arguments(&["show", "-json", "-no-color", &plan.display().to_string()])
}

/// `show -json` of the state.
#[must_use]
pub fn show_state() -> Vec<String> {
    arguments(&["show", "-json", "-no-color"])
}

/// `output -json`.
#[must_use]
pub fn output() -> Vec<String> {
    arguments(&["output", "-no-color", "-json"])
}

/// `workspace new`. It fails if the workspace exists.
#[must_use]
pub fn workspace_new(workspace: &str) -> Vec<String> {
    arguments(&["workspace", "new", "-no-color", workspace])
}

/// `workspace select`.
#[must_use]
pub fn workspace_select(workspace: &str) -> Vec<String> {
    arguments(&["workspace", "select", "-no-color", workspace])
}

/// `force-unlock` of one lock id.
#[must_use]
pub fn force_unlock(id: &str) -> Vec<String> {
    arguments(&["force-unlock", "-no-color", "-force", id])
}

/// `state pull`: the state as JSON, without the use of providers.
#[must_use]
pub fn state_pull() -> Vec<String> {
    arguments(&["state", "pull"])
}

/// `state push` of a file. Without `-force`, the CLI rejects another lineage and an older serial.
#[must_use]
pub fn state_push(file: &Path, lock_timeout: &str) -> Vec<String> {
    let mut arguments = arguments(&["state", "push", "-lock=true"]);
    arguments.push(lock_timeout_argument(lock_timeout));
    arguments.push(file.display().to_string());
    arguments
}

fn lock_timeout_argument(timeout: &str) -> String {
    format!(
        "-lock-timeout={}",
        if timeout.is_empty() { "0s" } else { timeout }
    )
}

/// `state push -force`, to replace an empty state of any lineage.
#[must_use]
pub fn state_push_force(file: &Path, lock_timeout: &str) -> Vec<String> {
    let mut arguments = state_push(file, lock_timeout);
    arguments.insert(2, "-force".to_owned());
    arguments
}

fn arguments(list: &[&str]) -> Vec<String> {
    list.iter().map(|argument| (*argument).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            plan_lock: true,
            ..Options::default()
        }
    }

    #[test]
    fn the_words_are_upstreams() {
        let line = |arguments: Vec<String>| arguments.join(" ");
        assert_eq!(
            line(init(true, true)),
            "init -no-color -input=false -backend=true -get=true -upgrade=true -force-copy"
        );
        assert_eq!(
            line(init_readonly(false)),
            "init -no-color -input=false -backend=true -get=true -upgrade=false -lockfile=readonly"
        );
        assert_eq!(
            line(plan(Path::new("tfplan"), false, &[], &options())),
            "plan -no-color -input=false -detailed-exitcode -lock-timeout=0s -out=tfplan -lock=true -parallelism=10 -refresh=true"
        );
        assert_eq!(
            line(apply(Path::new("tfplan"), &[], &options())),
            "apply -no-color -auto-approve -input=false -lock=true -parallelism=10 -refresh=true tfplan"
        );
        assert_eq!(line(workspace_select("blue")), "workspace select -no-color blue");
        assert_eq!(line(force_unlock("id")), "force-unlock -no-color -force id");
    }

    #[test]
    fn without_a_plan_file_targets_and_variables_are_said_again() {
        let options = Options {
            targets: vec!["a.b".into()],
            ..options()
        };
        let files = [PathBuf::from("/w/x.tfvars")];
        assert!(!plan_unsaved(false, &files, &options).join(" ").contains("-out"));
        assert_eq!(
            apply_unsaved(&files, &options).join(" "),
            "apply -no-color -auto-approve -input=false -lock=true -parallelism=10 -refresh=true -var-file=/w/x.tfvars \
             -target=a.b"
        );
        assert_eq!(
            destroy(&files, &options).join(" "),
            "destroy -no-color -auto-approve -input=false -lock-timeout=0s -lock=true -parallelism=10 -refresh=true \
             -var-file=/w/x.tfvars -target=a.b"
        );
    }

    #[test]
    fn options_reach_the_plan() {
        let options = Options {
            targets: vec!["a.b".into(), "c.d".into()],
            lock_timeout: "30s".into(),
            plan_lock: false,
            parallelism: 3,
        };
        let files = [PathBuf::from("/w/x.tfvars")];
        let line = plan(Path::new("tfplan"), true, &files, &options).join(" ");
        assert_eq!(
            line,
            "plan -no-color -input=false -detailed-exitcode -lock-timeout=30s -out=tfplan -var-file=/w/x.tfvars -lock=false \
             -parallelism=10 -refresh=true -destroy -target=a.b -target=c.d"
        );
        let line = apply(Path::new("tfplan"), &files, &options).join(" ");
        assert!(
            line.contains("-parallelism=3") && line.contains("-var-file=/w/x.tfvars"),
            "{line}"
        );
    }
}
