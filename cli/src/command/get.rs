//! `sluice get`: sources, stacks and runs as tables or as objects.

use std::collections::HashMap;
use std::fmt::Debug;
use std::pin::pin;

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::core::NamespaceResourceScope;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_api::condition::{SourceCondition, find};
use sluice_api::run::TerraformRun;
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;
use sluice_runtime::clock::{Clock as _, SystemClock};

use super::Context;
use crate::cluster::{ConnectionArgs, SelectionArgs, list_name};
use crate::output::{Cell, OutputFormat, Table, Tone, age, duration, lines, printable, to_json, to_yaml};
use crate::{CliError, ExitStatus, run, stack, wait};

/// Arguments of `sluice get`.
#[derive(clap::Args, Debug)]
pub struct GetArgs {
    /// The kind: sources, terraforms (stacks) or runs. Default: sources and terraforms.
    #[arg(value_name = "KIND", value_enum)]
    pub kind: Option<ListedKind>,
    /// One object.
    #[arg(value_name = "NAME", requires = "kind", conflicts_with_all = ["all_namespaces", "selector"])]
    pub name: Option<String>,
    /// The format.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: OutputFormat,
    /// Print each object again when it changes, until Ctrl-C.
    #[arg(short = 'w', long, requires = "kind")]
    pub watch: bool,
    /// The objects.
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// The kinds that can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ListedKind {
    /// GitRepository objects.
    #[value(aliases = ["source", "gitrepositories", "gitrepository", "gitrepo"])]
    Sources,
    /// Terraform objects.
    #[value(aliases = ["terraform", "tf", "stacks", "stack"])]
    Terraforms,
    /// TerraformRun objects, newest first.
    #[value(aliases = ["run", "terraformruns", "terraformrun", "tfrun"])]
    Runs,
}

/// Lists objects.
pub(super) async fn get(context: &Context, args: &GetArgs) -> Result<ExitStatus, CliError> {
    let kinds = args.kind.map_or_else(
        || vec![ListedKind::Sources, ListedKind::Terraforms],
        |kind| vec![kind],
    );
    for (index, kind) in kinds.iter().enumerate() {
        if index != 0 && matches!(args.output, OutputFormat::Table | OutputFormat::Wide) {
            context.console.data("\n")?;
        }
        match kind {
            ListedKind::Sources => print::<GitRepository>(context, args).await?,
            ListedKind::Terraforms => print::<Terraform>(context, args).await?,
            ListedKind::Runs => print::<TerraformRun>(context, args).await?,
        }
    }
    Ok(ExitStatus::Success)
}

/// A kind that has a table.
trait Listed:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + 'static
{
    /// The columns after namespace and name; those of the second list only with `-o wide`.
    const COLUMNS: (&'static [&'static str], &'static [&'static str]);
    /// The cells of these columns.
    fn cells(&self, now: Timestamp) -> (Vec<Cell>, Vec<Cell>);
    /// Sorts a list as the user wants to see it.
    fn sort(objects: &mut [Self]) {
        objects.sort_by_key(|object| (object.namespace(), object.name_any()));
    }
}

async fn print<K: Listed>(context: &Context, args: &GetArgs) -> Result<(), CliError> {
    let mut objects: Vec<K> = match &args.name {
        Some(name) => vec![context.cluster.get(name).await?],
        None => context.cluster.list(&args.selection).await?,
    };
    K::sort(&mut objects);
    print_list(context, args, &objects)?;
    if args.watch {
        follow(context, args, &objects).await?;
    }
    Ok(())
}

fn print_list<K: Listed>(context: &Context, args: &GetArgs, objects: &[K]) -> Result<(), CliError> {
    let console = context.console;
    match args.output {
        OutputFormat::Json => console.data(&to_json(objects)?),
        OutputFormat::Yaml => console.data(&to_yaml(objects)?),
        OutputFormat::Name => console.data(&lines(objects.iter().map(resource_name))),
        OutputFormat::Table | OutputFormat::Wide if objects.is_empty() => {
            let place = if args.selection.all_namespaces {
                "in any namespace".to_owned()
            } else {
                format!("in the namespace {}", context.cluster.namespace())
            };
            console.note(&format!("There is no {} {place}.", K::kind(&())));
            Ok(())
        }
        OutputFormat::Table | OutputFormat::Wide => console.table(&table(objects, args, SystemClock.now())),
    }
}

/// Returns kind, group and name, as `kubectl get -o name` prints them.
fn resource_name<K: Listed>(object: &K) -> String {
    format!(
        "{}.{}/{}",
        K::kind(&()).to_lowercase(),
        K::group(&()),
        object.name_any()
    )
}

/// Prints each object again when it changes, until Ctrl-C. A connection that drops is opened again; a refusal ends the watch.
async fn follow<K: Listed>(context: &Context, args: &GetArgs, listed: &[K]) -> Result<(), CliError> {
    let version = |object: &K| (object.uid(), object.resource_version());
    let mut printed: HashMap<_, _> = listed.iter().map(version).collect();
    let mut config = watcher::Config::default();
    config.label_selector.clone_from(&args.selection.selector);
    config.field_selector = args.name.as_ref().map(|name| format!("metadata.name={name}"));
    let api = context.cluster.selected::<K>(&args.selection);
    let mut changes = pin!(watcher(api, config).default_backoff().applied_objects());
    let mut reported = String::new();
    loop {
        let change = tokio::select! {
            change = changes.next() => change,
            _ = tokio::signal::ctrl_c() => None,
        };
        match change {
            None => return Ok(()),
            Some(Ok(object)) => {
                reported.clear();
                let (uid, version) = version(&object);
                if printed.insert(uid, version.clone()) != Some(version) {
                    print_change(context, args, &object)?;
                }
            }
            Some(Err(error)) => {
                let text = wait::away(&error, &list_name::<K>())?;
                if text != reported {
                    context
                        .console
                        .note(&printable(&format!("The watch is interrupted: {text}")));
                    reported = text;
                }
            }
        }
    }
}

