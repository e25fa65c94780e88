//! Break the glass: the directory is prepared as for a plan, and left to a person until the session is ended.
//!
//! A file beside the directory is the door: a person sources it in a shell to get the run's environment and directory, and
//! removes it to end the session.

use sluice_api::terraform::Reason;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use kube::api::Api;
use sluice_api::annotation::BREAK_THE_GLASS;
use sluice_api::run::{Phase, TerraformRun};
use sluice_api::terraform::Terraform;
use sluice_runtime::failure::chain;
use tokio::time::Instant;

use crate::run::commands::workspace::Workspace;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::steps::{Success, select_workspace};
use crate::run::workdir::prepare::write_private;
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::cli::text::truncate;

/// How often the door is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How often the object is asked whether the session is still wanted.
const ASK: Duration = Duration::from_secs(5);
/// Most characters of the trouble that the preparation met.
const TROUBLE: usize = 500;

/// Opens the session and waits for its end.
pub(crate) async fn session(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    run: &TerraformRun,
    init: &[String],
) -> Result<Success, RunError> {
    // What is broken is the reason why somebody comes: the session opens all the same.
    let trouble = match prepared(context, bundle, workspace, init).await {
        Ok(()) => String::new(),
        Err(stopped @ RunError::Stopped { .. }) => return Err(stopped),
        Err(error) => {
            let text = chain(&error);
            // Hidden before it is cut: half a value is not known for one that nobody may read.
            let text = workspace.reporter.secrets().redact(&text).into_owned();
            format!(" The preparation failed: {}", truncate(&text, TROUBLE))
        }
    };
    let door = workspace.directory.door.as_path();
    write_private(
        door,
        script(&workspace.module, &workspace.environment_of(Step::Init)).as_bytes(),
    )?;
    let until = remaining(workspace.limits.deadline);
    let message = format!(
        "Breaking the glass ... In a shell where the run works: . {0} (sets its environment and goes to {1}). \
         rm {0} ends the session; it ends by itself at {until}.{trouble}",
        door.display(),
        workspace.module.display(),
    );
    tracing::warn!(door = %door.display(), "a break-the-glass session is open");
    workspace.reporter.say(|status| {
        status.phase = Phase::BreakingTheGlass;
        status.message = message;
    });
    let why = ended(context, workspace, run, door).await;
    let closed = std::fs::remove_file(door);
    tracing::warn!(
        why,
        was_there = closed.is_ok(),
        "the break-the-glass session has ended"
    );
    let message = format!("break the glass session has ended at {}: {why}", now());
    Ok(Success::new(Reason::BreakTheGlassEnded, &message))
}

async fn prepared(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    init: &[String],
) -> Result<(), RunError> {
    workspace.must(Step::Init, init).await?;
    select_workspace(context, bundle, workspace).await
}

/// Waits for the end of the session, and says whose it was.
async fn ended(
    context: &Context,
    workspace: &Workspace<'_>,
    run: &TerraformRun,
    door: &Path,
) -> &'static str {
    let mut asked = Instant::now();
    loop {
        tokio::select! {
            () = workspace.limits.stop.cancelled() => return "the runner was told to stop",
            () = tokio::time::sleep_until(workspace.limits.deadline) => return "its time is over",
            () = tokio::time::sleep(LOOK) => {}
        }
        if !door.exists() {
            return "its file was removed";
        }
        if asked.elapsed() >= ASK {
            asked = Instant::now();
            if !is_wanted(context, run).await {
                return "it is not asked for any more";
            }
        }
    }
}

/// Whether the object still asks for the session; yes where that cannot be told.
async fn is_wanted(context: &Context, run: &TerraformRun) -> bool {
    let api: Api<Terraform> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    match api.get_opt(&run.spec.terraform.name).await {
        Err(_) => true,
        Ok(None) => false,
        Ok(Some(stack)) => asks(&stack) && stack.metadata.uid.as_deref() == Some(&run.spec.terraform.uid),
    }
}

fn asks(stack: &Terraform) -> bool {
    let annotations = stack.metadata.annotations.as_ref();
    let token = annotations.and_then(|all| all.get(BREAK_THE_GLASS));
    let asked = stack.spec.break_the_glass || token.is_some_and(|token| !token.is_empty());
    asked && stack.metadata.deletion_timestamp.is_none() && !stack.spec.suspend
}

/// What a person sources.
fn script(module: &Path, environment: &BTreeMap<String, String>) -> String {
    let head = "# To be sourced by a shell: the environment and the directory of the run. Remove this file to end the session.";
    let named = environment.iter().filter(|(name, _)| is_name(name));
    let exports = named.map(|(name, value)| format!("export {name}={}", quoted(value)));
    let change = format!("cd {}\n", quoted(&module.display().to_string()));
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

/// In single quotes, which a shell takes word for word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn remaining(deadline: Instant) -> String {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = jiff::SignedDuration::try_from(left).unwrap_or(jiff::SignedDuration::MAX);
    let end = jiff::Timestamp::now()
        .saturating_add(left)
        .unwrap_or(jiff::Timestamp::MAX);
    end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_shell_that_sources_the_door_has_exactly_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        let hostile = "it's $HOME `id` \"\\ \n end";
        let environment = [("A_1", hostile), ("bad-name", "x"), ("PATH", "/usr/bin:/bin")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let door = dir.path().join("door");
        std::fs::write(&door, script(dir.path(), &environment)).unwrap();
        let out = std::process::Command::new("/bin/sh")
            .args(["-c", ". \"$0\"; printf '%s|%s' \"$A_1\" \"$PWD\""])
            .arg(&door)
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
    fn a_session_is_wanted_while_field_or_annotation_ask() {
        let asked = |spec: serde_json::Value, metadata: serde_json::Value| {
            let mut stack = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform", "metadata": metadata,
                "spec": { "interval": "1h", "sourceRef": { "kind": "GitRepository", "name": "x" } } });
            stack["spec"]
                .as_object_mut()
                .unwrap()
                .extend(spec.as_object().unwrap().clone());
            asks(&serde_json::from_value(stack).unwrap())
        };
        let annotated = |token: &str| json!({ "name": "net", "annotations": { BREAK_THE_GLASS: token } });
        assert!(asked(json!({ "breakTheGlass": true }), json!({ "name": "net" })));
        assert!(asked(json!({}), annotated("now")));
        assert!(!asked(json!({}), annotated("")));
        assert!(!asked(json!({}), json!({ "name": "net" })));
        assert!(!asked(
            json!({ "breakTheGlass": true, "suspend": true }),
            json!({ "name": "net" })
        ));
    }
}
