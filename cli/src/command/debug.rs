//! `sluice debug`: a shell in the working directory of a stack, in a break-glass session.
//!
//! The session is on the machine of the runner. The shell starts there by `kubectl exec`, or here if the runner is a process of this
//! user on this machine, as with `sluice up`.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use kube::ResourceExt as _;
use serde_json::json;
use sluice_api::annotation::{BREAK_THE_GLASS, REQUESTED_AT};
use sluice_api::run::{Action, Phase, TerraformRun, TerraformRunStatus};
use sluice_api::terraform::Terraform;
use tokio::process::Command;

use super::Context;
use super::history::{runs_of, stack_with_runs};
use super::reconcile::{check_running, stack_target};
use crate::change::{annotation, merge, token};
use crate::cluster::ConnectionArgs;
use crate::output::printable;
use crate::wait::{self, Progress, Termination};
use crate::{CliError, ExitStatus, run, stack};

/// What a shell runs first: the environment and the directory of the run.
const ENTER: &str = ". \"$0\" && exec sh -i";
/// The end of the name of each session file.
const SESSION_FILE: &str = ".break-glass";

/// Arguments of `sluice debug`.
#[derive(clap::Args, Debug)]
pub struct DebugArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// How long to wait for the session.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = sluice_runtime::args::duration)]
    pub timeout: Duration,
    /// Print the command that enters the session, and leave the session open.
    #[arg(long)]
    pub print: bool,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Where the shell of a session starts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SessionLocation {
    /// In this pod, given as namespace and name.
    Pod(String, String),
    /// On this machine.
    Here,
    /// On a machine that this program cannot reach, named as the claim of the run has it.
    Elsewhere(String),
}

/// An open session.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Session {
    /// The file that a shell sources.
    file: String,
    location: SessionLocation,
}

/// Opens a session, and a shell in it.
pub(super) async fn debug(context: &Context, args: &DebugArgs) -> Result<ExitStatus, CliError> {
    let (stack, runs) = stack_with_runs(&context.cluster, &args.name).await?;
    check_running(&stack)?;
    let namespace = stack.namespace().unwrap_or_default();
    let existing = open_session(&runs);
    let is_open_already = existing.is_some();
    let console = context.console;
    let mut termination = Termination::watch()?;
    let opened = match existing {
        Some(session) => Some(session),
        None => open(context, &stack, args.timeout, &mut termination).await?,
    };
    let Some(session) = opened else {
        console.note("Ended by a signal: no session is requested any more.");
        return Ok(ExitStatus::Failed);
    };
    let command = shell_command(&session, &args.connection);
    if args.print || !console.is_interactive() || command.is_empty() {
        console.note(&printable(&describe(&session, &args.name)));
        if !command.is_empty() {
            console.data(&quoted(&command))?;
        }
        return Ok(ExitStatus::Success);
    }
    console.note("The session is open. It ends when you leave the shell.");
    let result = tokio::select! {
        result = start(&command) => Some(result),
        () = termination.received() => None,
    };
    if is_open_already {
        console.note(&format!(
            "The session was open before, and stays: `rm {}` in it ends it.",
            session.file
        ));
    } else {
        withdraw(context, &namespace, &args.name).await?;
        console.note("The session ends; the next run makes a new plan.");
    }
    match result {
        None => Ok(ExitStatus::Failed),
        Some(Ok(())) => Ok(ExitStatus::Success),
        Some(Err(source)) => Err(CliError::File {
            what: format!("cannot start {}", quoted(&command)),
            source,
        }),
    }
}

/// Requests a session, and waits until it is open. After an error and after a signal (`None`), the request is withdrawn.
async fn open(
    context: &Context,
    stack: &Terraform,
    timeout: Duration,
    termination: &mut Termination,
) -> Result<Option<Session>, CliError> {
    let (namespace, name) = (stack.namespace().unwrap_or_default(), stack.name_any());
    request_session(context, &namespace, &name).await?;
    let opened = tokio::select! {
        opened = wait_for_session(context, stack, timeout) => opened.map(Some),
        () = termination.received() => Ok(None),
    };
    if !matches!(opened, Ok(Some(_))) {
        withdraw(context, &namespace, &name).await?;
    }
    opened
}

/// Requests a session, and a reconciliation: the request of a session alone starts none.
async fn request_session(context: &Context, namespace: &str, name: &str) -> Result<(), CliError> {
    let token = token();
    let patch = json!({ "metadata": { "annotations": { BREAK_THE_GLASS: token, REQUESTED_AT: token } } });
    merge::<Terraform>(&context.cluster, namespace, name, &patch).await?;
    Ok(())
}

