//! Names that only the kubeconfig or the API knows.

use std::cmp::Reverse;
use std::fmt::Debug;
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::ListParams;
use kube::config::Kubeconfig;
use kube::{Api, ResourceExt as _};
use serde::de::DeserializeOwned;
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::run::TerraformRun;
use sluice_api::source::GitRepository;
use sluice_api::terraform::{Terraform, label_value, run_sequence};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::Candidate;
use crate::cluster::{Cluster, ConnectionArgs, SelectionArgs};
use crate::command::outputs;
use crate::command::state::copy_ids;
use crate::run_row;
use crate::stack::{self, StackState};

/// How long a user waits for names after the key: the shell is blocked.
pub(super) const DEADLINE: Duration = Duration::from_secs(2);
/// Maximum number of names that are read: one request.
const LIMIT: u32 = 500;

/// Which names are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// Terraform objects.
    Stacks,
    /// Terraform objects; those whose plan waits for an approval come first.
    StacksToApprove,
    /// GitRepository objects.
    Sources,
    /// GitRepository objects as `GitRepository/NAME`.
    SourceReferences,
    /// The keys of the outputs Secret of a stack.
    OutputKeys(String),
    /// The plan of a stack that waits for an approval.
    PendingPlan(String),
    /// The state lock that blocks a stack.
    PendingLock(String),
    /// The copies of the state of a stack, newest first.
    StateCopies(String),
    /// TerraformRun objects that have not ended.
    ActiveRuns,
    /// TerraformRun objects, those of a stack newest first.
    Runs,
    /// The numbers of the runs of a stack, newest first.
    RunNumbers(String),
    /// Namespaces.
    Namespaces,
    /// Contexts of the kubeconfig, in its order.
    Contexts,
}

/// Reads the names; there are none if the API answers with an error, or not in time.
pub(super) async fn look_up(names: Names, connection: ConnectionArgs) -> Vec<Candidate> {
    let (send, found) = oneshot::channel();
    // On a thread that the end of the program does not wait for: a credential plugin of the kubeconfig blocks it until it ends.
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().ok();
        let listed = runtime.and_then(|runtime| runtime.block_on(list(&names, &connection)));
        // After the deadline the receiver is gone.
        drop(send.send(listed.unwrap_or_default()));
    });
    match tokio::time::timeout(DEADLINE, found).await {
        Ok(Ok(found)) => found,
        _ => Vec::new(),
    }
}

async fn list(names: &Names, connection: &ConnectionArgs) -> Option<Vec<Candidate>> {
    let cluster = async || Cluster::connect(connection).await.ok();
    let found = match names {
        Names::Contexts => contexts(connection)?,
        Names::Stacks => names_of(&cluster().await?.objects::<Terraform>(), None).await?,
        Names::Sources => names_of(&cluster().await?.objects::<GitRepository>(), None).await?,
        Names::SourceReferences => {
            let names = names_of(&cluster().await?.objects::<GitRepository>(), None).await?;
            names
                .into_iter()
                .map(|name| format!("GitRepository/{name}"))
                .collect()
        }
        Names::OutputKeys(stack) => {
            let cluster = cluster().await?;
            let stack = read_stack(&cluster, stack).await?;
            let target = stack.spec.write_outputs_to_secret?;
            let secret = cluster.objects::<Secret>().get_opt(&target.name).await.ok()??;
            outputs::keys(&secret)
        }
        Names::PendingPlan(stack) => {
            let stack = read_stack(&cluster().await?, stack).await?;
            stack::pending_plan(&stack)
                .map(str::to_owned)
                .into_iter()
                .collect()
        }
        Names::PendingLock(stack) => {
            let lock = read_stack(&cluster().await?, stack).await?.status?.lock?;
            Some(lock.pending)
                .filter(|id| !id.is_empty())
                .into_iter()
                .collect()
        }
        Names::StateCopies(stack) => {
            let cluster = cluster().await?;
            let stack = read_stack(&cluster, stack).await?;
            copy_ids(&cluster, &stack).await.ok()?
        }
        Names::ActiveRuns => return active_runs(&cluster().await?).await,
        Names::Namespaces => names_of(&Api::<Namespace>::all(cluster().await?.client()), None).await?,
        Names::Runs => {
            let mut runs = names_of(&cluster().await?.objects::<TerraformRun>(), None).await?;
            sort_runs(&mut runs);
            runs
        }
        Names::RunNumbers(stack) => {
            let label = format!("{TERRAFORM_LABEL}={}", label_value(stack));
            let runs = names_of(&cluster().await?.objects::<TerraformRun>(), Some(label)).await?;
            numbers(&runs)
        }
        Names::StacksToApprove => return stacks_to_approve(&cluster().await?).await,
    };
    Some(found.into_iter().map(|name| Candidate::new(name, None)).collect())
}

