//! `sluice get`: sources, stacks and runs as tables or as objects.

mod columns;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Debug;
use std::pin::pin;

pub(super) use columns::short_revision;
use columns::{Tabled, table};
use futures::StreamExt as _;
use kube::core::NamespaceResourceScope;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_api::run::TerraformRun;
use sluice_api::source::GitRepository;
use sluice_api::terraform::{Terraform, run_sequence};
use sluice_runtime::clock::{Clock as _, SystemClock};

use super::Context;
use crate::cluster::{ConnectionArgs, SelectionArgs, list_name};
use crate::output::{Console, OutputFormat, lines, list_of, printable, to_json, to_values, to_yaml};
use crate::{CliError, ExitStatus, run_row, wait};

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
    /// TerraformRun objects of all stacks, newest first; `sluice history` lists those of one.
    #[value(aliases = ["run", "terraformruns", "terraformrun", "tfrun"])]
    Runs,
}

/// Lists objects.
pub(super) async fn get(context: &Context, args: &GetArgs) -> Result<ExitStatus, CliError> {
    let is_table = matches!(args.output, OutputFormat::Table | OutputFormat::Wide);
    match args.kind {
        None => {
            let (sources, stacks) = tokio::try_join!(
                read::<GitRepository>(context, args),
                read::<Terraform>(context, args),
            )?;
            print_both(context, args, &sources, &stacks)?;
        }
        Some(ListedKind::Sources) => list::<GitRepository>(context, args).await?,
        Some(ListedKind::Terraforms) => list::<Terraform>(context, args).await?,
        Some(ListedKind::Runs) if is_table && !args.watch && args.name.is_none() => {
            list_rows(context, args).await?;
        }
        Some(ListedKind::Runs) => list::<TerraformRun>(context, args).await?,
    }
    Ok(ExitStatus::Success)
}

/// A kind that has a table.
trait Listed:
    Tabled
    + Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + 'static
{
    /// Whether the newest object comes first; otherwise objects are in the order of their names.
    const IS_NEWEST_FIRST: bool;
}

impl Listed for GitRepository {
    const IS_NEWEST_FIRST: bool = false;
}

impl Listed for Terraform {
    const IS_NEWEST_FIRST: bool = false;
}

impl Listed for TerraformRun {
    const IS_NEWEST_FIRST: bool = true;
}

/// What was read of a kind.
enum Listing<K> {
    /// The objects.
    Objects(Vec<K>),
    /// Their names: nothing else is printed.
    Names(Vec<String>),
}

/// Reads the objects that the arguments name, in the order in which they are printed.
async fn read<K: Listed>(context: &Context, args: &GetArgs) -> Result<Listing<K>, CliError> {
    let cluster = &context.cluster;
    if let Some(name) = &args.name {
        return Ok(Listing::Objects(vec![cluster.get(name).await?]));
    }
    if args.output == OutputFormat::Name && !args.watch {
        let mut objects = cluster.view_metadata::<K>(&args.selection).await?;
        sort(&mut objects, K::IS_NEWEST_FIRST);
        return Ok(Listing::Names(
            objects.iter().map(ResourceExt::name_any).collect(),
        ));
    }
    let mut objects: Vec<K> = cluster.view(&args.selection).await?;
    sort(&mut objects, K::IS_NEWEST_FIRST);
    Ok(Listing::Objects(objects))
}

/// Sorts a list as the user wants to see it.
fn sort<T: Resource>(objects: &mut [T], is_newest_first: bool) {
    if is_newest_first {
        objects.sort_by_key(|object| {
            let created = object.meta().creation_timestamp.as_ref();
            let number = run_sequence(&object.name_any()).unwrap_or_default();
            (Reverse(created.map(|created| created.0)), Reverse(number))
        });
    } else {
        objects.sort_by_key(|object| (object.namespace(), object.name_any()));
    }
}

