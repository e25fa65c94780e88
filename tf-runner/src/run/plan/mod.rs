//! The plan step: plans, digests the effect, stores the plan and records it in the status.

pub(crate) mod generated_files;
pub(crate) mod module_digest;
pub(crate) mod module_reads;
pub(crate) mod plan_store;
pub(crate) mod unsaved_plan;
pub(crate) mod webhook;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use sluice_api::run::{PlanEffects, RunStatusLimit};
use sluice_api::terraform::plan_id::{EffectDigest, PlanId};
use sluice_tf_core::bundle::{Bundle, Options, ReadablePlan, StateCheck};
use sluice_tf_core::chunk;
use sluice_tf_core::plan::document::{self, PlanDocument};
use sluice_tf_core::plan::effect::{self, Effect};
use sluice_tf_core::plan::ignored_drift::DriftCounts;
use sluice_tf_core::plan::store::{GeneratedFile, PLAN_LIMIT, PlanContext, PlanName, StoreError, StoredPlan};
use sluice_tf_core::plan::{ignored_drift, readable, redact, summary, unsaved};
use sluice_tf_core::redaction::Redactor;
use sluice_tf_core::workdir::read_limited;

use self::generated_files::{GeneratedFiles, Snapshot};
use crate::run::cli::{Cli, arguments};
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::session::RunSession;
use crate::run::state;
use crate::run::state_lock::{self, retry_after_unlock};
use crate::run::workdir::{dependency_lock, directory_error, prepare};

/// Largest plan JSON that `storeReadablePlan: json` stores. In memory it is several times as large.
const READABLE_JSON_LIMIT: u64 = 64 * 1024 * 1024;

/// A plan that was created in this run.
pub(crate) struct Planned {
    /// Whether it has changes that `ignoreDrift` does not exclude.
    pub(crate) has_changes: bool,
    /// The changes that `ignoreDrift` excludes.
    ignored: DriftCounts,
    pub(crate) digest: EffectDigest,
    effect: Effect,
    document: PlanDocument,
    /// The text of the plan, if the CLI cannot save plans.
    unsaved_text: Option<String>,
    /// The file with the output of `plan`.
    stdout: PathBuf,
    json: Option<PathBuf>,
    pub(crate) generated: GeneratedFiles,
    modules: String,
    provider_lock: Option<String>,
}

impl Planned {
    /// The file with the plan's JSON, if it was created.
    pub(crate) fn json(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    /// Whether its JSON shows that it was made from an empty state.
    pub(crate) fn has_empty_state(&self) -> bool {
        self.json.is_some() && self.document.has_empty_state()
    }

    /// The message of a plan without changes.
    pub(crate) const fn no_changes_message(&self) -> &'static str {
        if self.ignored.all_ignored() {
            "No differences except those that ignoreDrift ignores"
        } else {
            "Plan no changes"
        }
    }
}

/// The result of the command `plan`.
struct PlanOutput {
    has_changes: bool,
    unsaved_text: Option<String>,
    stdout: PathBuf,
}

/// The arguments of `plan`, without a plan file for backends that cannot save plans. The exit code is 0 without changes and 2 with
/// changes.
fn plan_arguments(
    file: Option<&Path>,
    destroy: bool,
    variables: &[String],
    options: &Options,
) -> Vec<String> {
    let mut plan = arguments(&["plan", "-no-color", "-input=false", "-detailed-exitcode"]);
    plan.push(state_lock::timeout_argument(&options.lock_timeout));
    plan.extend(file.map(|file| format!("-out={}", file.display())));
    plan.extend_from_slice(variables);
    plan.push(format!("-lock={}", options.plan_lock));
    plan.push("-parallelism=10".to_owned());
    plan.push("-refresh=true".to_owned());
    if destroy {
        plan.push("-destroy".to_owned());
    }
    plan.extend(target_arguments(options));
    plan
}

pub(crate) fn target_arguments(options: &Options) -> impl Iterator<Item = String> {
    options.targets.iter().map(|target| format!("-target={target}"))
}

