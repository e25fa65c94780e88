//! Runs as rows of a list. A row has what lists show of a run, and neither its plan, its log nor its state, which are nearly all of its
//! bytes.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::run::{Phase, TerraformRun};
use sluice_api::terraform::{Terraform, label_value, run_name, run_sequence};

use crate::CliError;
use crate::api_table::{self, ApiTable, Metadata, RowObject};
use crate::cluster::{Cluster, PAGE, SelectionArgs, list_error, list_name, params_of_view};
use crate::output::age;

/// The columns of the definition (api/src/run/spec.rs), in the order of [`RunRow::new`].
const COLUMNS: [&str; 14] = [
    "Name",
    "Terraform",
    "Action",
    "Trigger",
    "Phase",
    "Changes",
    "Age",
    "Message",
    "Revision",
    "Plan",
    "Approved By",
    "Started",
    "Finished",
    "Subject",
];
/// The most stacks whose runs a list selects by their names: the selector is a part of the URL.
const SELECTED_STACKS: usize = 64;

/// What lists show of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunRow {
    /// Its namespace; empty if the list was read without metadata.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// When it was created; `None` if the list was read without metadata.
    pub created: Option<Timestamp>,
    /// The name of its stack.
    pub terraform: String,
    /// `spec.action`.
    pub action: String,
    /// `spec.trigger`.
    pub trigger: String,
    /// Its phase.
    pub phase: Phase,
    /// The counts of its plan, for example `+2 ~1 -0`; empty: it has made no plan.
    pub changes: String,
    /// Its age, as `kubectl` prints it.
    pub age: String,
    /// `status.message`.
    pub message: String,
    /// The revision of its source.
    pub revision: String,
    /// The id of its plan; empty: it has no plan with changes.
    pub plan_id: String,
    /// `spec.approvedBy`: users with PlanApprovals, or the field manager of `approvePlan`.
    pub approved_by: String,
    /// When a runner has claimed it.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// The subject of the commit; empty: the source or the version of the run does not say.
    pub subject: String,
}

impl RunRow {
    /// Builds a row from the texts of [`COLUMNS`]. Pure.
    fn new(texts: [String; COLUMNS.len()], metadata: Metadata) -> Self {
        let [
            name,
            terraform,
            action,
            trigger,
            phase,
            changes,
            age,
            message,
            revision,
            plan_id,
            approved_by,
            started,
            finished,
            subject,
        ] = texts;
        let known_phase = Phase::ALL.iter().find(|known| known.as_str() == phase);
        Self {
            namespace: metadata.namespace,
            name,
            created: metadata.creation_timestamp,
            terraform,
            action,
            trigger,
            phase: known_phase.copied().unwrap_or_default(),
            changes,
            age,
            message,
            revision,
            plan_id,
            approved_by,
            started: started.parse().ok(),
            finished: finished.parse().ok(),
            subject,
        }
    }

    /// Builds the row of a run that was read as a whole. Pure.
    #[must_use]
    pub fn of(run: &TerraformRun, now: Timestamp) -> Self {
        let status = run.status.clone().unwrap_or_default();
        let created = run.metadata.creation_timestamp.as_ref().map(|time| time.0);
        Self {
            namespace: run.namespace().unwrap_or_default(),
            name: run.name_any(),
            created,
            terraform: run.spec.terraform.name.clone(),
            action: run.spec.action.as_str().to_owned(),
            trigger: run.spec.trigger.as_str().to_owned(),
            phase: status.phase,
            changes: status.changes,
            age: created.map(|created| age(created, now)).unwrap_or_default(),
            message: status.message,
            revision: run.spec.source.revision.clone(),
            plan_id: status.plan_id,
            approved_by: run.spec.approved_by.clone(),
            started: status.started_at.map(|time| time.0),
            finished: status.finished_at.map(|time| time.0),
            subject: run.spec.source.subject.clone(),
        }
    }

    /// Returns the number of the run; 0 if its name has none.
    #[must_use]
    pub fn number(&self) -> u64 {
        run_sequence(&self.name).unwrap_or_default()
    }

    /// Returns how long the run lasted, or lasts until `now`; `None` if no runner has claimed it.
    #[must_use]
    pub fn lasted(&self, now: Timestamp) -> Option<SignedDuration> {
        Some(self.finished.unwrap_or(now).duration_since(self.started?))
    }

    /// Returns the key of the stack of this run, as [`stack_key`] has it.
    #[must_use]
    pub fn stack_key(&self) -> &str {
        without_number(&self.name)
    }
}

/// Returns what the names of a stack's runs have in common: its name and the first digits of its uid. So a namesake that was deleted, or
/// that is in another namespace, has another key.
#[must_use]
pub fn stack_key(stack: &Terraform) -> String {
    let name = run_name(&stack.name_any(), &stack.uid().unwrap_or_default(), 0);
    without_number(&name).to_owned()
}

