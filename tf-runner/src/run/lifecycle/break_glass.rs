//! Break-glass sessions: the directory is prepared as for a plan and stays open for a user until the session ends.
//!
//! The session file lies beside the directory. A user sources it in a shell to get the run's environment and directory, and
//! removes it to end the session.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use sluice_api::annotation::BREAK_THE_GLASS;
use sluice_api::run::Phase;
use sluice_api::terraform::{Reason, Terraform};
use sluice_runtime::failure::chain;
use sluice_tf_core::cli::text::truncate;
use sluice_tf_core::run_input::PodRef;
use tokio::time::Instant;

use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::session::{RunSession, Success};
use crate::run::state::{labels, select_workspace, state_copy};
use crate::run::workdir::run_environment::quote;
use crate::run::workdir::write_private;

/// How often the session file is checked.
const FILE_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How often the object is read to see whether it still requests the session.
const OBJECT_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of characters of a preparation error in the message.
const PREPARATION_ERROR_LIMIT: usize = 500;

/// Opens the session and waits for its end.
pub(crate) async fn run_session(session: &RunSession<'_>, init: &[String]) -> Result<Success, RunError> {
    let cli = &session.cli;
    // The session opens even if the preparation fails: the failure is the likely reason for the session.
    let preparation_error = match initialize(session, init).await {
        Ok(()) => String::new(),
        Err(stopped @ RunError::Stopped { .. }) => return Err(stopped),
        Err(error) => {
            let text = chain(&error);
            // Redacted before it is cut: half a value would not be recognised.
            let text = cli.status.secrets().redact(&text).into_owned();
            format!(
                " The preparation failed: {}",
                truncate(&text, PREPARATION_ERROR_LIMIT)
            )
        }
    };
    let copies = copies_note(session).await;
    let file = cli.directory.session_file.as_path();
    write_private(
        file,
        shell_script(&cli.module, &cli.environment_of(Step::Init)).as_bytes(),
    )?;
    let until = format_time(cli.limits.deadline);
    let shell = shell_note(session.context.identity.pod.as_ref());
    let message = format!(
        "Breaking the glass ... In a shell on the runner's machine: . {0} (sets the environment of the run and changes to \
         {1}).{shell} rm {0} ends the session; it expires at {until}.{copies}{preparation_error}",
        file.display(),
        cli.module.display(),
    );
    tracing::warn!(door = %file.display(), "a break-glass session is open");
    cli.status.write(|status| {
        status.phase = Phase::BreakingTheGlass;
        status.message = message;
    });
    let why = wait_for_end(session, file).await;
    let closed = std::fs::remove_file(file);
    tracing::warn!(
        why,
        was_there = closed.is_ok(),
        "the break-glass session has ended"
    );
    let message = format!(
        "break the glass session has ended at {}: {why}",
        format_time(Instant::now())
    );
    Ok(Success::new(Reason::BreakTheGlassEnded, &message))
}

/// Returns how to get a shell on the runner's machine, if that is a pod.
fn shell_note(pod: Option<&PodRef>) -> String {
    let command = pod.map(|pod| {
        format!(
            " `kubectl exec -it -n {} {} -- sh` starts the shell.",
            pod.namespace, pod.name
        )
    });
    command.unwrap_or_default()
}

/// Unpacks the copies of the state, and returns where they are. The session opens even if that fails.
async fn copies_note(session: &RunSession<'_>) -> String {
    match state_copy::unpack_all(session).await {
        Ok(None) => String::new(),
        Ok(Some(directory)) => format!(" Copies of the state, by serial: {}.", directory.display()),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the copies of the state cannot be unpacked"
            );
            String::new()
        }
    }
}

async fn initialize(session: &RunSession<'_>, init: &[String]) -> Result<(), RunError> {
    labels::check(session).await?;
    session.cli.run(Step::Init, init).await?;
    select_workspace(session).await
}