async fn list<K: Listed>(context: &Context, args: &GetArgs) -> Result<(), CliError> {
    let listing = read::<K>(context, args).await?;
    print(context, args, &listing)?;
    match listing {
        Listing::Objects(objects) if args.watch => follow(context, args, &objects).await,
        Listing::Objects(_) | Listing::Names(_) => Ok(()),
    }
}

/// Prints the table of runs without reading their plans and logs.
async fn list_rows(context: &Context, args: &GetArgs) -> Result<(), CliError> {
    let mut rows = run_row::view(&context.cluster, &args.selection).await?;
    rows.sort_by_key(|row| (Reverse(row.created), Reverse(row.number())));
    print_table(context, args, &TerraformRun::kind(&()), &rows)
}

/// Prints sources and stacks: two tables, or one list of both, so that standard output has one document.
fn print_both(
    context: &Context,
    args: &GetArgs,
    sources: &Listing<GitRepository>,
    stacks: &Listing<Terraform>,
) -> Result<(), CliError> {
    let console = context.console;
    if let (Listing::Objects(sources), Listing::Objects(stacks)) = (sources, stacks) {
        if matches!(args.output, OutputFormat::Json | OutputFormat::Yaml) {
            let both = [to_values(sources)?, to_values(stacks)?].concat();
            return print_document(console, args, &list_of(&both)?);
        }
        print_list(context, args, sources)?;
        if !sources.is_empty() && !stacks.is_empty() {
            console.data("\n")?;
        }
        return print_list(context, args, stacks);
    }
    print(context, args, sources)?;
    print(context, args, stacks)
}

/// Prints one document as JSON or YAML.
fn print_document(console: Console, args: &GetArgs, document: &impl Serialize) -> Result<(), CliError> {
    let text = if args.output == OutputFormat::Yaml {
        to_yaml(document)?
    } else {
        to_json(document)?
    };
    console.data(&text)
}

fn print<K: Listed>(context: &Context, args: &GetArgs, listing: &Listing<K>) -> Result<(), CliError> {
    match listing {
        Listing::Objects(objects) => print_list(context, args, objects),
        Listing::Names(names) => {
            let names = names.iter().map(|name| resource_name::<K>(name));
            context.console.data(&lines(names))
        }
    }
}

fn print_list<K: Listed>(context: &Context, args: &GetArgs, objects: &[K]) -> Result<(), CliError> {
    let console = context.console;
    match args.output {
        // One object that the user names is that object, as in kubectl; a watch prints one after the other.
        OutputFormat::Json | OutputFormat::Yaml if args.name.is_some() || args.watch => {
            print_each(console, args, objects)
        }
        OutputFormat::Json | OutputFormat::Yaml => print_document(console, args, &list_of(objects)?),
        OutputFormat::Name => {
            let names = objects
                .iter()
                .map(|object| resource_name::<K>(&object.name_any()));
            console.data(&lines(names))
        }
        OutputFormat::Table | OutputFormat::Wide => print_table(context, args, &K::kind(&()), objects),
    }
}

/// Prints each object as a document of its own.
fn print_each<K: Listed>(console: Console, args: &GetArgs, objects: &[K]) -> Result<(), CliError> {
    for object in objects {
        if args.watch && args.output == OutputFormat::Yaml {
            console.data("---\n")?;
        }
        print_document(console, args, object)?;
    }
    Ok(())
}

fn print_table<T: Tabled>(
    context: &Context,
    args: &GetArgs,
    kind: &str,
    objects: &[T],
) -> Result<(), CliError> {
    if !objects.is_empty() {
        return context.console.table(&table(objects, args, SystemClock.now()));
    }
    let scope = if args.selection.all_namespaces {
        "in any namespace".to_owned()
    } else {
        format!("in the namespace {}", context.cluster.namespace())
    };
    context.console.note(&format!("There is no {kind} {scope}."));
    Ok(())
}

/// Returns kind, group and name, as `kubectl get -o name` prints them.
fn resource_name<K: Listed>(name: &str) -> String {
    format!("{}.{}/{name}", K::kind(&()).to_lowercase(), K::group(&()))
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