/// Runs `plan` into `file`, or without a file if the CLI cannot save plans.
async fn run_plan(
    session: &RunSession<'_>,
    destroy: bool,
    file: &Path,
    variables: &[String],
) -> Result<PlanOutput, RunError> {
    let RunSession { bundle, cli, .. } = session;
    let args = plan_arguments(Some(file), destroy, variables, &bundle.options);
    match retry_after_unlock(session, Step::Plan, &args, &[0, 2]).await {
        Err(error) if unsaved_plan::is_unsupported(&error, bundle) => {
            cli.is_unsaved.set(true);
            let plan = unsaved_plan::plan(session, destroy, variables).await?;
            Ok(PlanOutput {
                has_changes: plan.has_changes,
                unsaved_text: Some(plan.text),
                stdout: PathBuf::new(),
            })
        }
        ended => ended.map(|ended| PlanOutput {
            has_changes: ended.code == Some(2),
            unsaved_text: None,
            stdout: ended.stdout,
        }),
    }
}

/// Runs `plan` into `file` and digests its effect.
pub(crate) async fn create(
    session: &RunSession<'_>,
    destroy: bool,
    file: &Path,
) -> Result<Planned, RunError> {
    let RunSession { bundle, cli, .. } = session;
    let variables = prepare::variable_file_arguments(&cli.directory.root, bundle)?;
    let before = generated_files::snapshot(&cli.directory.root)?;
    let output = run_plan(session, destroy, file, &variables).await?;
    let after = generated_files::snapshot(&cli.directory.root)?;
    let generated = collect_generated(cli, before, after).await?;
    let mut has_changes = output.has_changes;
    let mut document = PlanDocument::default();
    let mut json = None;
    if let Some(text) = &output.unsaved_text {
        document = unsaved::document(text)?;
    } else if has_changes || bundle.readable_plan == ReadablePlan::Json {
        let args = arguments(&["show", "-json", "-no-color", &file.display().to_string()]);
        let file = cli.capture_object(Step::Show, &args).await?;
        document = read_document(&file).await?;
        cli.status.secrets().add_plan(&document);
        json = Some(file);
    }
    let modules =
        module_digest::digest(&cli.module).map_err(|source| directory_error("read the modules", source))?;
    let provider_lock = dependency_lock::read(&cli.module)?;
    let origin = effect::PlanInputs {
        inputs: &bundle.inputs_digest,
        modules: &module_digest::with_artifact(&modules, cli, &bundle.artifact.digest),
        lock: provider_lock.as_deref().unwrap_or_default().as_bytes(),
        last_apply: bundle.last_spent_plan(),
        // The effect of an unsaved plan does not cover generated files.
        has_generated_files: output.unsaved_text.is_none() && !generated.is_empty(),
        key: &bundle.key_bytes()?,
    };
    let effect = Effect::new(&document, &origin);
    let ignored = ignored_drift::count(&document, &bundle.ignored_drift);
    has_changes &= !ignored.all_ignored();
    Ok(Planned {
        has_changes,
        ignored,
        unsaved_text: output.unsaved_text,
        stdout: output.stdout,
        digest: effect.digest(),
        effect,
        document,
        json,
        generated,
        modules,
        provider_lock,
    })
}

/// Collects the generated files, off the async threads because they may be large.
async fn collect_generated(
    cli: &Cli<'_>,
    before: Snapshot,
    after: Snapshot,
) -> Result<GeneratedFiles, RunError> {
    let root = cli.directory.root.clone();
    let found = tokio::task::spawn_blocking(move || generated_files::collect(&root, &before, &after));
    found
        .await
        .map_err(|error| directory_error("read a generated file", std::io::Error::other(error)))?
}

async fn read_document(json: &Path) -> Result<PlanDocument, RunError> {
    let json = json.to_owned();
    let parsed = tokio::task::spawn_blocking(move || {
        let file = File::open(json).map_err(|source| directory_error("read the plan's JSON", source))?;
        document::parse(file).map_err(RunError::from)
    });
    parsed
        .await
        .map_err(|error| directory_error("read the plan's JSON", std::io::Error::other(error)))?
}