/// Withdraws the request, which ends the session.
async fn withdraw(context: &Context, namespace: &str, name: &str) -> Result<(), CliError> {
    let patch = annotation(BREAK_THE_GLASS, None);
    merge::<Terraform>(&context.cluster, namespace, name, &patch).await?;
    Ok(())
}

async fn wait_for_session(
    context: &Context,
    stack: &Terraform,
    timeout: Duration,
) -> Result<Session, CliError> {
    let target = stack_target(stack, timeout);
    wait::until(&context.cluster, &target, session_progress).await?;
    let runs = runs_of(&context.cluster, stack).await?;
    open_session(&runs).ok_or_else(|| CliError::Failed {
        object: format!("terraform {}", stack::full_name(stack)),
        cause: "the session has ended already".to_owned(),
        next_command: format!("sluice history {}", stack.name_any()),
    })
}

/// Returns whether the session is open, by `Ready`. Pure.
fn session_progress(found: Option<&Terraform>) -> Result<Progress<()>, CliError> {
    let message = found.and_then(stack::ready).map(|ready| ready.message.as_str());
    let message = message.unwrap_or_default();
    if let Some(stack) = found.filter(|_| message.starts_with("Breaking the glass is not allowed")) {
        return Err(CliError::Refused {
            object: format!("terraform {}", stack::full_name(stack)),
            cause: "the controller allows no break-glass sessions".to_owned(),
            next_command: "start tf-controller with --allow-break-the-glass".to_owned(),
        });
    }
    Ok(if session_file(message).is_some() {
        Progress::Done(())
    } else {
        Progress::Waiting(message.to_owned())
    })
}

/// Returns the session that is open.
fn open_session(runs: &[TerraformRun]) -> Option<Session> {
    let is_session = |run: &&TerraformRun| {
        run.spec.action == Action::BreakTheGlass && run::phase(run) == Phase::BreakingTheGlass
    };
    let status = runs.iter().find(is_session)?.status.as_ref()?;
    let file = session_file(&status.message)?.to_owned();
    let location = location_of(status, is_own_file(&file));
    Some(Session { file, location })
}

/// Returns the file that the message of a session names. The text is that of the run's status, so the path is checked before a shell sees
/// it: absolute, without a sign that a shell interprets, and with the name of a session file. Pure.
fn session_file(message: &str) -> Option<&str> {
    let rest = message.split_once("machine: . ")?.1;
    let file = rest.split_once(" (sets")?.0;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    let is_valid = file.starts_with('/') && file.ends_with(SESSION_FILE) && file.chars().all(is_plain);
    is_valid.then_some(file)
}

/// The low bits of a mode that are 0 if neither the group nor others have a permission.
const PRIVATE_BITS: u32 = 6;

/// Returns whether the file exists on this machine and only this user can read or write it.
fn is_own_file(path: &str) -> bool {
    Path::new(path).symlink_metadata().is_ok_and(|metadata| {
        metadata.is_file()
            && metadata.uid() == rustix::process::getuid().as_raw()
            && metadata.mode().trailing_zeros() >= PRIVATE_BITS
    })
}

/// Returns where the shell of a session starts. Pure.
fn location_of(status: &TerraformRunStatus, is_here: bool) -> SessionLocation {
    let claim = status.claim.clone().unwrap_or_default();
    if !claim.pod.is_empty() && !claim.pod_namespace.is_empty() {
        SessionLocation::Pod(claim.pod_namespace, claim.pod)
    } else if is_here {
        SessionLocation::Here
    } else {
        SessionLocation::Elsewhere(claim.process)
    }
}

/// Returns the command that starts the shell; empty: this program cannot start one. Pure.
fn shell_command(session: &Session, connection: &ConnectionArgs) -> Vec<String> {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let shell = ["sh", "-c", ENTER, session.file.as_str()];
    match &session.location {
        SessionLocation::Here => owned(&shell),
        SessionLocation::Elsewhere(_) => Vec::new(),
        SessionLocation::Pod(namespace, pod) => {
            let mut command = owned(&["kubectl"]);
            if let Some(file) = &connection.kubeconfig {
                command.push(format!("--kubeconfig={}", file.display()));
            }
            if let Some(context) = &connection.context {
                command.push(format!("--context={context}"));
            }
            let pod = format!("pod/{pod}");
            command.extend(owned(&[
                "exec",
                "-it",
                "-n",
                namespace.as_str(),
                pod.as_str(),
                "--",
            ]));
            command.extend(owned(&shell));
            command
        }
    }
}

