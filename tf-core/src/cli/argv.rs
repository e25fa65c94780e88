//! The exact words of each CLI invocation (pure). They are upstream's, so that a plan made here can be applied by hand there.

use std::path::{Path, PathBuf};

/// File name of the plan in the module directory, as upstream.
pub const PLAN_FILE: &str = "tfplan";

/// Options that shape a plan or an apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `-target` addresses, in order.
    pub targets: Vec<String>,
    /// `-lock-timeout`, in the CLI's own duration form; `0s` when empty.
    pub lock_timeout: String,
    /// Whether a plan takes the state lock.
    pub plan_lock: bool,
    /// `-parallelism` of an apply; 0 means the CLI's ten.
    pub parallelism: u32,
}

/// `init` before a plan. `may_copy`: the backend is one of ours, to which a state may be moved.
#[must_use]
pub fn init(upgrade: bool, may_copy: bool) -> Vec<String> {
    let mut words = words(&["init", "-no-color", "-input=false", "-backend=true", "-get=true"]);
    words.push(format!("-upgrade={upgrade}"));
    if may_copy {
        words.push("-force-copy".to_owned());
    }
    words
}

/// `init` before an exact apply: nothing may move, neither providers nor the lock file.
#[must_use]
pub fn init_exact(may_copy: bool) -> Vec<String> {
    let mut words = init(false, may_copy);
    words.push("-lockfile=readonly".to_owned());
    words
}

/// `plan` into `out`; exit code 0 is no change, 2 is changes.
#[must_use]
pub fn plan(out: &Path, destroy: bool, var_files: &[PathBuf], options: &Options) -> Vec<String> {
    plan_words(Some(out), destroy, var_files, options)
}

/// `plan` of a CLI that cannot save it.
#[must_use]
pub fn plan_unsaved(destroy: bool, var_files: &[PathBuf], options: &Options) -> Vec<String> {
    plan_words(None, destroy, var_files, options)
}

fn plan_words(out: Option<&Path>, destroy: bool, var_files: &[PathBuf], options: &Options) -> Vec<String> {
    let mut words = words(&["plan", "-no-color", "-input=false", "-detailed-exitcode"]);
    let timeout = if options.lock_timeout.is_empty() {
        "0s"
    } else {
        &options.lock_timeout
    };
    words.push(format!("-lock-timeout={timeout}"));
    words.extend(out.map(|out| format!("-out={}", out.display())));
    words.extend(given(var_files));
    words.push(format!("-lock={}", options.plan_lock));
    words.push("-parallelism=10".to_owned());
    words.push("-refresh=true".to_owned());
    if destroy {
        words.push("-destroy".to_owned());
    }
    words.extend(targets(options));
    words
}

fn given(var_files: &[PathBuf]) -> impl Iterator<Item = String> {
    var_files
        .iter()
        .map(|file| format!("-var-file={}", file.display()))
}

fn targets(options: &Options) -> impl Iterator<Item = String> {
    options.targets.iter().map(|target| format!("-target={target}"))
}

/// `apply` of a stored plan. Targets are part of the plan file; OpenTofu wants the plan's variable files again.
#[must_use]
pub fn apply(plan: &Path, var_files: &[PathBuf], options: &Options) -> Vec<String> {
    let mut words = apply_words(var_files, options);
    words.push(plan.display().to_string());
    words
}

/// `apply` of what is planned anew, where plans cannot be saved.
#[must_use]
pub fn apply_unsaved(var_files: &[PathBuf], options: &Options) -> Vec<String> {
    let mut words = apply_words(var_files, options);
    words.extend(targets(options));
    words
}

/// `destroy`, where plans cannot be saved.
#[must_use]
pub fn destroy(var_files: &[PathBuf], options: &Options) -> Vec<String> {
    let mut words = words(&[
        "destroy",
        "-no-color",
        "-auto-approve",
        "-input=false",
        "-lock-timeout=0s",
        "-lock=true",
        "-parallelism=10",
        "-refresh=true",
    ]);
    words.extend(given(var_files));
    words.extend(targets(options));
    words
}

fn apply_words(var_files: &[PathBuf], options: &Options) -> Vec<String> {
    let mut words = words(&[
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
    words.push(format!("-parallelism={parallelism}"));
    words.push("-refresh=true".to_owned());
    words.extend(given(var_files));
    words
}

/// `show` of a plan file, for people.
#[must_use]
pub fn show(plan: &Path) -> Vec<String> {
    vec![
        "show".to_owned(),
        "-no-color".to_owned(),
        plan.display().to_string(),
    ]
}

/// `show -json` of a plan file.
#[must_use]
pub fn show_json(plan: &Path) -> Vec<String> {
    vec![
        "show".to_owned(),
        "-json".to_owned(),
        "-no-color".to_owned(),
        plan.display().to_string(),
    ]
}

/// `show -json` of the state.
#[must_use]
pub fn show_state() -> Vec<String> {
    words(&["show", "-json", "-no-color"])
}

/// `output -json`.
#[must_use]
pub fn output() -> Vec<String> {
    words(&["output", "-no-color", "-json"])
}

/// `workspace new`; its failure means that the workspace is there.
#[must_use]
pub fn workspace_new(workspace: &str) -> Vec<String> {
    words(&["workspace", "new", "-no-color", workspace])
}

/// `workspace select`.
#[must_use]
pub fn workspace_select(workspace: &str) -> Vec<String> {
    words(&["workspace", "select", "-no-color", workspace])
}

/// `force-unlock` of one lock id.
#[must_use]
pub fn force_unlock(id: &str) -> Vec<String> {
    words(&["force-unlock", "-no-color", "-force", id])
}

/// `state pull`: the state as JSON, without what providers would have to tell of it.
#[must_use]
pub fn state_pull() -> Vec<String> {
    words(&["state", "pull"])
}

/// `state push` of a file. Without `-force`: the CLI refuses a foreign lineage and an older serial.
#[must_use]
pub fn state_push(file: &Path, lock_timeout: &str) -> Vec<String> {
    let timeout = if lock_timeout.is_empty() {
        "0s"
    } else {
        lock_timeout
    };
    vec![
        "state".to_owned(),
        "push".to_owned(),
        "-lock=true".to_owned(),
        format!("-lock-timeout={timeout}"),
        file.display().to_string(),
    ]
}

/// `state push` over a state that has nothing in it, of whatever lineage.
#[must_use]
pub fn state_take_over(file: &Path, lock_timeout: &str) -> Vec<String> {
    let mut words = state_push(file, lock_timeout);
    words.insert(2, "-force".to_owned());
    words
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
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
        let line = |words: Vec<String>| words.join(" ");
        assert_eq!(
            line(init(true, true)),
            "init -no-color -input=false -backend=true -get=true -upgrade=true -force-copy"
        );
        assert_eq!(
            line(init_exact(false)),
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
