//! The columns of `sluice get`.

use jiff::Timestamp;
use kube::{Resource, ResourceExt as _};
use sluice_api::condition::{SourceCondition, find};
use sluice_api::run::TerraformRun;
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;

use super::GetArgs;
use crate::output::{Cell, OutputFormat, Table, Tone, age, duration};
use crate::run_row::RunRow;
use crate::{run, stack};

/// A row of a table.
pub(super) trait Tabled {
    /// The columns after namespace and name; those of the second list only with `-o wide`.
    const COLUMNS: (&'static [&'static str], &'static [&'static str]);
    /// Columns that a narrow terminal does not show; the first one is hidden first.
    const OPTIONAL: &'static [&'static str] = &[];
    /// The namespace and the name.
    fn identity(&self) -> (String, String);
    /// The cells of the columns.
    fn cells(&self, now: Timestamp) -> (Vec<Cell>, Vec<Cell>);
}

/// Builds the table of a list.
pub(super) fn table<T: Tabled>(objects: &[T], args: &GetArgs, now: Timestamp) -> Table {
    let is_wide = args.output == OutputFormat::Wide;
    let (narrow, wide) = T::COLUMNS;
    let namespace: &[&'static str] = if args.selection.all_namespaces {
        &["NAMESPACE"]
    } else {
        &[]
    };
    let more = if is_wide { wide } else { &[] };
    let mut table = Table::new(&[namespace, &["NAME"], narrow, more].concat());
    // The rows of a watch come one by one, and all of them have the columns of the headings.
    if !args.watch {
        table = table.optional_columns(T::OPTIONAL);
    }
    for object in objects {
        let mut row = Vec::new();
        let (namespace, name) = object.identity();
        if args.selection.all_namespaces {
            row.push(namespace.into());
        }
        row.push(name.into());
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

/// Returns namespace and name of an object.
fn identity_of<K: Resource>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

impl Tabled for GitRepository {
    const COLUMNS: (&'static [&'static str], &'static [&'static str]) =
        (&["READY", "REVISION", "AGE", "MESSAGE"], &["URL"]);

    fn identity(&self) -> (String, String) {
        identity_of(self)
    }

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

impl Tabled for Terraform {
    const COLUMNS: (&'static [&'static str], &'static [&'static str]) =
        (&["STATE", "APPLIED", "AGE", "MESSAGE"], &["SOURCE", "PLAN"]);

    fn identity(&self) -> (String, String) {
        identity_of(self)
    }

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

impl Tabled for TerraformRun {
    const COLUMNS: (&'static [&'static str], &'static [&'static str]) = RunRow::COLUMNS;
    const OPTIONAL: &'static [&'static str] = RunRow::OPTIONAL;

    fn identity(&self) -> (String, String) {
        identity_of(self)
    }

    fn cells(&self, now: Timestamp) -> (Vec<Cell>, Vec<Cell>) {
        RunRow::of(self, now).cells(now)
    }
}

impl Tabled for RunRow {
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
    // The name of a run begins with that of its stack.
    const OPTIONAL: &'static [&'static str] = &["TERRAFORM", "DURATION", "TRIGGER", "ACTION"];

    fn identity(&self) -> (String, String) {
        (self.namespace.clone(), self.name.clone())
    }

    fn cells(&self, now: Timestamp) -> (Vec<Cell>, Vec<Cell>) {
        let narrow = vec![
            self.terraform.as_str().into(),
            self.action.as_str().into(),
            self.trigger.as_str().into(),
            Cell::new(self.phase.as_str(), run::tone(self.phase)),
            self.changes.as_str().into(),
            self.lasted(now).map(duration).unwrap_or_default().into(),
            self.age.as_str().into(),
            self.message.as_str().into(),
        ];
        let wide = vec![
            short_revision(&self.revision).into(),
            self.plan_id.as_str().into(),
        ];
        (narrow, wide)
    }
}

/// Shortens the hash of a revision to ten digits: `main@sha1:b8e362c206`.
#[must_use]
pub(in crate::command) fn short_revision(revision: &str) -> String {
    match revision.rsplit_once(':') {
        Some((front, hash)) => format!("{front}:{}", hash.chars().take(10).collect::<String>()),
        None => revision.to_owned(),
    }
}