/// Stores the plan, deletes older ones, and records its contents. The claim of this run has already invalidated approvals of older
/// plans: after a lost run another plan is created.
pub(crate) async fn store(session: &RunSession<'_>, planned: &Planned) -> Result<(), RunError> {
    let RunSession {
        context,
        run,
        bundle,
        cli,
    } = session;
    let name = PlanName {
        stack: bundle.stack.clone(),
        workspace: bundle.workspace.clone(),
        id: PlanId::new(&run.spec.source.revision, planned.digest.clone()).to_string(),
        run: context.settings.run.clone(),
    };
    let human = human_text(session, planned).await?;
    let mut digest = String::new();
    if planned.has_changes {
        let plan = plan_to_store(session, planned)?;
        digest = plan_store::save(context, &plan, &name, bundle.plan_keys.first()).await?;
    }
    let secrets = cli.status.secrets().clone();
    store_readable(context, bundle, planned, &human, &secrets, &name).await?;
    if !bundle.nothing_stored {
        let keeps_json = bundle.readable_plan == ReadablePlan::Json && planned.json.is_none();
        plan_store::delete_older(context, run, &name, keeps_json).await;
    }
    let summary = summary::summarize(&planned.document);
    cli.status.write_soon(|status| {
        status.has_changes = Some(planned.has_changes);
        if planned.has_changes {
            status.effect_digest = planned.digest.to_string();
            status.plan_id.clone_from(&name.id);
            status.plan_digest = digest;
        }
        status.changes = summary.counts.short();
        status.summary = Some(summary.counts);
        // Without JSON the effects of an unsaved plan are not certain.
        status.effects = planned.unsaved_text.is_none().then_some(PlanEffects {
            ignored: i64::try_from(planned.ignored.ignored).unwrap_or(i64::MAX),
            ..summary.effects
        });
        status.change_entries = summary.entries;
        status.changes_omitted = summary.omitted;
        status.human_plan = readable::excerpt(&human, RunStatusLimit::HUMAN_PLAN);
    });
    Ok(())
}

/// The readable text of the plan with its notes; empty where no reader needs it.
async fn human_text(session: &RunSession<'_>, planned: &Planned) -> Result<String, RunError> {
    let bundle = &session.bundle;
    let needs_text =
        planned.has_changes || planned.ignored.all_ignored() || bundle.readable_plan == ReadablePlan::Human;
    let human = match &planned.unsaved_text {
        Some(text) => {
            let section = unsaved::plan_section(text);
            format!("{}\n\n{section}", unsaved_plan::UNSAVED_PLAN_NOTE)
        }
        None if needs_text => human_plan(session, &planned.stdout).await?,
        None => String::new(),
    };
    let mismatch = session.cli.status.snapshot().state_mismatch;
    if !mismatch.is_empty() {
        return Ok(format!("Note: {mismatch}.\n\n{human}"));
    }
    if planned.has_changes && !state::outlives_run(&session.cli.module, &bundle.workspace) {
        return Ok(format!("{}\n\n{human}", state::EPHEMERAL_STATE_NOTE));
    }
    Ok(human)
}

/// The CLI's text of the plan, redacted. A stored readable plan is the output of `show`, as in tofu-controller. The text for the
/// status is taken from the output of `plan`, which is faster.
async fn human_plan(session: &RunSession<'_>, plan_stdout: &Path) -> Result<String, RunError> {
    if session.bundle.readable_plan == ReadablePlan::Human {
        return show(&session.cli).await;
    }
    let text = unsaved::plan_section(&read_text(plan_stdout, readable::TEXT_LIMIT)?);
    Ok(session.cli.status.secrets().redact(&text).into_owned())
}

/// The output of `show` for the plan file, redacted.
pub(crate) async fn show(cli: &Cli<'_>) -> Result<String, RunError> {
    let args = arguments(&["show", "-no-color", &cli.plan_file().display().to_string()]);
    let text = read_text(&cli.capture(Step::Show, &args).await?, readable::TEXT_LIMIT)?;
    Ok(cli.status.secrets().redact(&text).into_owned())
}

