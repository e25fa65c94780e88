//! The commands of the CLI: `init`, the selection of the workspace, `plan` and `show`. None writes to a backend.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_cli::CliError;
use sluice_cli::output::Console;
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::cli::process::{self, CommandExit, Invocation, Limits, StopReason};
use sluice_tf_core::cli::tool::Tool;
use sluice_tf_core::plan::document;
use sluice_tf_core::plan::summary::{Summary, summarize};
use sluice_tf_runner::run::LocalModule;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Timeout of each command.
const TIMEOUT: Duration = Duration::from_hours(1);
/// Time from the interrupt of a command to its kill.
const GRACE: Duration = Duration::from_secs(30);

/// A plan.
pub(super) struct PlannedChanges {
    /// Whether there are changes, of resources or outputs.
    pub(super) has_changes: bool,
    /// Its counts and changes.
    pub(super) summary: Summary,
    /// The output of `plan`.
    pub(super) text: String,
}

/// What each command runs with.
struct LocalCli<'a> {
    tool: &'a Tool,
    module: &'a LocalModule,
    /// Directory of the output of the commands.
    logs: &'a Path,
    stop: CancellationToken,
    console: Console,
}

/// Plans the module. Ctrl-C interrupts the CLI.
///
/// # Errors
/// A command fails or is interrupted.
pub(super) async fn plan(
    tool: &Tool,
    module: &LocalModule,
    bundle: &Bundle,
    destroy: bool,
    logs: &Path,
    console: Console,
) -> Result<PlannedChanges, CliError> {
    let stop = CancellationToken::new();
    let cli = LocalCli {
        tool,
        module,
        logs,
        stop: stop.clone(),
        console,
    };
    let on_interrupt = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.cancel();
        }
    });
    let planned = cli.plan(bundle, destroy).await;
    on_interrupt.abort();
    planned
}

impl LocalCli<'_> {
    async fn plan(&self, bundle: &Bundle, destroy: bool) -> Result<PlannedChanges, CliError> {
        self.run("init", &init_arguments(bundle), &[0]).await?;
        // The variable selects the workspace of a state copy.
        if bundle.workspace != super::DEFAULT_WORKSPACE
            && !self.module.environment.contains_key("TF_WORKSPACE")
        {
            // Not `new`: that may write a state.
            let select = arguments(&["workspace", "select", "-no-color", "--", &bundle.workspace]);
            self.run("workspace", &select, &[0]).await?;
        }
        let file = self.logs.join("plan.bin");
        let planning = plan_arguments(&file, destroy, &self.module.plan_arguments);
        let planned = self.run("plan", &planning, &[0, 2]).await?;
        let show = arguments(&["show", "-json", "-no-color", &file.display().to_string()]);
        let shown = self.run("show", &show, &[0]).await?;
        let json = File::open(&shown.stdout).map_err(|source| unreadable(&shown.stdout, source))?;
        let document = document::parse(json).map_err(|error| self.failed("show", error.to_string()))?;
        let text = std::fs::read_to_string(&planned.stdout);
        Ok(PlannedChanges {
            has_changes: planned.code == Some(2),
            summary: summarize(&document),
            text: text.map_err(|source| unreadable(&planned.stdout, source))?,
        })
    }

    /// Runs a command that must end with one of these codes.
    async fn run(&self, step: &str, arguments: &[String], codes: &[i32]) -> Result<CommandExit, CliError> {
        self.console.note(&format!("{} {step} ...", self.tool.name));
        let (stdout, stderr) = (self.log(step, "out"), self.log(step, "err"));
        let invocation = Invocation {
            program: &self.tool.path,
            arguments,
            directory: &self.module.directory,
            environment: &self.module.environment,
            stdout,
            stderr: stderr.clone(),
            locks: &[],
        };
        let limits = Limits {
            stop: self.stop.clone(),
            deadline: Instant::now() + TIMEOUT,
            grace: GRACE,
        };
        let ended = process::run(&invocation, &limits).await;
        let ended = ended.map_err(|error| self.failed(step, error.to_string()))?;
        match ended.stop_reason {
            Some(StopReason::Requested) => return Err(self.failed(step, "it was interrupted".to_owned())),
            Some(StopReason::Deadline) => {
                return Err(self.failed(step, format!("it lasted more than {} s", TIMEOUT.as_secs())));
            }
            None => {}
        }
        if ended.code.is_some_and(|code| codes.contains(&code)) {
            return Ok(ended);
        }
        let text = process::tail(&stderr).unwrap_or_default();
        let text = text.trim();
        let cause = if text.is_empty() {
            ended.describe()
        } else {
            format!("{}\n{text}", ended.describe())
        };
        Err(self.failed(step, cause))
    }

    fn log(&self, step: &str, ending: &str) -> PathBuf {
        self.logs.join(format!("{step}.{ending}"))
    }

    fn failed(&self, step: &str, cause: String) -> CliError {
        CliError::Failed {
            object: format!("{} {step}", self.tool.name),
            cause,
            next_command: String::new(),
        }
    }
}

fn unreadable(path: &Path, source: std::io::Error) -> CliError {
    CliError::File {
        what: format!("cannot read {}", path.display()),
        source,
    }
}

fn arguments(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The arguments of `init`, without those of the backend, which are in the environment.
fn init_arguments(bundle: &Bundle) -> Vec<String> {
    let mut init = arguments(&[
        "init",
        "-no-color",
        "-input=false",
        "-backend=true",
        "-get=true",
        "-lock=false",
    ]);
    init.push(format!("-upgrade={}", bundle.options.upgrade_on_init));
    init
}

/// The arguments of `plan`. The exit code is 0 without changes and 2 with changes.
fn plan_arguments(file: &Path, destroy: bool, more: &[String]) -> Vec<String> {
    let mut plan = arguments(&[
        "plan",
        "-no-color",
        "-input=false",
        "-detailed-exitcode",
        "-lock=false",
        "-refresh=true",
        "-parallelism=10",
    ]);
    plan.push(format!("-out={}", file.display()));
    if destroy {
        plan.push("-destroy".to_owned());
    }
    plan.extend_from_slice(more);
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_takes_no_lock() {
        let more = arguments(&["-var-file=/copy/prod.tfvars", "-target=a.b"]);
        let plan = plan_arguments(Path::new("/logs/plan.bin"), true, &more);
        assert_eq!(
            plan.join(" "),
            "plan -no-color -input=false -detailed-exitcode -lock=false -refresh=true -parallelism=10 -out=/logs/plan.bin \
             -destroy -var-file=/copy/prod.tfvars -target=a.b"
        );
    }
}
