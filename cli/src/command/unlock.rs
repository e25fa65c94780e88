//! `sluice unlock`: shows who holds the state lock of a stack, asks, and has the controller release exactly that lock.

use std::fmt::Write as _;

use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_api::run::{LockInfo, TerraformRun, TerraformRunStatus};
use sluice_api::terraform::{StateOptions, Terraform};
use sluice_runtime::clock::{Clock as _, SystemClock};
use sluice_tf_core::cli::lock::parse_created;

use super::Context;
use super::history::stack_with_runs;
use super::reconcile::{check_running, stack_target};
use crate::change::merge;
use crate::cluster::ConnectionArgs;
use crate::output::{Console, Tone, age};
use crate::wait::{self, Progress, WaitArgs};
use crate::{CliError, ExitStatus, run, stack};

/// Arguments of `sluice unlock`.
#[derive(clap::Args, Debug)]
pub struct UnlockArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Release only the lock with this id.
    #[arg(long, visible_alias = "lock-id", value_name = "LOCK")]
    pub id: Option<String>,
    /// Do not ask.
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// How long to wait. With --wait the fields of the spec are set back afterwards.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// What is known about the holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Holder {
    /// A run of the stack that has not ended: the lock protects its work.
    ActiveRun(String),
    /// A run of the stack that has ended, with its phase.
    EndedRun(String, &'static str),
    /// No run of the stack: a user or another program.
    Unknown,
}

/// Releases the lock that the newest run met.
pub(super) async fn unlock(context: &Context, args: &UnlockArgs) -> Result<ExitStatus, CliError> {
    let (stack, runs) = stack_with_runs(&context.cluster, &args.name).await?;
    let id = lock_to_release(&stack, args.id.as_deref())?.to_owned();
    check_running(&stack)?;
    let lock = lock_info(&runs, &id);
    let holder = holder_of(&runs, &lock);
    let console = context.console;
    console.note(describe_lock(&stack, &lock, &holder, SystemClock.now(), console).trim_end());
    if let Holder::ActiveRun(run) = holder {
        return Err(CliError::Refused {
            object: format!("terraform {}", stack::full_name(&stack)),
            cause: format!("run {run} holds the lock and is active"),
            next_command: format!("sluice cancel {run}"),
        });
    }
    if !args.yes && !console.confirm(&format!("Release the lock {id}?"), "--yes")? {
        console.note("Nothing was released.");
        return Ok(ExitStatus::Failed);
    }
    let namespace = stack.namespace().unwrap_or_default();
    let (release, reset) = patches(stack.spec.tfstate.as_ref(), &id);
    merge::<Terraform>(&context.cluster, &namespace, &args.name, &release).await?;
    console.note(&format!("The next run releases the lock {id}."));
    if !args.wait.wait {
        console.note(&format!(
            "Set the fields back afterwards:\n  kubectl patch terraform {} -n {namespace} --type=merge -p '{reset}'",
            args.name
        ));
        return Ok(ExitStatus::Success);
    }
    let target = stack_target(&stack, args.wait.timeout);
    let progress = |found: Option<&Terraform>| Ok(release_progress(found, &id));
    wait::until(&context.cluster, &target, progress).await?;
    merge::<Terraform>(&context.cluster, &namespace, &args.name, &reset).await?;
    console.note(&format!(
        "The lock {id} is released. The fields of spec.tfstate are set back."
    ));
    Ok(ExitStatus::Success)
}

/// Returns the id of the lock that blocks the stack. Pure.
fn lock_to_release<'a>(stack: &'a Terraform, id: Option<&str>) -> Result<&'a str, CliError> {
    let refuse = |cause: String| CliError::Refused {
        object: format!("terraform {}", stack::full_name(stack)),
        cause,
        next_command: format!("sluice get terraforms {}", stack.name_any()),
    };
    let lock = stack.status.as_ref().and_then(|status| status.lock.as_ref());
    let pending = lock.map(|lock| lock.pending.as_str()).unwrap_or_default();
    match id {
        _ if pending.is_empty() => Err(refuse("no run has met a state lock".to_owned())),
        Some(id) if id != pending => Err(refuse(format!("the lock that blocks it is {pending}"))),
        _ => Ok(pending),
    }
}