/// Waits for the end of the session and returns its cause.
async fn wait_for_end(session: &RunSession<'_>, file: &Path) -> &'static str {
    let limits = &session.cli.limits;
    let mut last_read = Instant::now();
    loop {
        tokio::select! {
            () = limits.stop.cancelled() => return "the runner was terminated",
            () = tokio::time::sleep_until(limits.deadline) => return "it expired",
            () = tokio::time::sleep(FILE_POLL_INTERVAL) => {}
        }
        if !file.exists() {
            return "its file was removed";
        }
        if last_read.elapsed() >= OBJECT_POLL_INTERVAL {
            last_read = Instant::now();
            if !is_requested(session).await {
                return "it is no longer requested";
            }
        }
    }
}

/// Whether the object still requests the session. True when the object cannot be read.
async fn is_requested(session: &RunSession<'_>) -> bool {
    let target = &session.run.spec.terraform;
    match session.context.api::<Terraform>().get_opt(&target.name).await {
        Err(_) => true,
        Ok(None) => false,
        Ok(Some(stack)) => requests_session(&stack) && stack.metadata.uid.as_deref() == Some(&target.uid),
    }
}

fn requests_session(stack: &Terraform) -> bool {
    let annotations = stack.metadata.annotations.as_ref();
    let token = annotations.and_then(|all| all.get(BREAK_THE_GLASS));
    let requested = stack.spec.break_the_glass || token.is_some_and(|token| !token.is_empty());
    requested && stack.metadata.deletion_timestamp.is_none() && !stack.spec.suspend
}

/// The content of the session file.
fn shell_script(module: &Path, environment: &BTreeMap<String, String>) -> String {
    let head = "# To be sourced by a shell: the environment and the directory of the run. Remove this file to end the session.";
    let named = environment.iter().filter(|(name, _)| is_name(name));
    let exports = named.map(|(name, value)| format!("export {name}={}", quote(value)));
    let change = format!("cd {}\n", quote(&module.display().to_string()));
    let lines: Vec<_> = [head.to_owned()]
        .into_iter()
        .chain(exports)
        .chain([change])
        .collect();
    lines.join("\n")
}

fn is_name(name: &str) -> bool {
    let mut letters = name.bytes();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
}

fn format_time(at: Instant) -> String {
    let left = at.saturating_duration_since(Instant::now());
    let left = jiff::SignedDuration::try_from(left).unwrap_or(jiff::SignedDuration::MAX);
    let time = jiff::Timestamp::now()
        .saturating_add(left)
        .unwrap_or(jiff::Timestamp::MAX);
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_shell_that_sources_the_session_file_has_the_exact_environment() {
        let dir = tempfile::tempdir().unwrap();
        let hostile = "it's $HOME `id` \"\\ \n end";
        let environment = [("A_1", hostile), ("bad-name", "x"), ("PATH", "/usr/bin:/bin")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let file = dir.path().join("session");
        std::fs::write(&file, shell_script(dir.path(), &environment)).unwrap();
        let out = std::process::Command::new("/bin/sh")
            .args(["-c", ". \"$0\"; printf '%s|%s' \"$A_1\" \"$PWD\""])
            .arg(&file)
            .output()
            .unwrap();
        let wanted = format!("{hostile}|{}", dir.path().canonicalize().unwrap().display());
        assert_eq!(String::from_utf8(out.stdout).unwrap(), wanted);
        assert!(
            out.stderr.is_empty(),
            "{:?}",
            String::from_utf8_lossy(&out.stderr)
        );
    }

    #[test]
    fn the_message_of_a_session_in_a_pod_has_the_command_of_its_shell() {
        let pod = "team/app-0123456789-7-x1y2z/uid".parse::<PodRef>().unwrap();
        assert_eq!(
            shell_note(Some(&pod)),
            " `kubectl exec -it -n team app-0123456789-7-x1y2z -- sh` starts the shell."
        );
        assert_eq!(shell_note(None), "");
    }

    #[test]
    fn a_session_is_requested_by_field_or_annotation() {
        let requested = |spec: serde_json::Value, metadata: serde_json::Value| {
            let mut stack = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform", "metadata": metadata,
                "spec": { "interval": "1h", "sourceRef": { "kind": "GitRepository", "name": "x" } } });
            stack["spec"]
                .as_object_mut()
                .unwrap()
                .extend(spec.as_object().unwrap().clone());
            requests_session(&serde_json::from_value(stack).unwrap())
        };
        let annotated = |token: &str| json!({ "name": "net", "annotations": { BREAK_THE_GLASS: token } });
        assert!(requested(
            json!({ "breakTheGlass": true }),
            json!({ "name": "net" })
        ));
        assert!(requested(json!({}), annotated("now")));
        assert!(!requested(json!({}), annotated("")));
        assert!(!requested(json!({}), json!({ "name": "net" })));
        assert!(!requested(
            json!({ "breakTheGlass": true, "suspend": true }),
            json!({ "name": "net" })
        ));
    }
}