/// Removes the number from the name of a run, which leaves the key of its stack.
pub(crate) fn without_number(name: &str) -> &str {
    name.rsplit_once('-').map_or(name, |(front, _)| front)
}

/// Returns the row of the newest run that made the plan with this id.
#[must_use]
pub fn of_plan<'a>(rows: &'a [RunRow], plan: &str) -> Option<&'a RunRow> {
    let made = rows.iter().filter(|row| row.plan_id == plan);
    made.max_by_key(|row| row.number())
}

/// Returns the parameters of a list of the runs of a stack: the API selects them by their label.
#[must_use]
pub(crate) fn params_of_stack(name: &str) -> ListParams {
    ListParams::default().labels(&format!("{TERRAFORM_LABEL}={}", label_value(name)))
}

/// Reads the rows of the runs of one stack, newest first, without metadata.
///
/// # Errors
/// The API rejects the request.
pub async fn rows_of(cluster: &Cluster, stack: &Terraform) -> Result<Vec<RunRow>, CliError> {
    let rows = labelled(cluster, &stack.name_any()).await?;
    Ok(of_stack(rows, stack))
}

/// Reads a stack and, at the same time, the rows of its runs, as [`rows_of`] returns them: their label has the name of the stack.
///
/// # Errors
/// The stack does not exist, or the API rejects a request.
pub async fn stack_with_rows(cluster: &Cluster, name: &str) -> Result<(Terraform, Vec<RunRow>), CliError> {
    let (stack, rows) = tokio::join!(cluster.get::<Terraform>(name), labelled(cluster, name));
    // A stack that does not exist is the first thing to know.
    let stack = stack?;
    let rows = of_stack(rows?, &stack);
    Ok((stack, rows))
}

/// Reads the rows of all runs of the cluster as they are now, page by page, without metadata.
///
/// # Errors
/// The API rejects a request.
pub async fn all(cluster: &Cluster) -> Result<Vec<RunRow>, CliError> {
    let params = ListParams::default().limit(PAGE);
    read(cluster, &Api::all(cluster.client()), &params, RowObject::None).await
}

/// Reads the rows of the runs in the selected namespaces to show them, with metadata.
///
/// # Errors
/// The API rejects the request.
pub async fn view(cluster: &Cluster, selection: &SelectionArgs) -> Result<Vec<RunRow>, CliError> {
    let api = cluster.selected::<TerraformRun>(selection);
    read(cluster, &api, &params_of_view(selection), RowObject::Metadata).await
}

/// Reads the rows of the runs in the selected namespaces to show them, without metadata. The labels of the selection are those of the
/// stacks, which runs do not have: with labels, `stacks` are the stacks whose runs are read, if they are few.
///
/// # Errors
/// The API rejects the request.
pub async fn view_of_stacks(
    cluster: &Cluster,
    selection: &SelectionArgs,
    stacks: &[Terraform],
) -> Result<Vec<RunRow>, CliError> {
    let api = cluster.selected::<TerraformRun>(selection);
    let mut params = ListParams::default().match_any();
    if selection.selector.is_some() {
        if stacks.is_empty() {
            return Ok(Vec::new());
        }
        params.label_selector = selector_of(stacks);
    }
    read(cluster, &api, &params, RowObject::None).await
}

/// Returns the selector of the runs of these stacks; `None`: they are too many for a URL. Pure.
fn selector_of(stacks: &[Terraform]) -> Option<String> {
    let names: Vec<_> = stacks
        .iter()
        .map(|stack| label_value(&stack.name_any()))
        .collect();
    (names.len() <= SELECTED_STACKS).then(|| format!("{TERRAFORM_LABEL} in ({})", names.join(",")))
}

/// Reads the rows of the runs with the label of a stack. The answer is not from a cache that may be old: a plan is shown by what it says.
async fn labelled(cluster: &Cluster, name: &str) -> Result<Vec<RunRow>, CliError> {
    let api = cluster.objects::<TerraformRun>();
    read(cluster, &api, &params_of_stack(name), RowObject::None).await
}

async fn read(
    cluster: &Cluster,
    api: &Api<TerraformRun>,
    params: &ListParams,
    object: RowObject,
) -> Result<Vec<RunRow>, CliError> {
    let client = cluster.client();
    let request = api_table::read(&client, api.resource_url(), params, object);
    let table = cluster.answer(&list_name::<TerraformRun>(), request).await;
    Ok(rows(table.map_err(list_error::<TerraformRun>)?))
}

/// Returns the rows of a table, in its order. Pure.
fn rows(table: ApiTable) -> Vec<RunRow> {
    let rows = table.texts(COLUMNS).into_iter();
    rows.map(|(texts, metadata)| RunRow::new(texts, metadata))
        .collect()
}