/// Returns what the newest run that met the lock recorded about it.
fn lock_info(runs: &[TerraformRun], id: &str) -> LockInfo {
    let recorded = runs.iter().find_map(|run| {
        let lock = run.status.as_ref()?.lock.as_ref()?;
        (lock.id == id).then(|| lock.clone())
    });
    recorded.unwrap_or_else(|| LockInfo {
        id: id.to_owned(),
        ..LockInfo::default()
    })
}

/// Returns the run of the stack that holds a lock: the CLI wrote the user and the host of that run into it, and the run had begun when the
/// lock was created. A run that met the lock does not hold it.
fn holder_of(runs: &[TerraformRun], lock: &LockInfo) -> Holder {
    let created = parse_created(&lock.created);
    let may_hold = |run: &&TerraformRun| {
        let Some(status) = &run.status else { return false };
        let has_met = status.lock.as_ref().is_some_and(|met| met.id == lock.id);
        let had_begun = status
            .started_at
            .as_ref()
            .is_some_and(|began| created.is_none_or(|created| began.0 <= created));
        !has_met && had_begun && !lock.who.is_empty() && who(status) == lock.who
    };
    let holders: Vec<_> = runs.iter().filter(may_hold).collect();
    let active = holders.iter().find(|run| !run::phase(run).is_final());
    match (active, holders.first()) {
        (Some(run), _) => Holder::ActiveRun(run.name_any()),
        (None, Some(run)) => Holder::EndedRun(run.name_any(), run::phase(run).as_str()),
        (None, None) => Holder::Unknown,
    }
}

/// Returns `user@host` as the CLI of a run writes it into a lock; empty if it is not recorded. Earlier versions recorded it only as the
/// front of `claim.process`.
fn who(status: &TerraformRunStatus) -> &str {
    if !status.lock_holder.is_empty() {
        return &status.lock_holder;
    }
    let process = status.claim.as_ref().map(|claim| claim.process.as_str());
    let front = process.and_then(|process| process.rsplit_once(':'));
    front.map_or("", |(who, _)| who)
}

/// Describes a lock: its holder, its age, and what proves that the holder has ended. Pure.
#[must_use]
fn describe_lock(
    stack: &Terraform,
    lock: &LockInfo,
    holder: &Holder,
    now: Timestamp,
    console: Console,
) -> String {
    let mut text = String::new();
    let title = format!("State lock of {}", stack::full_name(stack));
    let _ = writeln!(text, "{}", console.paint(Tone::Heading, &title));
    let since = parse_created(&lock.created).map_or_else(
        || lock.created.clone(),
        |created| format!("{created:.0} ({} ago)", age(created, now)),
    );
    let proof = match holder {
        Holder::ActiveRun(run) => format!("none: run {run} is active"),
        Holder::EndedRun(run, phase) => {
            format!("run {run} has ended ({phase}); nothing proves that its processes have")
        }
        Holder::Unknown => {
            "none: no run of this stack has this holder. Make sure that no user or program works on the state"
                .to_owned()
        }
    };
    for (label, value) in [
        ("id", &lock.id),
        ("holder", &lock.who),
        ("operation", &lock.operation),
        ("since", &since),
        ("proof", &proof),
    ] {
        let value = if value.is_empty() { "not known" } else { value };
        let _ = writeln!(text, "  {label:<9} {}", console.paint(Tone::Plain, value));
    }
    text
}

/// Returns the patch that releases a lock, and the one that sets the fields back to what they are now. Pure.
fn patches(options: Option<&StateOptions>, id: &str) -> (Value, Value) {
    let release = json!({ "spec": { "tfstate": { "forceUnlock": "yes", "lockIdentifier": id } } });
    let Some(options) = options else {
        return (release, json!({ "spec": { "tfstate": null } }));
    };
    let identifier = Some(options.lock_identifier.as_str()).filter(|identifier| !identifier.is_empty());
    let reset = json!({ "forceUnlock": options.force_unlock, "lockIdentifier": identifier });
    (release, json!({ "spec": { "tfstate": reset } }))
}

