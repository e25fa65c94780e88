//! `sluice delete`: says what happens to the resources of a stack, asks, and deletes the object.

use std::fmt::Write as _;

use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Preconditions};
use sluice_api::run::TerraformRun;
use sluice_api::source::GitRepository;
use sluice_api::terraform::{DEPENDENT_FINALIZER_PREFIX, DeletionPolicy, SourceKind, Terraform};

use super::Context;
use super::history::stack_with_runs;
use super::reconcile::stack_target;
use crate::cluster::{ConnectionArgs, describe};
use crate::object::{ObjectKind, Words};
use crate::output::counted;
use crate::wait::{self, Progress, WaitArgs};
use crate::{CliError, ExitStatus, run, stack};

/// Arguments of `sluice delete`.
#[derive(clap::Args, Debug)]
pub struct DeleteArgs {
    /// The object: a stack, or `source NAME`.
    #[arg(value_name = "NAME", required = true, num_args = 1..=3)]
    pub object: Vec<String>,
    /// Do not ask.
    #[arg(short = 'y', long, visible_alias = "silent", visible_short_alias = 's')]
    pub yes: bool,
    /// How long to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Deletes an object.
pub(super) async fn delete(context: &Context, args: &DeleteArgs) -> Result<ExitStatus, CliError> {
    match Words::one(&args.object)? {
        (ObjectKind::Stack, name) => delete_stack(context, args, &name).await,
        (ObjectKind::Source, name) => delete_source(context, args, &name).await,
    }
}

async fn delete_stack(context: &Context, args: &DeleteArgs, name: &str) -> Result<ExitStatus, CliError> {
    let (stack, runs) = stack_with_runs(&context.cluster, name).await?;
    let console = context.console;
    console.note(consequences(&stack, &runs).trim_end());
    let full_name = stack::full_name(&stack);
    if stack.metadata.deletion_timestamp.is_none() {
        if !args.yes && !console.confirm(&format!("Delete terraform {full_name}?"), "--yes")? {
            console.note("Nothing was deleted.");
            return Ok(ExitStatus::Failed);
        }
        let object = describe::<Terraform>(context.cluster.namespace(), name);
        let (api, params) = (context.cluster.objects::<Terraform>(), delete_params(stack.uid()));
        let deleted = context.cluster.answer(&object, api.delete(name, &params)).await;
        deleted.map(drop).map_err(|source| CliError::Api {
            action: "delete",
            object,
            source: Box::new(source),
        })?;
    }
    if args.wait.wait {
        let target = stack_target(&stack, args.wait.timeout);
        let uid = stack.uid();
        let progress_of = |found: Option<&Terraform>| deletion_progress(found, uid.as_deref());
        wait::until(&context.cluster, &target, progress_of).await?;
        console.note(&format!("terraform {full_name} is deleted."));
    } else {
        console.note(&format!("terraform {full_name} is being deleted."));
    }
    Ok(ExitStatus::Success)
}

async fn delete_source(context: &Context, args: &DeleteArgs, name: &str) -> Result<ExitStatus, CliError> {
    let source: GitRepository = context.cluster.get(name).await?;
    let (console, namespace) = (context.console, context.cluster.namespace());
    let stacks = context.cluster.objects::<Terraform>();
    let stacks: Vec<Terraform> = context.cluster.list_with(&stacks, ListParams::default()).await?;
    let users = users_of(&stacks, namespace, name);
    if !users.is_empty() {
        console.note(&format!(
            "These stacks of the namespace use it, and get no new revision without it: {}.",
            users.join(", ")
        ));
    }
    let object = describe::<GitRepository>(namespace, name);
    if !args.yes && !console.confirm(&format!("Delete {object}?"), "--yes")? {
        console.note("Nothing was deleted.");
        return Ok(ExitStatus::Failed);
    }
    let (api, params) = (
        context.cluster.objects::<GitRepository>(),
        delete_params(source.uid()),
    );
    let deleted = context.cluster.answer(&object, api.delete(name, &params)).await;
    deleted.map(drop).map_err(|error| CliError::Api {
        action: "delete",
        object: object.clone(),
        source: Box::new(error),
    })?;
    if args.wait.wait {
        let target = wait::Target {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            timeout: args.wait.timeout,
            return_command: format!("sluice get sources {name} -n {namespace}"),
        };
        let uid = source.uid();
        let progress_of = |found: Option<&GitRepository>| {
            let is_there = found.is_some_and(|found| found.uid() == uid);
            Ok(if is_there {
                Progress::Waiting("Deletion in progress".to_owned())
            } else {
                Progress::Done(())
            })
        };
        wait::until(&context.cluster, &target, progress_of).await?;
    }
    console.note(&format!("{object} is deleted."));
    Ok(ExitStatus::Success)
}

/// Returns parameters that delete only the object that was shown, not one that was created under its name since.
fn delete_params(uid: Option<String>) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions {
        uid,
        resource_version: None,
    })
}

