//! The plan step: plan, digest its effect, store it, say so.

pub(crate) mod generated_files;
pub(crate) mod module_digest;
pub(crate) mod module_reads;
pub(crate) mod plan_log;
pub(crate) mod plan_store;
pub(crate) mod state_persistence;
pub(crate) mod unsaved_plan;
pub(crate) mod webhook;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use sluice_api::run::{PlanEffects, RunStatusLimit, TerraformRun};
use sluice_api::terraform::plan_id::{EffectDigest, PlanId};

use self::generated_files::{Made, Snapshot};
use crate::run::commands::workspace::Workspace;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::state_lock::unlock;
use crate::run::workdir;
use crate::run::workdir::failed;
use crate::run::workdir::lock_file;
use crate::run::workdir::prepare;
use sluice_tf_core::bundle::{Bundle, ReadablePlan};
use sluice_tf_core::chunk;
use sluice_tf_core::cli::argv;
use sluice_tf_core::plan::document::{self, PlanDocument};
use sluice_tf_core::plan::effect::{self, Effect};
use sluice_tf_core::plan::ignored_drift::DriftCounts;
use sluice_tf_core::plan::store::{GeneratedFile, PLAN_LIMIT, PlanContext, PlanName, StoreError, StoredPlan};
use sluice_tf_core::plan::{ignored_drift, readable, redact, summary, unsaved};
use sluice_tf_core::redaction::Redactor;

/// Largest JSON of a plan that `storeReadablePlan: json` stores; in memory it is several times as large.
const READABLE_JSON: u64 = 64 * 1024 * 1024;

/// A plan as it was made.
pub(crate) struct Planned {
    /// Whether it does anything that counts.
    pub(crate) has_changes: bool,
    /// What of it `ignoreDrift` takes away.
    ignored: DriftCounts,
    pub(crate) digest: EffectDigest,
    effect: Effect,
    document: PlanDocument,
    /// What the CLI showed, where it cannot save its plans.
    shown: Option<String>,
    /// The file with what the CLI said while it planned.
    said: PathBuf,
    json: Option<PathBuf>,
    /// The files that planning made.
    pub(crate) made: Made,
    modules: String,
    provider_lock: Option<String>,
}

impl Planned {
    /// The file with the plan's JSON, where it was asked for.
    pub(crate) fn json(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    /// What is said of a plan without changes that count.
    pub(crate) const fn nothing(&self) -> &'static str {
        if self.ignored.all_ignored() {
            "No differences but those that ignoreDrift names"
        } else {
            "Plan no changes"
        }
    }
}

/// How `plan` ended.
struct Ended {
    has_changes: bool,
    shown: Option<String>,
    said: PathBuf,
}

/// Runs `plan` into `file`, or without one where the CLI cannot save its plans.
async fn command(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    destroy: bool,
    file: &Path,
    variables: &[PathBuf],
) -> Result<Ended, RunError> {
    let words = argv::plan(file, destroy, variables, &argv_options(bundle));
    match unlock::retrying(context, workspace, Step::Plan, &words, &[0, 2]).await {
        Err(error) if unsaved_plan::is_refused(&error, bundle) => {
            workspace.is_unsaved.set(true);
            let shown = unsaved_plan::plan(bundle, workspace, destroy, variables).await?;
            Ok(Ended {
                has_changes: shown.has_changes,
                shown: Some(shown.text),
                said: PathBuf::new(),
            })
        }
        ended => ended.map(|ended| Ended {
            has_changes: ended.code == Some(2),
            shown: None,
            said: ended.stdout,
        }),
    }
}

/// Runs `plan` into `file` and digests its effect.
pub(crate) async fn make(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    destroy: bool,
    file: &Path,
) -> Result<Planned, RunError> {
    let variables = prepare::variable_files(&workspace.directory.root, bundle)?;
    let before = generated_files::snapshot(&workspace.directory.root)?;
    let ended = command(context, bundle, workspace, destroy, file, &variables).await?;
    let after = generated_files::snapshot(&workspace.directory.root)?;
    let made = files_made(workspace, before, after).await?;
    let mut has_changes = ended.has_changes;
    let mut document = PlanDocument::default();
    let mut json = None;
    if let Some(text) = &ended.shown {
        document = unsaved::document(text)?;
    } else if has_changes || bundle.readable_plan == ReadablePlan::Json {
        let file = workspace
            .capture_object(Step::Show, &argv::show_json(file))
            .await?;
        document = read_document(&file).await?;
        workspace.reporter.secrets().add_plan(&document);
        json = Some(file);
    }
    let modules =
        module_digest::digest(&workspace.module).map_err(|source| failed("read the modules", source))?;
    let provider_lock = lock_file::read(&workspace.module)?;
    let plan_inputs = effect::PlanInputs {
        inputs: &bundle.inputs_digest,
        modules: &module_digest::with_artifact(&modules, workspace, &bundle.artifact.digest),
        lock: provider_lock.as_deref().unwrap_or_default().as_bytes(),
        last_apply: bundle.last_apply.as_deref().unwrap_or_default(),
        // Of a plan that was only shown there is no state.
        has_generated_files: ended.shown.is_none() && !made.is_empty(),
        key: &bundle.key_bytes()?,
    };
    let effect = Effect::new(&document, &plan_inputs);
    let ignored = ignored_drift::count(&document, &bundle.ignored_drift);
    has_changes &= !ignored.all_ignored();
    Ok(Planned {
        has_changes,
        ignored,
        shown: ended.shown,
        said: ended.said,
        digest: effect.digest(),
        effect,
        document,
        json,
        made,
        modules,
        provider_lock,
    })
}

