//! `sluice tree`: sources, their stacks in the order of their dependencies, and the last run of each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_api::source::GitRepository;
use sluice_api::terraform::{SourceKind, Terraform};

use super::status::say_how_to_begin;
use super::{Context, document};
use crate::cluster::{Cluster, ConnectionArgs, SelectionArgs, describe};
use crate::output::{Console, ReportFormat, Tone};
use crate::run_row::{RunRow, stack_key, stack_with_rows, view_of_stacks};
use crate::{CliError, ExitStatus, run, stack};

/// Arguments of `sluice tree`.
#[derive(clap::Args, Debug)]
pub struct TreeArgs {
    /// One stack, with its source.
    #[arg(value_name = "NAME", conflicts_with_all = ["all_namespaces", "selector"])]
    pub name: Option<String>,
    /// The objects.
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// The format.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: ReportFormat,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Prints the tree.
pub(super) async fn tree(context: &Context, args: &TreeArgs) -> Result<ExitStatus, CliError> {
    let objects = match &args.name {
        Some(name) => read_stack(&context.cluster, name).await?,
        None => read_selected(&context.cluster, &args.selection).await?,
    };
    let forest = Forest::new(&objects);
    if let Some(document) = args.output.document("TreeReport", || Ok(forest.fields()))? {
        context.console.data(&document)?;
        return Ok(ExitStatus::Success);
    }
    context.console.data(&forest.render(context.console))?;
    if objects.stacks.is_empty() && objects.sources.is_empty() {
        say_how_to_begin(context, &args.selection);
    }
    Ok(ExitStatus::Success)
}

/// What a tree shows.
struct Objects {
    sources: Vec<GitRepository>,
    stacks: Vec<Terraform>,
    runs: Vec<RunRow>,
}

/// Reads a stack with its runs, and its source if that is a GitRepository.
async fn read_stack(cluster: &Cluster, name: &str) -> Result<Objects, CliError> {
    let (stack, runs) = stack_with_rows(cluster, name).await?;
    let mut sources = Vec::new();
    let (_, namespace, source) = source_key(&stack);
    if stack.spec.source_ref.kind == SourceKind::GitRepository {
        let api = cluster.objects_in::<GitRepository>(&namespace);
        let found = match api.get_opt(&source).await {
            // Tenants often may not read the sources of another namespace. The tree then shows `not found here`.
            Err(kube::Error::Api(status)) if status.code == 403 && namespace != cluster.namespace() => None,
            found => found.map_err(|error| CliError::Api {
                action: "get",
                object: describe::<GitRepository>(&namespace, &source),
                source: Box::new(error),
            })?,
        };
        sources.extend(found);
    }
    let stacks = vec![stack];
    Ok(Objects {
        sources,
        stacks,
        runs,
    })
}

/// Reads the selected sources and stacks, and the runs of these stacks: all at the same time, unless labels select the stacks.
async fn read_selected(cluster: &Cluster, selection: &SelectionArgs) -> Result<Objects, CliError> {
    let (sources, stacks) = (
        cluster.view::<GitRepository>(selection),
        cluster.view::<Terraform>(selection),
    );
    if selection.selector.is_some() {
        let (sources, stacks) = tokio::try_join!(sources, stacks)?;
        let runs = view_of_stacks(cluster, selection, &stacks).await?;
        return Ok(Objects {
            sources,
            stacks,
            runs,
        });
    }
    let runs = view_of_stacks(cluster, selection, &[]);
    let (sources, stacks, runs) = tokio::try_join!(sources, stacks, runs)?;
    Ok(Objects {
        sources,
        stacks,
        runs,
    })
}

/// Kind, namespace and name of a source.
type SourceKey = (String, String, String);

/// The stacks by source, and the last run by the key of its stack.
struct Forest<'a> {
    sources: BTreeMap<SourceKey, Option<&'a GitRepository>>,
    stacks: BTreeMap<SourceKey, Vec<&'a Terraform>>,
    last_runs: BTreeMap<&'a str, &'a RunRow>,
}