/// Returns the names of the stacks that use a source of their namespace. Pure.
fn users_of<'a>(stacks: &'a [Terraform], namespace: &str, source: &str) -> Vec<&'a str> {
    let refers_to_it = |stack: &&Terraform| {
        let reference = &stack.spec.source_ref;
        let is_here = reference.namespace.is_empty() || reference.namespace == namespace;
        reference.kind == SourceKind::GitRepository && reference.name == source && is_here
    };
    stacks
        .iter()
        .filter(refers_to_it)
        .filter_map(|stack| stack.metadata.name.as_deref())
        .collect()
}

/// Returns what the deletion of a stack does to its resources and its state, and what holds it. Pure.
#[must_use]
fn consequences(stack: &Terraform, runs: &[TerraformRun]) -> String {
    let mut text = String::new();
    let name = stack::full_name(stack);
    let count = resource_count(stack, runs);
    let _ = match stack.spec.on_deletion() {
        Err(conflict) => writeln!(text, "terraform {name} cannot be deleted yet: {conflict}."),
        Ok(DeletionPolicy::Destroy) => writeln!(
            text,
            "terraform {name} DESTROYS {count} before it is deleted. The state stays, and is empty then."
        ),
        Ok(DeletionPolicy::Retain) => writeln!(
            text,
            "terraform {name} leaves {count}: nothing is destroyed, and no stack manages them afterwards. The state stays."
        ),
        Ok(DeletionPolicy::Orphan) => writeln!(
            text,
            "terraform {name} leaves {count}: nothing is destroyed, and no stack manages them afterwards. A state in the generated backend is \
             DELETED."
        ),
    };
    let finalizers = stack.finalizers().iter();
    let dependents: Vec<_> = finalizers
        .filter_map(|finalizer| finalizer.strip_prefix(DEPENDENT_FINALIZER_PREFIX))
        .collect();
    if !dependents.is_empty() {
        let _ = writeln!(
            text,
            "It waits until the stacks that depend on it are deleted: {}.",
            dependents.join(", ")
        );
    }
    if stack.spec.suspend {
        let _ = writeln!(text, "It waits until it is resumed: it is suspended.");
    }
    if let Some(active) = runs.iter().find(|run| !run::phase(run).is_final()) {
        let phase = run::phase(active).as_str();
        let _ = writeln!(text, "It waits for run {}, which is {phase}.", active.name_any());
    }
    text
}

/// Returns the number of the stack's resources and where it is from: the inventory, or else the newest run that read the state.
fn resource_count(stack: &Terraform, runs: &[TerraformRun]) -> String {
    let resources = |count: usize| counted(count, "resource");
    let inventory = stack.status.as_ref().and_then(|status| status.inventory.as_ref());
    if let Some(inventory) = inventory {
        return format!("{} (inventory)", resources(inventory.entries.len()));
    }
    let known = runs.iter().find_map(|run| {
        let state = run.status.as_ref()?.state.as_ref()?;
        Some((
            usize::try_from(state.resources).unwrap_or_default(),
            run::number(run),
        ))
    });
    known.map_or_else(
        || "an unknown number of resources".to_owned(),
        |(count, number)| format!("{} (state after run {number})", resources(count)),
    )
}