fn print_change<K: Listed>(context: &Context, args: &GetArgs, object: &K) -> Result<(), CliError> {
    let console = context.console;
    let object = std::slice::from_ref(object);
    match args.output {
        OutputFormat::Table | OutputFormat::Wide => {
            console.data(&table(object, args, SystemClock.now()).render_rows(&console))
        }
        OutputFormat::Json | OutputFormat::Yaml | OutputFormat::Name => print_list(context, args, object),
    }
}

/// Builds the table of a list.
fn table<K: Listed>(objects: &[K], args: &GetArgs, now: Timestamp) -> Table {
    let is_wide = args.output == OutputFormat::Wide;
    let (narrow, wide) = K::COLUMNS;
    let namespace: &[&'static str] = if args.selection.all_namespaces {
        &["NAMESPACE"]
    } else {
        &[]
    };
    let more = if is_wide { wide } else { &[] };
    let mut table = Table::new(&[namespace, &["NAME"], narrow, more].concat());
    for object in objects {
        let mut row = Vec::new();
        if args.selection.all_namespaces {
            row.push(object.namespace().unwrap_or_default().into());
        }
        row.push(object.name_any().into());
        let (cells, more) = object.cells(now);
        row.extend(cells);
        if is_wide {
            row.extend(more);
        }
        table.push(row);
    }
    table
}

/// Returns the age of an object.
fn age_of<K: Resource>(object: &K, now: Timestamp) -> Cell {
    let created = object.meta().creation_timestamp.as_ref();
    created
        .map(|created| age(created.0, now))
        .unwrap_or_default()
        .into()
}

impl Listed for GitRepository {
    const COLUMNS: (&'static [&'static str], &'static [&'static str]) =
        (&["READY", "REVISION", "AGE", "MESSAGE"], &["URL"]);

    fn cells(&self, now: Timestamp) -> (Vec<Cell>, Vec<Cell>) {
        let status = self.status.as_ref();
        let ready = status.and_then(|status| find(&status.conditions, SourceCondition::Ready));
        let revision = status
            .and_then(|status| status.artifact.as_ref())
            .map(|artifact| artifact.revision.as_str());
        let (word, tone) = match ready.map(|ready| ready.status.as_str()) {
            _ if self.spec.suspend => ("Suspended", Tone::Muted),
            Some("True") => ("True", Tone::Good),
            Some("False") => ("False", Tone::Bad),
            _ => ("Unknown", Tone::Plain),
        };
        let message = ready.map(|ready| ready.message.as_str()).unwrap_or_default();
        let narrow = vec![
            Cell::new(word, tone),
            short_revision(revision.unwrap_or_default()).into(),
            age_of(self, now),
            message.into(),
        ];
        (narrow, vec![self.spec.url.as_str().into()])
    }
}

impl Listed for Terraform {
    const COLUMNS: (&'static [&'static str], &'static [&'static str]) =
        (&["STATE", "APPLIED", "AGE", "MESSAGE"], &["SOURCE", "PLAN"]);

    fn cells(&self, now: Timestamp) -> (Vec<Cell>, Vec<Cell>) {
        let state = stack::state(self);
        let applied = self
            .status
            .as_ref()
            .map(|status| status.last_applied_revision.as_str());
        let narrow = vec![
            Cell::new(state.as_str(), state.tone()),
            short_revision(applied.unwrap_or_default()).into(),
            age_of(self, now),
            stack::message(self).into(),
        ];
        let source = &self.spec.source_ref;
        let wide = vec![
            format!("{}/{}", source.kind.as_str(), source.name).into(),
            stack::pending_plan(self).unwrap_or_default().into(),
        ];
        (narrow, wide)
    }
}

impl Listed for TerraformRun {
    const COLUMNS: (&'static [&'static str], &'static [&'static str]) = (
        &[
            "TERRAFORM",
            "ACTION",
            "TRIGGER",
            "PHASE",
            "CHANGES",
            "DURATION",
            "AGE",
            "MESSAGE",
        ],
        &["REVISION", "PLAN"],
    );

    fn cells(&self, now: Timestamp) -> (Vec<Cell>, Vec<Cell>) {
        let phase = run::phase(self);
        let status = self.status.clone().unwrap_or_default();
        let narrow = vec![
            self.spec.terraform.name.as_str().into(),
            self.spec.action.as_str().into(),
            self.spec.trigger.as_str().into(),
            Cell::new(phase.as_str(), run::tone(phase)),
            status.changes.as_str().into(),
            run::lasted(self, now).map(duration).unwrap_or_default().into(),
            age_of(self, now),
            status.message.as_str().into(),
        ];
        let wide = vec![
            short_revision(&self.spec.source.revision).into(),
            status.plan_id.as_str().into(),
        ];
        (narrow, wide)
    }

    fn sort(objects: &mut [Self]) {
        objects.sort_by_key(|object| {
            let created = object
                .metadata
                .creation_timestamp
                .as_ref()
                .map(|created| created.0);
            (std::cmp::Reverse(created), std::cmp::Reverse(run::number(object)))
        });
    }
}

/// Shortens the hash of a revision to ten digits: `main@sha1:b8e362c206`.
#[must_use]
fn short_revision(revision: &str) -> String {
    match revision.rsplit_once(':') {
        Some((front, hash)) => format!("{front}:{}", hash.chars().take(10).collect::<String>()),
        None => revision.to_owned(),
    }
}