/// Reads at most `limit` bytes of a text of the CLI. It is cut at the end of a line: half a value would not be recognised.
fn read_text(file: &Path, limit: usize) -> Result<String, RunError> {
    let mut bytes = Vec::new();
    let read_limit = (limit as u64).saturating_add(1);
    let read = File::open(file).and_then(|file| file.take(read_limit).read_to_end(&mut bytes));
    read.map_err(|source| directory_error("read the plan's text", source))?;
    if bytes.len() > limit {
        bytes.truncate(limit);
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        bytes.truncate(end.unwrap_or(0));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

async fn store_readable(
    context: &Context,
    bundle: &Bundle,
    planned: &Planned,
    human: &str,
    secrets: &Redactor,
    name: &PlanName,
) -> Result<(), RunError> {
    let form = bundle.readable_plan;
    let maps = if form == ReadablePlan::Human {
        let text = readable::with_effect(human, &planned.effect);
        readable::config_maps(&secrets.redact(&text), name)
    } else {
        Vec::new()
    };
    let mut json = Vec::new();
    if let Some(file) = planned.json.as_ref().filter(|_| form == ReadablePlan::Json) {
        let packed = redacted_json(file, secrets).and_then(|bytes| chunk::compress(&bytes));
        let effect = chunk::compress(secrets.redact(&planned.effect.canonical()).as_bytes());
        let error = |source| directory_error("create the readable plan", source);
        json = readable::secrets(&packed.map_err(error)?, &effect.map_err(error)?, name);
    }
    plan_store::store_readable(context, &maps, &json).await
}

/// The plan's JSON, redacted. The prior state in it has values that no change names, for example of data sources and untargeted
/// resources.
fn redacted_json(json: &Path, secrets: &Redactor) -> std::io::Result<Vec<u8>> {
    let mut whole: serde_json::Value = serde_json::from_slice(&read_limited(json, READABLE_JSON_LIMIT)?)?;
    let mut secrets = secrets.clone();
    secrets.add_state(&whole["prior_state"]);
    secrets.redact_json(&mut whole);
    redact::redact(&mut whole);
    Ok(serde_json::to_vec(&whole)?)
}

/// The sensitive values to redact during the apply of the plan, without those of the environment: the apply has its own
/// environment, and credentials of a machine do not belong into a Secret of a stack.
fn secrets_to_store(cli: &Cli<'_>) -> Vec<String> {
    let mut environment = Redactor::default();
    environment.add_environment(&cli.environment);
    let transient = environment.values();
    let mut values = cli.status.secrets().values();
    values.retain(|value| !transient.contains(value));
    values
}

/// Reads the plan file, if it is not too large to be stored.
fn read_plan_file(path: &Path) -> Result<Vec<u8>, RunError> {
    let error = |source| directory_error("read the plan", source);
    let size = std::fs::metadata(path).map_err(error)?.len();
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size > PLAN_LIMIT {
        return Err(RunError::StorePlan(StoreError::TooLarge { size }));
    }
    read_limited(path, PLAN_LIMIT as u64).map_err(error)
}

fn plan_to_store(session: &RunSession<'_>, planned: &Planned) -> Result<StoredPlan, RunError> {
    let RunSession { run, bundle, cli, .. } = session;
    let plan = match planned.unsaved_text {
        Some(_) => Vec::new(),
        None => read_plan_file(&cli.plan_file())?,
    };
    let files: Vec<GeneratedFile> = planned.generated.files.clone();
    let tool = cli.status.snapshot().tool.unwrap_or_default();
    let context = PlanContext {
        bundle: Bundle {
            nothing_stored: false,
            // An apply has that of its own bundle.
            state_check: StateCheck::default(),
            ..bundle.without_seal_keys()
        },
        provider_lock: planned.provider_lock.clone(),
        files,
        files_omitted: !planned.generated.omitted.is_empty(),
        omitted_files: planned.generated.omitted.clone(),
        modules: planned.modules.clone(),
        effect: planned.digest.to_string(),
        tool: tool.name,
        tool_version: tool.version,
        destroy: run.spec.destroy,
        secrets: secrets_to_store(cli),
        secrets_omitted: cli.status.secrets().is_incomplete(),
    };
    Ok(StoredPlan { plan, context })
}

#[cfg(test)]
mod tests;