/// Formats a command for a shell. Pure.
fn quoted(command: &[String]) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-=:".contains(letter);
    let words = command.iter().map(|word| {
        if !word.is_empty() && word.chars().all(is_plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn describe(session: &Session, name: &str) -> String {
    let location = match &session.location {
        SessionLocation::Pod(namespace, pod) => format!("in pod {namespace}/{pod}"),
        SessionLocation::Here => "on this machine".to_owned(),
        SessionLocation::Elsewhere(process) => format!("on the machine of the runner ({process})"),
    };
    let file = &session.file;
    format!(
        "The session is open {location}: `. {file}` in a shell enters it, `rm {file}` or \
         `kubectl annotate terraform {name} {BREAK_THE_GLASS}-` ends it."
    )
}

/// Starts the shell on the terminal of this program, and waits for its end, whatever it is.
async fn start(command: &[String]) -> io::Result<()> {
    let Some((program, arguments)) = command.split_first() else {
        return Ok(());
    };
    // A signal to this program ends the shell too.
    let mut command = Command::new(program);
    command
        .args(arguments)
        .kill_on_drop(true)
        .status()
        .await
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    const MESSAGE: &str = "Breaking the glass ... In a shell on the runner's machine: . /data/work/.team_app.break-glass (sets the \
        environment of the run and changes to /data/work/team_app). `kubectl exec -it -n team app-1 -- sh` starts the shell. rm \
        /data/work/.team_app.break-glass ends the session";

    #[test]
    fn only_the_path_of_a_session_file_reaches_a_shell() {
        assert_eq!(session_file(MESSAGE), Some("/data/work/.team_app.break-glass"));
        for file in [
            "/tmp/$(id).break-glass",
            "x.break-glass",
            "/etc/profile",
            "/a b.break-glass",
            "/a;b.break-glass",
        ] {
            let message = MESSAGE.replace("/data/work/.team_app.break-glass", file);
            assert_eq!(session_file(&message), None, "{file}");
        }
        assert_eq!(session_file("Initializing"), None);
    }

    #[test]
    fn a_controller_without_sessions_ends_the_waiting() {
        let stack = |message: &str| {
            fixture::stack(
                &json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Progressing",
                "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
            )
        };
        assert_eq!(
            session_progress(Some(&stack(MESSAGE))).unwrap(),
            Progress::Done(())
        );
        assert_eq!(
            session_progress(Some(&stack("Initializing"))).unwrap(),
            Progress::Waiting("Initializing".to_owned())
        );
        let denied = session_progress(Some(&stack("Breaking the glass is not allowed: the controller")));
        assert_eq!(denied.unwrap_err().exit_status(), ExitStatus::Failed);
    }

    #[test]
    fn the_shell_starts_where_the_runner_is() {
        let status = |claim: serde_json::Value| -> TerraformRunStatus {
            serde_json::from_value(json!({"phase": "BreakingTheGlass", "claim": claim})).unwrap()
        };
        let in_pod = status(
            json!({"holder": "h", "pod": "app-1-x", "podNamespace": "team", "process": "r@app-1-x:7"}),
        );
        let process = status(json!({"holder": "h", "process": "me@laptop:7"}));
        let pod = SessionLocation::Pod("team".to_owned(), "app-1-x".to_owned());
        assert_eq!(
            location_of(&in_pod, true),
            pod,
            "a file of the same name here is another one"
        );
        assert_eq!(location_of(&process, true), SessionLocation::Here);
        assert_eq!(
            location_of(&process, false),
            SessionLocation::Elsewhere("me@laptop:7".to_owned())
        );
        let connection = ConnectionArgs {
            kubeconfig: Some("/tmp/k c".into()),
            context: None,
            namespace: None,
            request_timeout: Duration::from_secs(1),
            no_color: false,
        };
        let session = |location| Session {
            file: "/w/.a.break-glass".to_owned(),
            location,
        };
        assert_eq!(
            quoted(&shell_command(&session(pod), &connection)),
            "kubectl '--kubeconfig=/tmp/k c' exec -it -n team pod/app-1-x -- sh -c '. \"$0\" && exec sh -i' /w/.a.break-glass"
        );
        assert_eq!(
            quoted(&shell_command(&session(SessionLocation::Here), &connection)),
            "sh -c '. \"$0\" && exec sh -i' /w/.a.break-glass"
        );
        let elsewhere = session(SessionLocation::Elsewhere(String::new()));
        assert!(shell_command(&elsewhere, &connection).is_empty());
    }
}