/// Reads the metadata alone, and returns the names in the order of the API: sorted.
async fn names_of<K>(objects: &Api<K>, labels: Option<String>) -> Option<Vec<String>>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut page = ListParams::default().limit(LIMIT);
    page.label_selector = labels;
    let listed = objects.list_metadata(&page).await.ok()?;
    let names = listed.items.into_iter().filter_map(|object| object.metadata.name);
    Some(names.collect())
}

async fn read_stack(cluster: &Cluster, name: &str) -> Option<Terraform> {
    cluster.objects::<Terraform>().get_opt(name).await.ok()?
}

/// Reads whole stacks: their status says whether a plan waits.
async fn stacks_to_approve(cluster: &Cluster) -> Option<Vec<Candidate>> {
    let page = ListParams::default().limit(LIMIT);
    let listed = cluster.objects::<Terraform>().list(&page).await.ok()?;
    let candidate = |stack: Terraform, help: &str| Candidate {
        value: stack.name_any(),
        help: help.to_owned(),
    };
    let waits = |stack: &Terraform| stack::state(stack) == StackState::AwaitsApproval;
    let (waiting, others): (Vec<_>, Vec<_>) = listed.items.into_iter().partition(waits);
    let waiting = waiting
        .into_iter()
        .map(|stack| candidate(stack, "waits for approval"));
    let others = others.into_iter().map(|stack| candidate(stack, ""));
    Some(waiting.chain(others).collect())
}

/// Reads the rows of runs: their phases say which are active.
async fn active_runs(cluster: &Cluster) -> Option<Vec<Candidate>> {
    // One that prints nothing while it waits: the user is typing.
    let cluster = Cluster::new(cluster.client(), cluster.namespace());
    let rows = run_row::view_of_stacks(&cluster, &SelectionArgs::default(), &[]).await;
    let mut rows = rows.ok()?;
    rows.retain(|row| !row.phase.is_final());
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    let candidates = rows.into_iter().map(|row| Candidate {
        value: row.name,
        help: row.phase.as_str().to_owned(),
    });
    Some(candidates.collect())
}

fn contexts(connection: &ConnectionArgs) -> Option<Vec<String>> {
    let config = match &connection.kubeconfig {
        Some(path) => Kubeconfig::read_from(path).ok()?,
        None => Kubeconfig::read().ok()?,
    };
    Some(config.contexts.into_iter().map(|context| context.name).collect())
}

/// Sorts the names of runs by their stacks, and those of a stack from the newest to the oldest.
fn sort_runs(runs: &mut [String]) {
    runs.sort_by_cached_key(|run| {
        let stack = run.rsplit_once('-').map_or(run.as_str(), |(stack, _)| stack);
        (stack.to_owned(), Reverse(run_sequence(run)))
    });
}

/// Returns the numbers at the ends of the names, the highest first.
fn numbers(runs: &[String]) -> Vec<String> {
    let mut numbers: Vec<_> = runs.iter().filter_map(|run| run_sequence(run)).collect();
    numbers.sort_by_key(|number| Reverse(*number));
    // A stack that was deleted and created again had runs with the same numbers.
    numbers.dedup();
    numbers.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_runs_come_first() {
        let mut runs = ["b-0-2", "app-0-9", "app-0-10", "app-1-9"].map(str::to_owned);
        sort_runs(&mut runs);
        assert_eq!(runs, ["app-0-10", "app-0-9", "app-1-9", "b-0-2"]);
        assert_eq!(numbers(&runs), ["10", "9", "2"]);
    }
}
