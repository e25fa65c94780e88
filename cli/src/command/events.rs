//! `sluice events`: what happened to a stack, its runs and its source, or to all of them.

use std::cmp::Reverse;

use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::ListParams;
use sluice_api::terraform::Terraform;
use sluice_runtime::clock::{Clock as _, SystemClock};

use super::Context;
use crate::cluster::{Cluster, ConnectionArgs, SelectionArgs};
use crate::output::{Cell, OutputFormat, Table, Tone, age, lines, list_of, to_json, to_yaml};
use crate::run_row::{RunRow, stack_with_rows};
use crate::{CliError, ExitStatus};

/// The kinds whose events are shown.
const KINDS: [&str; 3] = ["GitRepository", "Terraform", "TerraformRun"];

/// Arguments of `sluice events`.
#[derive(clap::Args, Debug)]
pub struct EventsArgs {
    /// Events of this stack, of its runs and of its source.
    #[arg(value_name = "NAME", conflicts_with = "all_namespaces")]
    pub name: Option<String>,
    /// The format.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: OutputFormat,
    /// Events of all namespaces.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Prints events, the newest last.
pub(super) async fn events(context: &Context, args: &EventsArgs) -> Result<ExitStatus, CliError> {
    let events = match &args.name {
        Some(name) => {
            let (stack, runs) = stack_with_rows(&context.cluster, name).await?;
            events_of(&context.cluster, &stack, &runs).await?
        }
        None => all_events(&context.cluster, args.all_namespaces).await?,
    };
    let console = context.console;
    match args.output {
        OutputFormat::Json => console.data(&to_json(&list_of(&events)?)?)?,
        OutputFormat::Yaml => console.data(&to_yaml(&list_of(&events)?)?)?,
        OutputFormat::Name => {
            let names = events.iter().map(|event| format!("event/{}", event.name_any()));
            console.data(&lines(names))?;
        }
        OutputFormat::Table | OutputFormat::Wide if events.is_empty() => {
            console.note("There are no events. The API server keeps them for an hour by default.");
        }
        OutputFormat::Table | OutputFormat::Wide => console.table(&table(&events, SystemClock.now()))?,
    }
    Ok(ExitStatus::Success)
}

/// Reads the events of a stack, of these runs of it, and of a source in its namespace; the newest last.
///
/// # Errors
/// The API rejects the request.
pub(super) async fn events_of(
    cluster: &Cluster,
    stack: &Terraform,
    runs: &[RunRow],
) -> Result<Vec<Event>, CliError> {
    let (stack_name, source) = (stack.name_any(), &stack.spec.source_ref);
    let of = |kind: &str, name: &str| {
        ListParams::default().fields(&format!("involvedObject.kind={kind},involvedObject.name={name}"))
    };
    let api = cluster.objects::<Event>();
    let of_runs = ListParams::default().fields("involvedObject.kind=TerraformRun");
    let (mut events, of_source, of_runs) = tokio::try_join!(
        cluster.list_with(&api, of("Terraform", &stack_name)),
        cluster.list_with(&api, of(source.kind.as_str(), &source.name)),
        cluster.list_with(&api, of_runs),
    )?;
    events.extend(of_source);
    let is_own = |event: &Event| {
        let run = event.involved_object.name.as_deref();
        runs.iter().any(|own| Some(own.name.as_str()) == run)
    };
    events.extend(of_runs.into_iter().filter(is_own));
    events.sort_by_key(last_time);
    Ok(events)
}

async fn all_events(cluster: &Cluster, all_namespaces: bool) -> Result<Vec<Event>, CliError> {
    let selection = SelectionArgs {
        all_namespaces,
        selector: None,
    };
    let api = cluster.selected::<Event>(&selection);
    let of = |kind: &str| ListParams::default().fields(&format!("involvedObject.kind={kind}"));
    let lists = KINDS.map(|kind| cluster.list_with(&api, of(kind)));
    let mut events: Vec<Event> = try_join_all(lists).await?.into_iter().flatten().collect();
    events.sort_by_key(last_time);
    Ok(events)
}

/// Returns when an event happened last.
fn last_time(event: &Event) -> Option<Timestamp> {
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    last.or_else(|| event.event_time.as_ref().map(|time| time.0))
        .or_else(|| event.first_timestamp.as_ref().map(|time| time.0))
}

/// Builds the table of events, in their order.
#[must_use]
pub(super) fn table(events: &[Event], now: Timestamp) -> Table {
    let mut table = Table::new(&["LAST SEEN", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"]);
    for event in events {
        let kind = event.type_.as_deref().unwrap_or_default();
        let tone = if kind == "Warning" {
            Tone::Attention
        } else {
            Tone::Plain
        };
        let object = &event.involved_object;
        let object = format!(
            "{}/{}",
            object.kind.as_deref().unwrap_or_default().to_lowercase(),
            object.name.as_deref().unwrap_or_default()
        );
        table.push(vec![
            last_time(event)
                .map(|time| age(time, now))
                .unwrap_or_default()
                .into(),
            Cell::new(kind, tone),
            event.reason.clone().unwrap_or_default().into(),
            object.into(),
            event.count.unwrap_or(1).to_string().into(),
            event.message.clone().unwrap_or_default().into(),
        ]);
    }
    table
}

/// Returns the newest events, the newest first.
#[must_use]
pub(super) fn newest(events: &[Event], most: usize) -> Vec<Event> {
    let mut newest = events.to_vec();
    newest.sort_by_key(|event| Reverse(last_time(event)));
    newest.truncate(most);
    newest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::Console;

    fn event(name: &str, last: &str) -> Event {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "default"}, "type": "Warning", "reason": "TFExecPlanFailed",
            "involvedObject": {"kind": "Terraform", "name": "app"}, "message": "exit status 1\nError", "lastTimestamp": last, "count": 3,
        }))
        .unwrap()
    }

    #[test]
    fn an_event_is_one_line() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        assert_eq!(
            table(&[event("a", "2026-01-01T00:00:00Z")], now).render(&Console::plain()),
            "LAST SEEN   TYPE      REASON             OBJECT          COUNT   MESSAGE\n\
             60s         Warning   TFExecPlanFailed   terraform/app   3       exit status 1\n"
        );
    }

    #[test]
    fn the_newest_events_come_first() {
        let events = [
            event("a", "2026-01-01T00:00:00Z"),
            event("b", "2026-01-01T00:00:02Z"),
            event("c", "2026-01-01T00:00:01Z"),
        ];
        let names: Vec<_> = newest(&events, 2).iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["b", "c"]);
    }
}