/// Returns whether a lock does not block the stack any more. Pure.
fn release_progress(found: Option<&Terraform>, id: &str) -> Progress<()> {
    // Without the object, the lock blocked its deletion.
    match found.filter(|stack| lock_to_release(stack, Some(id)).is_ok()) {
        Some(stack) => Progress::Waiting(stack::message(stack).to_owned()),
        None => Progress::Done(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, run};

    fn stack(spec: &Value, pending: &str) -> Terraform {
        fixture::stack(&json!({ "spec": spec, "status": { "lock": { "pending": pending } } }))
    }

    fn lock() -> LockInfo {
        LockInfo {
            created: "2026-01-01 10:00:00.0 +0000 UTC".to_owned(),
            id: "l-1".to_owned(),
            operation: "OperationTypeApply".to_owned(),
            who: "runner@pod-4".to_owned(),
        }
    }

    #[test]
    fn only_the_lock_that_blocks_the_stack_is_released() {
        let locked = stack(&json!({}), "l-1");
        assert_eq!(lock_to_release(&locked, None).unwrap(), "l-1");
        assert_eq!(lock_to_release(&locked, Some("l-1")).unwrap(), "l-1");
        let other = lock_to_release(&locked, Some("l-2")).unwrap_err().to_string();
        assert_eq!(other, "terraform team/app: the lock that blocks it is l-1");
        let free = lock_to_release(&stack(&json!({}), ""), None)
            .unwrap_err()
            .to_string();
        assert_eq!(free, "terraform team/app: no run has met a state lock");
    }

    #[test]
    fn the_holder_is_a_run_of_the_stack_or_unknown() {
        let at = |phase: &str, who: &str, started: &str| json!({"phase": phase, "lockHolder": who, "startedAt": format!("2026-01-01T{started}Z")});
        let name = |number: u64| format!("app-0123456789-{number}");
        for (status, expected) in [
            (
                at("Applying", "runner@pod-4", "09:00:00"),
                Holder::ActiveRun(name(4)),
            ),
            (
                at("Lost", "runner@pod-4", "09:00:00"),
                Holder::EndedRun(name(4), "Lost"),
            ),
            (at("Lost", "me@laptop", "09:00:00"), Holder::Unknown),
            // It began after the lock was created.
            (at("Lost", "runner@pod-4", "11:00:00"), Holder::Unknown),
        ] {
            assert_eq!(holder_of(&[run(4, &status)], &lock()), expected, "{status}");
        }
        let mut met = at("Failed", "runner@pod-4", "09:00:00");
        met["lock"] = json!({"id": "l-1", "who": "runner@pod-4"});
        assert_eq!(holder_of(&[run(4, &met)], &lock()), Holder::Unknown);
        assert_eq!(lock_info(&[run(4, &met)], "l-1").who, "runner@pod-4");
        assert_eq!(lock_info(&[], "l-1").id, "l-1");
    }

    #[test]
    fn a_lock_is_described_with_holder_age_and_proof() {
        let now = "2026-01-01T10:10:00Z".parse().unwrap();
        let holder = Holder::EndedRun("app-0123456789-4".to_owned(), "Lost");
        assert_eq!(
            describe_lock(&stack(&json!({}), "l-1"), &lock(), &holder, now, Console::plain()),
            "State lock of team/app\n  id        l-1\n  holder    runner@pod-4\n  operation OperationTypeApply\n  \
             since     2026-01-01T10:00:00Z (10m ago)\n  \
             proof     run app-0123456789-4 has ended (Lost); nothing proves that its processes have\n"
        );
    }

    #[test]
    fn the_waiting_ends_when_the_lock_blocks_no_longer() {
        let locked = |id: &str| release_progress(Some(&stack(&json!({}), id)), "l-1");
        assert!(matches!(locked("l-1"), Progress::Waiting(_)));
        assert_eq!(locked("l-2"), Progress::Done(()));
        assert_eq!(locked(""), Progress::Done(()));
        assert_eq!(release_progress(None, "l-1"), Progress::Done(()));
    }

    #[test]
    fn the_fields_are_set_back_to_what_they_were() {
        for (spec, expected) in [
            (json!({}), json!({"tfstate": null})),
            (
                json!({"tfstate": {"forceUnlock": "auto", "lockTimeout": "1m"}}),
                json!({"tfstate": {"forceUnlock": "auto", "lockIdentifier": null}}),
            ),
            (
                json!({"tfstate": {"forceUnlock": "yes", "lockIdentifier": "old"}}),
                json!({"tfstate": {"forceUnlock": "yes", "lockIdentifier": "old"}}),
            ),
        ] {
            let (release, reset) = patches(stack(&spec, "l-1").spec.tfstate.as_ref(), "l-1");
            assert_eq!(release["spec"]["tfstate"]["lockIdentifier"], "l-1");
            assert_eq!(reset["spec"], expected, "{spec}");
        }
    }
}
