//! `sluice migrate`: reports what will happen to each object of tofu-controller in a cluster. It changes nothing.

mod fate;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use fate::{Fate, SourceRevision};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use sluice_api::run::TerraformRun;
use sluice_api::source::GitRepository;
use sluice_api::terraform::{SourceKind, Terraform};

use super::components::{self, Component, is_absent};
use super::{connect, report};
use crate::cluster::{Cluster, ConnectionArgs, PAGE, SelectionArgs};
use crate::output::{Console, ReportFormat, Tone, counted, to_json, to_yaml};
use crate::{CliError, ExitStatus, run_row};

/// Arguments of `sluice migrate`.
#[derive(clap::Args, Debug)]
pub struct MigrateArgs {
    /// Change nothing. There is no other mode: the commands to type are printed.
    #[arg(long)]
    dry_run: bool,
    /// The format.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    output: ReportFormat,
    /// The API.
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
}

/// The revision of each GitRepository by namespace and name; `None` if it has no artifact.
type Revisions = BTreeMap<(String, String), Option<String>>;

/// What happens to one object.
#[derive(Debug, Serialize)]
struct Entry {
    namespace: String,
    name: String,
    fate: Fate,
    text: &'static str,
    /// What has to be done or known before.
    before: Vec<String>,
    /// ServiceAccount of the runs.
    account: String,
}

/// Says what will happen to the objects of all namespaces, or of that of the flag.
pub(super) async fn migrate(args: &MigrateArgs, console: Console) -> Result<ExitStatus, CliError> {
    let context = connect(&args.connection, console).await?;
    let cluster = &context.cluster;
    let selection = SelectionArgs {
        all_namespaces: args.connection.namespace.is_none(),
        selector: None,
    };
    let (objects, revisions, stacks_with_runs, components) = tokio::try_join!(
        objects(cluster, &selection),
        revisions(cluster),
        stacks_with_runs(cluster, &selection),
        components::read_if_permitted(&context),
    )?;
    let mut entries: Vec<Entry> = objects
        .iter()
        .map(|object| entry(object, &revisions, &stacks_with_runs))
        .collect();
    entries.sort_by(|a, b| (a.fate, &a.namespace, &a.name).cmp(&(b.fate, &b.namespace, &b.name)));
    match args.output {
        ReportFormat::Json => console.data(&to_json(&report("MigrationReport", &entries)?)?)?,
        ReportFormat::Yaml => console.data(&to_yaml(&report("MigrationReport", &entries)?)?)?,
        ReportFormat::Table => {
            console.data(&describe(&entries, console))?;
            console.note(&next_steps(&entries, &components, console));
        }
    }
    if !args.dry_run {
        console.note("Nothing was changed.");
    }
    Ok(ExitStatus::Success)
}

/// Reads the objects without their types, so that one that our types do not accept is reported and not an error.
async fn objects(cluster: &Cluster, selection: &SelectionArgs) -> Result<Vec<DynamicObject>, CliError> {
    let resource = ApiResource::erase::<Terraform>(&());
    let api: Api<DynamicObject> = if selection.all_namespaces {
        Api::all_with(cluster.client(), &resource)
    } else {
        Api::namespaced_with(cluster.client(), cluster.namespace(), &resource)
    };
    let mut params = ListParams::default().limit(PAGE);
    let mut objects = Vec::new();
    loop {
        let page = api.list(&params).await.map_err(|source| CliError::Api {
            action: "list",
            object: "terraforms".to_owned(),
            source: Box::new(source),
        })?;
        objects.extend(page.items);
        let Some(next) = page.metadata.continue_.filter(|token| !token.is_empty()) else {
            return Ok(objects);
        };
        params = params.continue_token(&next);
    }
}

/// Reads the revisions of all namespaces.
async fn revisions(cluster: &Cluster) -> Result<Revisions, CliError> {
    let all = SelectionArgs {
        all_namespaces: true,
        selector: None,
    };
    let sources: Vec<GitRepository> = or_none(cluster.list(&all).await)?;
    let revision = |source: &GitRepository| {
        let artifact = source.status.as_ref().and_then(|status| status.artifact.as_ref());
        artifact.map(|artifact| artifact.revision.clone())
    };
    Ok(sources
        .iter()
        .map(|source| {
            let key = (source.namespace().unwrap_or_default(), source.name_any());
            (key, revision(source))
        })
        .collect())
}

/// Returns the keys of the stacks with runs of Sluice, which the names of the runs contain; none where the kind is not installed.
async fn stacks_with_runs(
    cluster: &Cluster,
    selection: &SelectionArgs,
) -> Result<BTreeSet<String>, CliError> {
    let runs = or_none(cluster.view_metadata::<TerraformRun>(selection).await)?;
    let keys = runs
        .iter()
        .map(|run| run_row::without_number(&run.name_any()).to_owned());
    Ok(keys.collect())
}

/// Returns no objects if the API does not know their kind.
fn or_none<K>(listed: Result<Vec<K>, CliError>) -> Result<Vec<K>, CliError> {
    match listed {
        Err(CliError::Api { source, .. }) if is_absent(&source) => Ok(Vec::new()),
        other => other,
    }
}

fn entry(object: &DynamicObject, revisions: &Revisions, stacks_with_runs: &BTreeSet<String>) -> Entry {
    let parsed = serde_json::to_value(object).and_then(serde_json::from_value::<Terraform>);
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let (fate, before, account) = match parsed {
        Ok(stack) => {
            let has_runs = stacks_with_runs.contains(&run_row::stack_key(&stack));
            let fate = fate::of(&stack, source_revision(&stack, revisions), has_runs);
            let before = fate::preparations(&stack, fate);
            (fate, before, stack.spec.service_account_name)
        }
        Err(error) => (Fate::Rejected, vec![error.to_string()], String::new()),
    };
    Entry {
        namespace,
        name,
        fate,
        text: fate.text(),
        before,
        account,
    }
}

