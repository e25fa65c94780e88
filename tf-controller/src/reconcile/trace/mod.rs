//! The spans of a run that has ended, from its status. The controller exports them, so that the pods of runs need no way to the
//! collector.
//!
//! A run that follows from a push is a part of the trace of its revision. Others, such as drift checks, would extend that trace for as
//! long as the revision lasts: each has a trace of its own with a link to it.

use std::collections::HashMap;

use jiff::Timestamp;
use kube::ResourceExt;
use sluice_api::run::{Phase, RunStatusLimit, TerraformRun, Trigger};
use sluice_api::terraform::SourceKind;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::trace::{Span, SpanId};

use super::Context;
use super::history::created_at;
use super::report::phase;

/// Exports the spans of these runs, which have ended; `runs` are all runs of their stack.
pub(super) fn export(ended: &[&TerraformRun], runs: &[TerraformRun], context: &Context) {
    if ended.is_empty() {
        return;
    }
    context.tracer.record(|| {
        let finished: HashMap<String, Timestamp> = runs
            .iter()
            .filter_map(|run| Some((run.name_any(), finished_at(run)?)))
            .collect();
        let spans_of = |run: &&TerraformRun| {
            let plan = run.spec.plan.as_ref();
            let planned = plan.and_then(|plan| finished.get(&plan.run)).copied();
            spans(run, source_uid(run, context).as_deref(), planned)
        };
        ended.iter().flat_map(spans_of).collect()
    });
}

/// Returns the uid of the run's `GitRepository`, unless it is gone.
fn source_uid(run: &TerraformRun, context: &Context) -> Option<String> {
    let source = &run.spec.source;
    let key = ObjectKey {
        namespace: source.namespace.clone(),
        name: source.name.clone(),
    };
    let is_repository = source.kind == SourceKind::GitRepository.as_str();
    context.sources.get(&key).filter(|_| is_repository)?.uid()
}

/// Returns the spans of a run: the run, its phases, and the wait for the approval of a plan that was complete at `planned`.
fn spans(run: &TerraformRun, source_uid: Option<&str>, planned: Option<Timestamp>) -> Vec<Span> {
    let Some(end) = end_of(run) else {
        return Vec::new();
    };
    let (uid, created) = (run.uid().unwrap_or_default(), created_at(run));
    let revision = source_uid.map(|source| SpanId::of_revision(source, &run.spec.source.revision));
    let parent = revision.filter(|_| follows_push(run.spec.trigger));
    let id = parent.map_or_else(|| SpanId::of_object(&uid), |parent| parent.child(&uid));
    let name = format!("run {}", run.spec.action.as_str());
    let span = with_status(with_spec(Span::new(id, name, created, end), run), run);
    let span = match (parent, revision) {
        (Some(parent), _) => span.below(parent),
        (None, Some(revision)) => span.linked_to(revision),
        (None, None) => span,
    };
    let mut spans = vec![span];
    spans.extend(phases(run, id, created, end));
    let wait = planned.filter(|_| run.spec.trigger == Trigger::Approval);
    spans.extend(wait.map(|planned| {
        let wait = Span::new(id.child("approval"), "wait for approval", planned, created);
        let wait = with_spec(wait, run);
        // Beside the run, which begins after it.
        parent.map_or_else(|| wait.clone().below(id), |parent| wait.clone().below(parent))
    }));
    spans
}

/// Returns whether a run with this trigger is a consequence of a push.
const fn follows_push(trigger: Trigger) -> bool {
    matches!(trigger, Trigger::Revision | Trigger::Approval | Trigger::Retry)
}

/// Returns the spans of the phases; the first is the wait for a runner.
fn phases(run: &TerraformRun, id: SpanId, created: Timestamp, end: Timestamp) -> Vec<Span> {
    let steps = run.status.as_ref().map_or(&[][..], |status| &status.steps);
    // A run writes its status itself.
    let steps = &steps[..steps.len().min(RunStatusLimit::STEPS)];
    let starts: Vec<_> = std::iter::once((Phase::Pending, created))
        .chain(steps.iter().map(|step| (step.phase, step.since.0)))
        .collect();
    let ends = starts.iter().skip(1).map(|(_, start)| *start).chain([end]);
    let phases = starts.iter().zip(ends).enumerate();
    let span = |(number, ((phase, start), end)): (usize, (&(Phase, Timestamp), Timestamp))| {
        let key = format!("{number} {}", phase.as_str());
        Span::new(id.child(&key), phase.as_str(), *start, end).below(id)
    };
    phases.map(span).collect()
}

/// Returns when the run ended. Its end has whole seconds, the start of its last phase has not.
fn end_of(run: &TerraformRun) -> Option<Timestamp> {
    let steps = &run.status.as_ref()?.steps;
    let last = steps.last().map(|step| step.since.0);
    Some(finished_at(run)?.max(last.unwrap_or(Timestamp::MIN)))
}

fn finished_at(run: &TerraformRun) -> Option<Timestamp> {
    Some(run.status.as_ref()?.finished_at.as_ref()?.0)
}

/// Adds what is known of a run from its start.
fn with_spec(span: Span, run: &TerraformRun) -> Span {
    let spec = &run.spec;
    let key = ObjectKey {
        namespace: run.namespace().unwrap_or_default(),
        name: spec.terraform.name.clone(),
    };
    span.with_object("Terraform", &key)
        .with_revision(&spec.source.revision)
        .with_text("sluice.artifact.digest", &spec.source.digest)
        .with_text("sluice.run", &run.name_any())
        .with("sluice.run.action", spec.action.as_str())
        .with("sluice.run.trigger", spec.trigger.as_str())
        .with("sluice.run.attempt", i64::from(spec.attempt))
}

/// Adds the outcome of a run: its phase, counts and public reason, without messages and addresses.
fn with_status(span: Span, run: &TerraformRun) -> Span {
    let Some(status) = &run.status else {
        return span;
    };
    let mut span = span.with("sluice.run.phase", phase(run).as_str());
    if let Some(counts) = &status.summary {
        span = span
            .with("sluice.plan.add", counts.add)
            .with("sluice.plan.change", counts.change)
            .with("sluice.plan.destroy", counts.destroy)
            .with("sluice.plan.import", counts.import)
            .with("sluice.plan.move", counts.moved);
    }
    match phase(run) {
        Phase::Failed | Phase::Lost => span.failed(&status.reason),
        _ => span,
    }
}

#[cfg(test)]
mod tests;