/// Returns the rows of a stack, newest first. Pure.
fn of_stack(mut rows: Vec<RunRow>, stack: &Terraform) -> Vec<RunRow> {
    let key = stack_key(stack);
    rows.retain(|row| row.stack_key() == key);
    rows.sort_by_key(|row| Reverse(row.number()));
    rows
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-01-01T00:05:00Z";

    /// A table as a server renders it, without the columns in `absent`.
    fn table(cells: &[[&str; COLUMNS.len()]], absent: &[&str]) -> ApiTable {
        let present = |at: &usize| !absent.contains(&COLUMNS[*at]);
        let indexes: Vec<usize> = (0..COLUMNS.len()).filter(present).collect();
        let definitions: Vec<Value> = indexes.iter().map(|at| json!({"name": COLUMNS[*at]})).collect();
        let row = |cells: &[&str; COLUMNS.len()]| {
            let cells: Vec<_> = indexes.iter().map(|at| cells[*at]).collect();
            json!({"cells": cells, "object": {"metadata": {"namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"}}})
        };
        let rows: Vec<Value> = cells.iter().map(row).collect();
        serde_json::from_value(json!({"columnDefinitions": definitions, "rows": rows})).unwrap()
    }

    const CELLS: [&str; COLUMNS.len()] = [
        "app-0123456789-7",
        "app",
        "Apply",
        "Approval",
        "Succeeded",
        "+1 ~0 -0",
        "5m",
        "Applied",
        "main@sha1:b8e3",
        "plan-x",
        "alice, bob",
        "2026-01-01T00:00:10Z",
        "2026-01-01T00:01:40Z",
        "Add a bucket",
    ];

    fn stack(name: &str, uid: &str) -> Terraform {
        serde_json::from_value(json!({
            "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": {"name": name, "namespace": "team", "uid": uid},
            "spec": {"interval": "1m", "sourceRef": {"kind": "GitRepository", "name": "repo"}},
        }))
        .unwrap()
    }

    #[test]
    fn a_row_of_a_table_is_that_of_the_whole_run() {
        let run: TerraformRun = serde_json::from_value(json!({
            "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "TerraformRun",
            "metadata": {"name": "app-0123456789-7", "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"action": "Apply", "approvedBy": "alice, bob", "attempt": 1, "deadline": "1h", "trigger": "Approval",
                "source": {"kind": "GitRepository", "name": "repo", "namespace": "team", "revision": "main@sha1:b8e3", "subject": "Add a bucket"},
                "terraform": {"generation": 1, "name": "app", "uid": "0123456789"}},
            "status": {"phase": "Succeeded", "changes": "+1 ~0 -0", "message": "Applied", "planId": "plan-x",
                "startedAt": "2026-01-01T00:00:10Z", "finishedAt": "2026-01-01T00:01:40Z", "humanPlan": "long"},
        }))
        .unwrap();
        let rows = rows(table(&[CELLS], &[]));
        assert_eq!(rows, [RunRow::of(&run, NOW.parse().unwrap())]);
        assert_eq!(rows[0].number(), 7);
    }

    #[test]
    fn a_definition_without_times_leaves_the_duration_out() {
        let now = NOW.parse().unwrap();
        let lasted = |absent: &[&str]| rows(table(&[CELLS], absent))[0].lasted(now);
        assert_eq!(lasted(&[]), Some(SignedDuration::from_secs(90)));
        assert_eq!(lasted(&["Finished"]), Some(SignedDuration::from_secs(290)));
        assert_eq!(lasted(&["Started", "Finished"]), None);
        assert_eq!(rows(table(&[CELLS], &["Subject"]))[0].subject, "");
    }

    #[test]
    fn rows_of_a_stack_are_found_by_name_and_uid() {
        let named = |name| {
            let mut cells = CELLS;
            cells[0] = name;
            cells
        };
        let cells = [
            "app-0123456789-9",
            "app-0123456789-10",
            "app-abcdef0123-11",
            "app-web-0123456789-12",
        ]
        .map(named);
        let rows = rows(table(&cells, &[]));
        let own = of_stack(rows.clone(), &stack("app", "01234567-89ab-cdef"));
        let numbers: Vec<_> = own.iter().map(RunRow::number).collect();
        assert_eq!(numbers, [10, 9]);
        assert_eq!(of_plan(&rows, "plan-x").map(RunRow::number), Some(12));
        assert_eq!(of_plan(&rows, "plan-y"), None);
    }

    #[test]
    fn few_stacks_are_selected_by_name() {
        let stacks: Vec<_> = (0..=SELECTED_STACKS)
            .map(|number| stack(&format!("s{number}"), "u"))
            .collect();
        assert_eq!(
            selector_of(&stacks[..2]).as_deref(),
            Some("infra.sluice.dev/terraform in (s0,s1)")
        );
        assert_eq!(selector_of(&stacks), None);
    }
}