/// Returns whether a stack is deleted; an object of another uid is another stack. Pure.
fn deletion_progress(found: Option<&Terraform>, uid: Option<&str>) -> Result<Progress<()>, CliError> {
    let Some(stack) = found.filter(|found| found.metadata.uid.as_deref() == uid) else {
        return Ok(Progress::Done(()));
    };
    let ready = stack::ready(stack);
    // The destroy finds another state than the last apply left.
    let is_held = ready.is_some_and(|ready| ready.message.contains("not applied: held"));
    match stack::pending_plan(stack) {
        Some(plan) if is_held => Err(CliError::AwaitsApproval {
            object: format!("terraform {}", stack::full_name(stack)),
            plan: plan.to_owned(),
            next_command: format!("sluice plan show {}", stack.name_any()),
        }),
        _ => Ok(Progress::Waiting(
            ready.map_or_else(String::new, |ready| ready.message.clone()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{run, stack};

    /// The uid of the stack.
    const UID: &str = "0123456789";

    #[test]
    fn the_policy_decides_what_a_deletion_does() {
        let runs = [
            run(5, &json!({"phase": "Failed"})),
            run(
                4,
                &json!({"phase": "Succeeded", "state": {"lineage": "l", "resources": 12}}),
            ),
        ];
        for (spec, expected) in [
            (
                json!({}),
                "leaves 12 resources (state after run 4): nothing is destroyed, and no stack manages them afterwards. The state stays.",
            ),
            (
                json!({"destroyResourcesOnDeletion": true}),
                "DESTROYS 12 resources (state after run 4) before it is deleted. The state stays, and is empty then.",
            ),
            (
                json!({"deletionPolicy": "Orphan"}),
                "leaves 12 resources (state after run 4): nothing is destroyed, and no stack manages them afterwards. A state in the \
                 generated backend is DELETED.",
            ),
            (
                json!({"deletionPolicy": "Retain", "destroyResourcesOnDeletion": true}),
                "cannot be deleted yet: spec.deletionPolicy is Retain and spec.destroyResourcesOnDeletion is true: these \
                 contradict each other; remove one of the two.",
            ),
        ] {
            let text = consequences(&stack(&json!({ "spec": spec })), &runs);
            assert_eq!(text, format!("terraform team/app {expected}\n"));
        }
    }

    #[test]
    fn what_holds_a_deletion_is_said_first() {
        let object = stack(&json!({
            "metadata": {"finalizers": ["tf.dependency.of.web", "finalizers.tf.contrib.fluxcd.io"]},
            "spec": {"suspend": true},
            "status": {"inventory": {"entries": [{"id": "i", "n": "a", "t": "b"}]}},
        }));
        assert_eq!(
            consequences(&object, &[run(6, &json!({"phase": "Applying"}))]),
            "terraform team/app leaves 1 resource (inventory): nothing is destroyed, and no stack manages them afterwards. The state stays.\n\
             It waits until the stacks that depend on it are deleted: web.\n\
             It waits until it is resumed: it is suspended.\n\
             It waits for run app-0123456789-6, which is Applying.\n"
        );
        let unknown = consequences(&stack(&json!({})), &[]);
        assert!(
            unknown.contains("leaves an unknown number of resources: nothing"),
            "{unknown}"
        );
    }

    #[test]
    fn a_deletion_ends_when_the_object_is_gone() {
        let ready = |reason: &str, message: &str| json!([{"type": "Ready", "status": "Unknown", "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let object = stack(&json!({"status": {"conditions": ready("Progressing", "Deletion in progress")}}));
        let progress = |found: Option<&Terraform>, uid| deletion_progress(found, Some(uid)).unwrap();
        assert_eq!(progress(None, UID), Progress::Done(()));
        assert_eq!(progress(Some(&object), "another"), Progress::Done(()));
        assert_eq!(
            progress(Some(&object), UID),
            Progress::Waiting("Deletion in progress".to_owned())
        );
        let message = "Plan generated, and not applied: held: the CLI finds another state";
        let held = stack(&json!({"status": {
            "conditions": ready("TerraformPlannedWithChanges", message), "plan": {"pending": "plan-x"},
        }}));
        let error = deletion_progress(Some(&held), Some(UID)).unwrap_err();
        assert_eq!(error.exit_status(), ExitStatus::AwaitsApproval);
    }

    #[test]
    fn the_stacks_of_a_source_are_named() {
        let own = stack(&json!({}));
        let same = stack(
            &json!({"spec": {"sourceRef": {"kind": "GitRepository", "name": "repo", "namespace": "team"}}}),
        );
        let other = stack(
            &json!({"spec": {"sourceRef": {"kind": "GitRepository", "name": "repo", "namespace": "git"}}}),
        );
        let bucket = stack(&json!({"spec": {"sourceRef": {"kind": "Bucket", "name": "repo"}}}));
        assert_eq!(
            users_of(&[own, same, other, bucket], "team", "repo"),
            ["app", "app"]
        );
    }
}