/// The files that planning made, which may be large ones.
async fn files_made(workspace: &Workspace<'_>, before: Snapshot, after: Snapshot) -> Result<Made, RunError> {
    let root = workspace.directory.root.clone();
    let found = tokio::task::spawn_blocking(move || generated_files::made(&root, &before, &after));
    found
        .await
        .map_err(|error| failed("read a file that planning made", std::io::Error::other(error)))?
}

async fn read_document(json: &Path) -> Result<PlanDocument, RunError> {
    let json = json.to_owned();
    let parsed = tokio::task::spawn_blocking(move || {
        let file = File::open(json).map_err(|source| failed("read the plan's JSON", source))?;
        document::parse(file).map_err(RunError::from)
    });
    parsed
        .await
        .map_err(|error| failed("read the plan's JSON", std::io::Error::other(error)))?
}

pub(crate) fn argv_options(bundle: &Bundle) -> argv::Options {
    argv::Options {
        targets: bundle.options.targets.clone(),
        lock_timeout: bundle.options.lock_timeout.clone(),
        plan_lock: bundle.options.plan_lock,
        parallelism: bundle.options.parallelism,
    }
}

/// Stores the plan, lets older ones go, and says what it holds. No approval of an older one counts any more once this run is
/// claimed: after a run that did not tell its end another plan is made.
pub(crate) async fn keep(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    run: &TerraformRun,
    planned: &Planned,
) -> Result<(), RunError> {
    let name = PlanName {
        stack: bundle.stack.clone(),
        workspace: bundle.workspace.clone(),
        id: PlanId::new(&run.spec.source.revision, planned.digest.clone()).to_string(),
        run: context.settings.run.clone(),
    };
    let wanted =
        planned.has_changes || planned.ignored.all_ignored() || bundle.readable_plan == ReadablePlan::Human;
    let human = match &planned.shown {
        Some(text) => format!("{}\n\n{}", unsaved_plan::CAUTION, unsaved::plan_section(text)),
        None if wanted => human(bundle, workspace, &planned.said).await?,
        None => String::new(),
    };
    let lasts = !planned.has_changes || state_persistence::lasts(&workspace.module, &bundle.workspace);
    let human = if lasts {
        human
    } else {
        format!("{}\n\n{human}", state_persistence::CAUTION)
    };
    let mut digest = String::new();
    if planned.has_changes {
        let plan = to_store(bundle, workspace, run, planned)?;
        digest = plan_store::save(context, &plan, &name, bundle.plan_keys.first()).await?;
    }
    let secrets = workspace.reporter.secrets().clone();
    publish_readable(context, bundle, planned, (&human, &secrets), &name).await?;
    if !bundle.nothing_stored {
        let json_stays = bundle.readable_plan == ReadablePlan::Json && planned.json.is_none();
        plan_store::forget(context, run, &name, json_stays).await;
    }
    let summary = summary::summarize(&planned.document);
    workspace.reporter.say_soon(|status| {
        status.has_changes = Some(planned.has_changes);
        if planned.has_changes {
            status.effect_digest = planned.digest.to_string();
            status.plan_id.clone_from(&name.id);
            status.plan_digest = digest;
        }
        status.changes = summary.counts.short();
        status.summary = Some(summary.counts);
        // A plan that was not saved has no JSON: what it does is not known for certain, and so not said.
        status.effects = planned.shown.is_none().then_some(PlanEffects {
            ignored: i64::try_from(planned.ignored.ignored).unwrap_or(i64::MAX),
            ..summary.effects
        });
        status.change_entries = summary.entries;
        status.changes_omitted = summary.omitted;
        status.human_plan = readable::excerpt(&human, RunStatusLimit::HUMAN_PLAN);
    });
    Ok(())
}

