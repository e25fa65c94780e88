//! `sluice state restore`: writes a copy of the state back to the generated backend, as `state push -force` does. It holds the state lock
//! meanwhile: the Lease that the CLI uses.

use k8s_openapi::ByteString;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use sluice_api::run::TerraformRun;
use sluice_api::terraform::Terraform;
use sluice_tf_core::chunk;

use super::copies::{self, ReadCopy};
use super::stored::{DATA_KEY, Location, StoredState, decode, read_secrets};
use super::{Context, RestoreArgs};
use crate::change::token;
use crate::command::history::runs_of;
use crate::{CliError, ExitStatus, run, stack};

/// The annotation in which the CLI describes a lock.
const LOCK_INFO: &str = "app.terraform.io/lock-info";
/// Size limit of a state in one Secret, compressed: a Secret has at most 1 MiB with its names.
const SECRET_LIMIT: usize = 1024 * 1024 - 16 * 1024;

/// Restores a copy.
pub(super) async fn restore(context: &Context, args: &RestoreArgs) -> Result<ExitStatus, CliError> {
    let stack: Terraform = context.cluster.get(&args.name).await?;
    let runs = runs_of(&context.cluster, &stack).await?;
    check_idle(&stack, &runs)?;
    let copy = copies::read(&context.cluster, &stack, &args.copy).await?;
    let location = location_of(&stack, &copy)?;
    let packed = pack(&stack, &copy.state)?;
    let console = context.console;
    let namespace = stack.namespace().unwrap_or_default();
    let parts = read_secrets(&context.cluster, &namespace, &location).await?;
    let current = decode(&stack, &parts)?;
    console.note(&describe(&stack, current.as_ref(), &copy.state, &args.copy));
    if !args.yes && !console.confirm(&format!("Replace the state by the copy {}?", args.copy), "--yes")? {
        console.note("Nothing was restored.");
        return Ok(ExitStatus::Failed);
    }
    let leases = context.cluster.objects_in::<Lease>(&namespace);
    let id = format!("sluice-{}", token());
    lock(&leases, &location, &id).await?;
    // What was shown is replaced, and nothing newer: the Secret has the version that was read before the question.
    let secrets = context.cluster.objects_in::<Secret>(&namespace);
    let written = write(&secrets, &location, parts.into_iter().next(), packed).await;
    let unlocked = unlock(&leases, &location, &id).await;
    written?;
    unlocked?;
    let name = stack.name_any();
    console.note(&format!(
        "The state is restored: {}. Resume the stack with a manual approval, and read the next plan before you approve it:\n  \
         kubectl patch terraform {name} -n {namespace} --type=merge -p '{{\"spec\":{{\"suspend\":false,\"approvePlan\":\"\"}}}}'",
        copy.state.describe()
    ));
    Ok(ExitStatus::Success)
}

/// Refuses a stack whose runs may use the state. Pure.
fn check_idle(stack: &Terraform, runs: &[TerraformRun]) -> Result<(), CliError> {
    let name = stack.name_any();
    let refuse = |cause: String, next_command: String| CliError::Refused {
        object: format!("terraform {}", stack::full_name(stack)),
        cause,
        next_command,
    };
    if !stack.spec.suspend {
        return Err(refuse(
            "it is not suspended".to_owned(),
            format!("sluice suspend {name}"),
        ));
    }
    match runs.iter().find(|run| !run::phase(run).is_final()) {
        Some(active) => Err(refuse(
            format!("run {} is active", active.name_any()),
            format!("sluice cancel {} --wait", active.name_any()),
        )),
        None => Ok(()),
    }
}

/// Returns where the copy belongs. Pure.
fn location_of(stack: &Terraform, copy: &ReadCopy) -> Result<Location, CliError> {
    let workspace = stack.spec.workspace_name();
    if copy.workspace != workspace {
        return Err(CliError::Refused {
            object: format!("terraform {}", stack::full_name(stack)),
            cause: format!(
                "the copy is of the workspace {}, the stack uses {workspace}",
                copy.workspace
            ),
            next_command: format!("sluice state list {}", stack.name_any()),
        });
    }
    Location::of(stack, workspace)
}