fn source_revision<'a>(stack: &Terraform, revisions: &'a Revisions) -> SourceRevision<'a> {
    let source = &stack.spec.source_ref;
    if source.kind != SourceKind::GitRepository {
        return SourceRevision::NotRead;
    }
    let namespace = if source.namespace.is_empty() {
        stack.namespace().unwrap_or_default()
    } else {
        source.namespace.clone()
    };
    let found = revisions.get(&(namespace, source.name.clone()));
    found
        .and_then(Option::as_deref)
        .map_or(SourceRevision::Absent, SourceRevision::Known)
}

fn describe(entries: &[Entry], console: Console) -> String {
    let mut text = String::new();
    for entry in entries {
        let name = format!("{}/{}", entry.namespace, entry.name);
        let fate = format!("  {}", entry.text);
        text.push_str(&console.block((Tone::Heading, &name), 4, (entry.fate.tone(), &fate)));
        for before in &entry.before {
            text.push_str(&console.block((Tone::Plain, "    "), 6, (Tone::Plain, before)));
        }
    }
    text
}

/// Returns the steps of the guide for what was found.
fn next_steps(entries: &[Entry], components: &[Component], console: Console) -> String {
    if entries.is_empty() {
        return "There is no Terraform object.".to_owned();
    }
    let mut steps = String::new();
    let running = components
        .iter()
        .filter(|component| component.name == "tofu-controller" && component.wanted != Some(0));
    for component in running {
        let _ = writeln!(
            steps,
            "  kubectl -n {} scale deployment tofu-controller --replicas=0",
            component.namespace
        );
    }
    let accounts: BTreeSet<(&str, &str)> = entries
        .iter()
        .filter(|entry| entry.fate != Fate::Migrated && !entry.account.is_empty())
        .map(|entry| (entry.namespace.as_str(), entry.account.as_str()))
        .collect();
    for (namespace, account) in accounts {
        let _ = writeln!(
            steps,
            "  kubectl -n {namespace} create rolebinding sluice-{account} --clusterrole=sluice-tf-runner --serviceaccount={namespace}:{account}"
        );
    }
    let mut text = "\n".to_owned();
    if !steps.is_empty() {
        text.push_str("Next (docs/guides/migrating-from-tofu-controller.md has all steps):\n");
        text.push_str(&steps);
    }
    let count = |fate: Fate| entries.iter().filter(|entry| entry.fate == fate).count();
    let fates = [
        (
            count(Fate::Continues) + count(Fate::ContinuesIfUnchanged),
            "continue",
        ),
        (count(Fate::Applied), "are planned and applied"),
        (count(Fate::Planned), "are planned"),
        (count(Fate::Replanned), "have their plan replaced"),
        (count(Fate::Migrated), "with runs of Sluice already"),
    ];
    let others = entries.len() - fates.iter().map(|(number, _)| number).sum::<usize>();
    let parts = fates.into_iter().chain([(others, "as said above")]);
    let parts = parts.filter(|(number, _)| *number != 0);
    let parts: Vec<String> = parts.map(|(number, what)| format!("{number} {what}")).collect();
    let counts = format!("{}: {}", counted(entries.len(), "object"), parts.join(", "));
    let counts = console.block((Tone::Plain, ""), 2, (Tone::Plain, &counts));
    text.push_str(counts.trim_end());
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_is_not_valid_is_reported() {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": {"name": "app", "namespace": "team"}, "spec": {"interval": "soon"}}))
        .unwrap();
        let entry = entry(&object, &BTreeMap::new(), &BTreeSet::new());
        assert_eq!((entry.fate, entry.name.as_str()), (Fate::Rejected, "app"));
        assert!(!entry.before.is_empty());
    }

    #[test]
    fn the_steps_are_those_of_what_was_found() {
        let entry = Entry {
            namespace: "team".to_owned(),
            name: "app".to_owned(),
            fate: Fate::Continues,
            text: Fate::Continues.text(),
            before: vec!["note".to_owned()],
            account: "tf-runner".to_owned(),
        };
        assert_eq!(
            describe(std::slice::from_ref(&entry), Console::plain()),
            "team/app  continues without a plan\n    note\n"
        );
        let controller = Component {
            name: "tofu-controller".to_owned(),
            namespace: "flux-system".to_owned(),
            image: String::new(),
            version: String::new(),
            available: Some(1),
            wanted: Some(1),
        };
        let steps = next_steps(std::slice::from_ref(&entry), &[controller], Console::plain());
        for part in [
            "-n flux-system scale deployment",
            "-n team create rolebinding sluice-tf-runner --clusterrole=sluice-tf-runner --serviceaccount=team:tf-runner",
            "1 object: 1 continue",
        ] {
            assert!(steps.contains(part), "{part}: {steps}");
        }
        assert!(steps.ends_with("\n1 object: 1 continue"), "{steps}");
        let migrated = Entry {
            fate: Fate::Migrated,
            ..entry
        };
        assert_eq!(
            next_steps(&[migrated], &[], Console::plain()),
            "\n1 object: 1 with runs of Sluice already"
        );
        assert_eq!(
            next_steps(&[], &[], Console::plain()),
            "There is no Terraform object."
        );
    }
}