impl<'a> Forest<'a> {
    fn new(objects: &'a Objects) -> Self {
        let mut forest = Self {
            sources: BTreeMap::new(),
            stacks: BTreeMap::new(),
            last_runs: BTreeMap::new(),
        };
        for source in &objects.sources {
            let key = (
                "GitRepository".to_owned(),
                source.namespace().unwrap_or_default(),
                source.name_any(),
            );
            forest.sources.insert(key, Some(source));
        }
        for stack in in_dependency_order(&objects.stacks) {
            let key = source_key(stack);
            forest.sources.entry(key.clone()).or_insert(None);
            forest.stacks.entry(key).or_default().push(stack);
        }
        for run in &objects.runs {
            let last = forest.last_runs.entry(run.stack_key()).or_insert(run);
            if run.number() > last.number() {
                *last = run;
            }
        }
        forest
    }

    /// Returns the fields of the report: the sources with their stacks, in the order of the tree.
    fn fields(&self) -> Value {
        let items = self.sources.iter().map(|(key, source)| {
            let (kind, namespace, name) = key;
            let status = source.and_then(|source| source.status.as_ref());
            let artifact = status.and_then(|status| status.artifact.as_ref());
            let stacks = self.stacks.get(key).into_iter().flatten();
            let stacks: Vec<Value> = stacks.map(|stack| self.stack_fields(stack)).collect();
            json!({
                "kind": kind, "namespace": namespace, "name": name, "found": source.is_some(),
                "revision": artifact.map(|artifact| artifact.revision.as_str()), "stacks": stacks,
            })
        });
        json!({ "items": items.collect::<Vec<Value>>() })
    }

    fn stack_fields(&self, stack: &Terraform) -> Value {
        let mut fields = document::stack(stack);
        let last_run = self.last_runs.get(stack_key(stack).as_str());
        fields["dependsOn"] = json!(dependencies(stack));
        fields["lastRun"] = last_run.map_or(Value::Null, |run| document::run(run));
        fields
    }

    fn render(&self, console: Console) -> String {
        let mut text = String::new();
        for (key, source) in &self.sources {
            let (kind, namespace, name) = key;
            let revision = source.map_or("not found here", |source| {
                let artifact = source.status.as_ref().and_then(|status| status.artifact.as_ref());
                artifact.map_or("no artifact", |artifact| artifact.revision.as_str())
            });
            let title = format!("{kind} {namespace}/{name}");
            let parts = [
                (Tone::Heading, title.as_str()),
                (Tone::Plain, "  "),
                (Tone::Muted, revision),
            ];
            let _ = writeln!(text, "{}", console.line(&parts));
            let stacks = self.stacks.get(key).map(Vec::as_slice).unwrap_or_default();
            for (index, stack) in stacks.iter().enumerate() {
                let is_last = index + 1 == stacks.len();
                self.push_stack(&mut text, stack, is_last, console);
            }
        }
        text
    }

    fn push_stack(&self, text: &mut String, stack: &Terraform, is_last: bool, console: Console) {
        let (branch, below) = if is_last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        let state = stack::state(stack);
        let after: Vec<_> = stack
            .spec
            .depends_on
            .iter()
            .map(|dependency| dependency.name.as_str())
            .collect();
        let after = if after.is_empty() {
            String::new()
        } else {
            format!("  after {}", after.join(", "))
        };
        let name = format!("{branch}{}  ", stack::full_name(stack));
        let parts = [
            (Tone::Plain, name.as_str()),
            (state.tone(), state.as_str()),
            (Tone::Muted, after.as_str()),
        ];
        let _ = writeln!(text, "{}", console.line(&parts));
        if let Some(run) = self.last_runs.get(stack_key(stack).as_str()) {
            let mut parts = vec![(Tone::Plain, format!("{below}└─ "))];
            parts.extend(describe_run(run));
            let _ = writeln!(text, "{}", console.line(&parts));
        }
    }
}

/// Describes a run in one line: `run 7  Succeeded  PlanAndApply (Revision)  +1 ~0 -0  3m`.
fn describe_run(row: &RunRow) -> Vec<(Tone, String)> {
    let parts = [
        (Tone::Plain, format!("run {}", row.number())),
        (run::tone(row.phase), row.phase.as_str().to_owned()),
        (Tone::Plain, format!("{} ({})", row.action, row.trigger)),
        (Tone::Plain, row.changes.clone()),
        (Tone::Plain, row.age.clone()),
    ];
    let mut line = Vec::new();
    for part in parts.into_iter().filter(|(_, text)| !text.is_empty()) {
        if !line.is_empty() {
            line.push((Tone::Plain, "  ".to_owned()));
        }
        line.push(part);
    }
    line
}