/// Compresses a state as the CLI does. Pure.
fn pack(stack: &Terraform, state: &StoredState) -> Result<Vec<u8>, CliError> {
    let refuse = |cause: String| CliError::Refused {
        object: format!("terraform {}", stack::full_name(stack)),
        cause,
        next_command: format!("sluice debug {}", stack.name_any()),
    };
    let packed = chunk::compress(&state.bytes).map_err(|error| refuse(error.to_string()))?;
    if packed.len() > SECRET_LIMIT {
        return Err(refuse(format!(
            "the copy has {} bytes, compressed, more than one Secret holds: only the CLI splits a state",
            packed.len()
        )));
    }
    Ok(packed)
}

/// Describes what is replaced by what. Pure.
#[must_use]
fn describe(stack: &Terraform, current: Option<&StoredState>, copy: &StoredState, id: &str) -> String {
    let now = current.map_or_else(|| "no state".to_owned(), StoredState::describe);
    let warning = if current.is_some_and(|current| current.summary.lineage != copy.summary.lineage) {
        "\nThe lineages differ: the copy is of another state, or the state was created again since."
    } else {
        ""
    };
    format!(
        "State of {}\n  now   {now}\n  copy  {} ({id}){warning}\nNo resource is changed. What was created after the copy is missing in it, and the \
         next plan creates it again.",
        stack::full_name(stack),
        copy.describe()
    )
}

/// Takes the state lock.
async fn lock(leases: &Api<Lease>, location: &Location, id: &str) -> Result<(), CliError> {
    let name = location.lease();
    let found = leases
        .get_opt(&name)
        .await
        .map_err(|error| failed("get", "lease", &name, error))?;
    let is_new = found.is_none();
    let mut lease = found.unwrap_or_else(|| Lease {
        metadata: metadata(location, &name),
        spec: Some(LeaseSpec::default()),
    });
    let spec = lease.spec.get_or_insert_default();
    if let Some(holder) = spec
        .holder_identity
        .as_deref()
        .filter(|holder| !holder.is_empty())
    {
        return Err(CliError::Refused {
            object: format!("lease {name}"),
            cause: format!("the state is locked ({holder})"),
            next_command: "wait for its holder, or release the lock with force-unlock of the CLI".to_owned(),
        });
    }
    spec.holder_identity = Some(id.to_owned());
    let info = serde_json::json!({ "ID": id, "Operation": "sluice state restore", "Who": "sluice" });
    lease
        .annotations_mut()
        .insert(LOCK_INFO.to_owned(), info.to_string());
    let params = PostParams::default();
    // With the version that was read: of two programs only one takes the lock.
    let written = if is_new {
        leases.create(&params, &lease).await
    } else {
        leases.replace(&name, &params, &lease).await
    };
    written
        .map(drop)
        .map_err(|error| failed("update", "lease", &name, error))
}

/// Releases the state lock, if it is still ours.
async fn unlock(leases: &Api<Lease>, location: &Location, id: &str) -> Result<(), CliError> {
    let name = location.lease();
    let mut lease = leases
        .get(&name)
        .await
        .map_err(|error| failed("get", "lease", &name, error))?;
    let Some(spec) = lease
        .spec
        .as_mut()
        .filter(|spec| spec.holder_identity.as_deref() == Some(id))
    else {
        return Ok(());
    };
    spec.holder_identity = None;
    lease.annotations_mut().remove(LOCK_INFO);
    let written = leases.replace(&name, &PostParams::default(), &lease).await;
    written
        .map(drop)
        .map_err(|error| failed("update", "lease", &name, error))
}