/// The CLI's text of the plan: it shows no sensitive value. Where it is stored it is what `show` says, as tofu-controller
/// stores it; for the record of the run the same plan is taken from what `plan` said, which spares a start of the CLI.
async fn human(bundle: &Bundle, workspace: &Workspace<'_>, said: &Path) -> Result<String, RunError> {
    let limit = readable::TEXT_LIMIT;
    let text = if bundle.readable_plan == ReadablePlan::Human {
        let words = argv::show(&workspace.plan_file());
        text_of(&workspace.capture(Step::Show, &words).await?, limit)?
    } else {
        unsaved::plan_section(&text_of(said, limit)?)
    };
    Ok(workspace.reporter.secrets().redact(&text).into_owned())
}

/// At most `limit` bytes of a text of the CLI. What is cut ends with a whole line: half a value is not known for one that
/// nobody may read.
pub(crate) fn text_of(file: &Path, limit: usize) -> Result<String, RunError> {
    let mut bytes = Vec::new();
    let most = (limit as u64).saturating_add(1);
    let read = File::open(file).and_then(|file| file.take(most).read_to_end(&mut bytes));
    read.map_err(|source| failed("read the plan's text", source))?;
    if bytes.len() > limit {
        bytes.truncate(limit);
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        bytes.truncate(end.unwrap_or(0));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

async fn publish_readable(
    context: &Context,
    bundle: &Bundle,
    planned: &Planned,
    (human, secrets): (&str, &Redactor),
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
        let packed = shown(file, secrets).and_then(|bytes| chunk::compress(&bytes));
        let effect = chunk::compress(secrets.redact(&planned.effect.canonical()).as_bytes());
        let unpacked = |source| failed("make what storeReadablePlan: json stores", source);
        json = readable::secrets(&packed.map_err(unpacked)?, &effect.map_err(unpacked)?, name);
    }
    plan_store::show(context, &maps, &json, name).await
}

/// The plan's JSON as people may see it: the CLI's own shows sensitive values. The state in it also tells of what no change
/// names, such as data and what is not among the targets.
fn shown(json: &Path, secrets: &Redactor) -> std::io::Result<Vec<u8>> {
    let mut whole: serde_json::Value = serde_json::from_slice(&workdir::read_limited(json, READABLE_JSON)?)?;
    let mut secrets = secrets.clone();
    secrets.add_state(&whole["prior_state"]);
    secrets.redact_json(&mut whole);
    redact::redact(&mut whole);
    Ok(serde_json::to_vec(&whole)?)
}

/// The values that the texts of the plan's apply must not show, without those of the environment: the apply has its own, and
/// credentials of a machine do not belong into a Secret of a stack.
fn worth_keeping(workspace: &Workspace<'_>) -> Vec<String> {
    let mut environment = Redactor::default();
    environment.add_environment(&workspace.environment);
    let passing = environment.values();
    let mut values = workspace.reporter.secrets().values();
    values.retain(|value| !passing.contains(value));
    values
}

/// The bytes of the plan file, if they are not more than are stored.
fn plan_file(path: &Path) -> Result<Vec<u8>, RunError> {
    let unread = |source| failed("read the plan", source);
    let size = std::fs::metadata(path).map_err(unread)?.len();
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size > PLAN_LIMIT {
        return Err(RunError::Save(StoreError::TooLarge { size }));
    }
    workdir::read_limited(path, PLAN_LIMIT as u64).map_err(unread)
}

fn to_store(
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    run: &TerraformRun,
    planned: &Planned,
) -> Result<StoredPlan, RunError> {
    let plan = match planned.shown {
        Some(_) => Vec::new(),
        None => plan_file(&workspace.plan_file())?,
    };
    let files: Vec<GeneratedFile> = planned.made.files.clone();
    let tool = workspace.reporter.said().tool.unwrap_or_default();
    let context = PlanContext {
        bundle: Bundle {
            nothing_stored: false,
            ..bundle.without_seal_keys()
        },
        provider_lock: planned.provider_lock.clone(),
        files,
        files_omitted: !planned.made.omitted.is_empty(),
        omitted_files: planned.made.omitted.clone(),
        modules: planned.modules.clone(),
        effect: planned.digest.to_string(),
        tool: tool.name,
        tool_version: tool.version,
        destroy: run.spec.destroy,
        secrets: worth_keeping(workspace),
        secrets_omitted: workspace.reporter.secrets().is_incomplete(),
    };
    Ok(StoredPlan { plan, context })
}

#[cfg(test)]
mod tests;