fn source_key(stack: &Terraform) -> SourceKey {
    let source = &stack.spec.source_ref;
    let namespace = if source.namespace.is_empty() {
        stack.namespace().unwrap_or_default()
    } else {
        source.namespace.clone()
    };
    (source.kind.as_str().to_owned(), namespace, source.name.clone())
}

/// Sorts stacks by name, each one after those that it depends on. Stacks in a cycle come last, by name.
#[must_use]
fn in_dependency_order(stacks: &[Terraform]) -> Vec<&Terraform> {
    let mut waiting: BTreeMap<String, &Terraform> = stacks
        .iter()
        .map(|stack| (stack::full_name(stack), stack))
        .collect();
    let mut sorted = Vec::new();
    while !waiting.is_empty() {
        let names: BTreeSet<String> = waiting.keys().cloned().collect();
        let is_free = |stack: &Terraform| dependencies(stack).iter().all(|name| !names.contains(name));
        let free: Vec<String> = waiting
            .iter()
            .filter(|(_, stack)| is_free(stack))
            .map(|(name, _)| name.clone())
            .collect();
        if free.is_empty() {
            sorted.extend(std::mem::take(&mut waiting).into_values());
            break;
        }
        sorted.extend(free.iter().filter_map(|name| waiting.remove(name)));
    }
    sorted
}

fn dependencies(stack: &Terraform) -> Vec<String> {
    let own = stack.namespace().unwrap_or_default();
    let name = |namespace: &str, name: &str| {
        let namespace = if namespace.is_empty() {
            own.as_str()
        } else {
            namespace
        };
        format!("{namespace}/{name}")
    };
    stack
        .spec
        .depends_on
        .iter()
        .map(|other| name(&other.namespace, &other.name))
        .collect()
}

#[cfg(test)]
mod tests {
    use sluice_api::run::Phase;
    use sluice_api::terraform::run_name;

    use super::*;
    use crate::fixture;

    fn stack(name: &str, depends_on: &[&str]) -> Terraform {
        let depends_on: Vec<_> = depends_on.iter().map(|name| json!({"name": name})).collect();
        fixture::stack(&json!({
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"dependsOn": depends_on},
        }))
    }

    fn names(stacks: &[Terraform]) -> Vec<String> {
        in_dependency_order(stacks)
            .iter()
            .map(|stack| stack.name_any())
            .collect()
    }

    #[test]
    fn a_stack_follows_its_dependencies() {
        let stacks = [
            stack("app", &["db", "vpc"]),
            stack("db", &["vpc"]),
            stack("vpc", &[]),
            stack("z", &["elsewhere"]),
        ];
        assert_eq!(names(&stacks), ["vpc", "z", "db", "app"]);
        let circle = [stack("a", &["b"]), stack("b", &["a"]), stack("c", &[])];
        assert_eq!(names(&circle), ["c", "a", "b"]);
    }

    #[test]
    fn a_tree_shows_the_last_run_of_each_stack() {
        let run = |uid: &str, number: u64| RunRow {
            name: run_name("vpc", uid, number),
            action: "Plan".to_owned(),
            trigger: "Revision".to_owned(),
            phase: Phase::Succeeded,
            changes: "+1 ~0 -0".to_owned(),
            age: "5m".to_owned(),
            ..RunRow::default()
        };
        let objects = Objects {
            sources: Vec::new(),
            stacks: vec![stack("app", &["vpc"]), stack("vpc", &[])],
            // A stack of the same name was deleted before.
            runs: vec![run("vpc", 9), run("vpc", 10), run("gone", 11)],
        };
        assert_eq!(
            Forest::new(&objects).render(Console::plain()),
            "GitRepository default/repo  not found here\n\
             ├─ default/vpc  Running\n\
             │  └─ run 10  Succeeded  Plan (Revision)  +1 ~0 -0  5m\n\
             └─ default/app  Running  after vpc\n"
        );
        let fields = Forest::new(&objects).fields();
        let source = &fields["items"][0];
        assert_eq!(
            (&source["name"], &source["found"]),
            (&json!("repo"), &json!(false))
        );
        let runs: Vec<_> = (0..2_usize)
            .map(|index| &source["stacks"][index]["lastRun"]["number"])
            .collect();
        assert_eq!(runs, [&json!(10), &Value::Null]);
        assert_eq!(source["stacks"][1]["dependsOn"], json!(["default/vpc"]));
    }
}