/// Writes the state.
async fn write(
    secrets: &Api<Secret>,
    location: &Location,
    current: Option<Secret>,
    packed: Vec<u8>,
) -> Result<(), CliError> {
    let name = location.secret();
    let is_new = current.is_none();
    let mut secret = current.unwrap_or_else(|| Secret {
        metadata: metadata(location, &name),
        ..Secret::default()
    });
    secret
        .annotations_mut()
        .insert("encoding".to_owned(), "gzip".to_owned());
    let data = secret.data.get_or_insert_default();
    data.insert(DATA_KEY.to_owned(), ByteString(packed));
    let params = PostParams::default();
    let written = if is_new {
        secrets.create(&params, &secret).await
    } else {
        secrets.replace(&secret.name_any(), &params, &secret).await
    };
    written
        .map(drop)
        .map_err(|error| failed("update", "secret", &name, error))
}

/// Returns the metadata that the CLI gives the parts of a state.
fn metadata(location: &Location, name: &str) -> ObjectMeta {
    let labels = location.labels().map(|(label, value)| (label.to_owned(), value));
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels.into()),
        ..ObjectMeta::default()
    }
}

fn failed(action: &'static str, kind: &str, name: &str, error: kube::Error) -> CliError {
    CliError::Api {
        action,
        object: format!("{kind} {name}"),
        source: Box::new(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture;

    fn stack(spec: &Value) -> Terraform {
        fixture::stack(&json!({ "spec": spec }))
    }

    fn state(lineage: &str, serial: u64) -> StoredState {
        let text = json!({"version": 4, "serial": serial, "lineage": lineage, "resources": []}).to_string();
        StoredState::parse("test", text.into_bytes()).unwrap()
    }

    #[test]
    fn only_an_idle_stack_gets_another_state() {
        let run = |phase: &str| fixture::run(4, &json!({ "phase": phase }));
        let suspended = stack(&json!({"suspend": true}));
        assert!(check_idle(&suspended, &[run("Failed")]).is_ok());
        assert!(check_idle(&suspended, &[run("Applying")]).is_err());
        assert!(check_idle(&stack(&json!({})), &[]).is_err());
    }

    #[test]
    fn a_copy_belongs_to_the_workspace_of_the_stack() {
        let copy = |workspace: &str| ReadCopy {
            workspace: workspace.to_owned(),
            state: state("l-1", 3),
        };
        let blue = stack(&json!({"workspace": "blue"}));
        let location = location_of(&blue, &copy("blue")).unwrap();
        assert_eq!(location.secret(), "tfstate-blue-app");
        assert!(location_of(&blue, &copy("default")).is_err());
    }

    #[test]
    fn the_question_names_serial_and_lineage_of_both_states() {
        let (current, copy) = (state("l-1", 7), state("l-2", 3));
        let text = describe(&stack(&json!({})), Some(&current), &copy, "3f9a0c1b2d");
        assert_eq!(
            text,
            "State of team/app\n  now   serial 7, lineage l-1, 0 resources\n  copy  serial 3, lineage l-2, 0 resources (3f9a0c1b2d)\n\
             The lineages differ: the copy is of another state, or the state was created again since.\n\
             No resource is changed. What was created after the copy is missing in it, and the next plan creates it again."
        );
        let same = describe(&stack(&json!({})), Some(&copy), &copy, "id");
        assert!(!same.contains("differ"), "{same}");
        assert!(describe(&stack(&json!({})), None, &copy, "id").contains("now   no state"));
    }

    #[test]
    fn a_state_that_one_secret_does_not_hold_is_refused() {
        let stack = stack(&json!({}));
        let small = state("l", 1);
        let packed = pack(&stack, &small).unwrap();
        assert_eq!(chunk::decompress(&packed, 1024).unwrap(), small.bytes);
        // Digits of a generator that gzip does not compress well.
        let mut seed = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            u8::try_from(seed >> 56).unwrap()
        })
        .take(SECRET_LIMIT + 64 * 1024)
        .collect();
        let large = StoredState {
            bytes: noise,
            ..small
        };
        let error = pack(&stack, &large).unwrap_err().to_string();
        assert!(error.contains("more than one Secret holds"), "{error}");
    }
}
