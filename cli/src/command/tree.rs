//! `sluice tree`: sources, their stacks in the order of their dependencies, and the last run of each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::Timestamp;
use kube::ResourceExt as _;
use sluice_api::run::TerraformRun;
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;
use sluice_runtime::clock::{Clock as _, SystemClock};

use super::Context;
use crate::cluster::{ConnectionArgs, SelectionArgs};
use crate::output::{Console, Tone, age};
use crate::{CliError, ExitStatus, run, stack};

/// Arguments of `sluice tree`.
#[derive(clap::Args, Debug)]
pub struct TreeArgs {
    /// The objects.
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Prints the tree.
pub(super) async fn tree(context: &Context, args: &TreeArgs) -> Result<ExitStatus, CliError> {
    // Runs have the labels of no stack: their namespace selects them.
    let runs = SelectionArgs {
        selector: None,
        ..args.selection.clone()
    };
    let (sources, stacks, runs) = tokio::try_join!(
        context.cluster.list::<GitRepository>(&args.selection),
        context.cluster.list::<Terraform>(&args.selection),
        context.cluster.list::<TerraformRun>(&runs),
    )?;
    let forest = Forest::new(&sources, &stacks, &runs);
    context
        .console
        .data(&forest.render(context.console, SystemClock.now()))?;
    Ok(ExitStatus::Success)
}

/// Kind, namespace and name of a source.
type SourceKey = (String, String, String);

/// The stacks by source, and the last run by the uid of its stack.
struct Forest<'a> {
    sources: BTreeMap<SourceKey, Option<&'a GitRepository>>,
    stacks: BTreeMap<SourceKey, Vec<&'a Terraform>>,
    last_runs: BTreeMap<&'a str, &'a TerraformRun>,
}

impl<'a> Forest<'a> {
    fn new(sources: &'a [GitRepository], stacks: &'a [Terraform], runs: &'a [TerraformRun]) -> Self {
        let mut forest = Self {
            sources: BTreeMap::new(),
            stacks: BTreeMap::new(),
            last_runs: BTreeMap::new(),
        };
        for source in sources {
            let key = (
                "GitRepository".to_owned(),
                source.namespace().unwrap_or_default(),
                source.name_any(),
            );
            forest.sources.insert(key, Some(source));
        }
        for stack in in_dependency_order(stacks) {
            let key = source_key(stack);
            forest.sources.entry(key.clone()).or_insert(None);
            forest.stacks.entry(key).or_default().push(stack);
        }
        for run in runs {
            let last = forest
                .last_runs
                .entry(run.spec.terraform.uid.as_str())
                .or_insert(run);
            if run::number(run) > run::number(last) {
                *last = run;
            }
        }
        forest
    }

    fn render(&self, console: Console, now: Timestamp) -> String {
        let mut text = String::new();
        for (key, source) in &self.sources {
            let (kind, namespace, name) = key;
            let revision = source.map_or("not found here", |source| {
                let artifact = source.status.as_ref().and_then(|status| status.artifact.as_ref());
                artifact.map_or("no artifact", |artifact| artifact.revision.as_str())
            });
            let title = format!("{kind} {namespace}/{name}");
            let _ = writeln!(
                text,
                "{}  {}",
                console.paint(Tone::Heading, &title),
                console.paint(Tone::Muted, revision)
            );
            let stacks = self.stacks.get(key).map(Vec::as_slice).unwrap_or_default();
            for (index, stack) in stacks.iter().enumerate() {
                let is_last = index + 1 == stacks.len();
                self.push_stack(&mut text, stack, is_last, console, now);
            }
        }
        text
    }

    fn push_stack(
        &self,
        text: &mut String,
        stack: &Terraform,
        is_last: bool,
        console: Console,
        now: Timestamp,
    ) {
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
        let name = console.paint(Tone::Plain, &stack::full_name(stack));
        let word = console.paint(state.tone(), state.as_str());
        let _ = writeln!(
            text,
            "{branch}{name}  {word}{}",
            console.paint(Tone::Muted, &after)
        );
        if let Some(run) = self
            .last_runs
            .get(stack.metadata.uid.as_deref().unwrap_or_default())
        {
            let _ = writeln!(text, "{below}└─ {}", describe_run(run, console, now));
        }
    }
}

/// Describes a run in one line: `run 7  Succeeded  PlanAndApply (Revision)  +1 ~0 -0  3m`.
fn describe_run(run: &TerraformRun, console: Console, now: Timestamp) -> String {
    let phase = run::phase(run);
    let changes = run
        .status
        .as_ref()
        .map(|status| status.changes.as_str())
        .unwrap_or_default();
    let created = run.metadata.creation_timestamp.as_ref();
    let parts = [
        format!("run {}", run::number(run)),
        console.paint(run::tone(phase), phase.as_str()),
        format!("{} ({})", run.spec.action.as_str(), run.spec.trigger.as_str()),
        changes.to_owned(),
        created.map(|created| age(created.0, now)).unwrap_or_default(),
    ];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("  ")
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

/// Sorts stacks by name, each one after those that it depends on. Stacks of a circle come last, by name.
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
    use serde_json::json;

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
        let stacks = [stack("app", &["vpc"]), stack("vpc", &[])];
        let run = |number: u64| {
            let changes = json!({
                "metadata": {"namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"terraform": {"name": "vpc", "uid": "vpc"}},
                "status": {"phase": "Succeeded", "changes": "+1 ~0 -0"},
            });
            fixture::changed_run(number, &changes)
        };
        let runs = [run(9), run(10)];
        let now = "2026-01-01T00:05:00Z".parse().unwrap();
        assert_eq!(
            Forest::new(&[], &stacks, &runs).render(Console::plain(), now),
            "GitRepository default/repo  not found here\n\
             ├─ default/vpc  Running\n\
             │  └─ run 10  Succeeded  Plan (Revision)  +1 ~0 -0  5m\n\
             └─ default/app  Running  after vpc\n"
        );
    }
}
