//! What a run has to say, written to its status as merge patches by a task of its own: the run goes on while the API is away,
//! and what it said meanwhile is written when it is back. A run that has nothing to say says now and then that it lives.
//!
//! A write is for a reader. What must be on record before an effect is written at once ([`Reporter::say`], [`Reporter::flush`]), a step
//! once it has lasted for a while ([`Reporter::say_soon`]), and what only the record needs with the next write ([`Reporter::note`]).
//!
//! Each write names the version that it changes. Whoever ends the run in our place, since it was not heard of, is never written
//! over: the run hears of it at its next write, starts no apply any more, and is told to stop.

use sluice_runtime::sync::lock;
use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::run::{RunStatusLimit, RunStep, TerraformRun, TerraformRunStatus};
use sluice_runtime::status::difference;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::run::lifecycle::api_retry::is_passing;
use crate::run::status::size_limit::{can_shrink, fitted, is_too_large};
use sluice_tf_core::redaction::Redactor;

/// First wait after a failed write; doubled up to the longest.
const FIRST: Duration = Duration::from_millis(200);
/// Longest wait between writes while the API is away.
const LONGEST: Duration = Duration::from_secs(5);
/// Conflicts that are looked at without a pause: each means that somebody else wrote.
const CONFLICTS: u32 = 5;
/// Longest single write.
const ATTEMPT: Duration = Duration::from_secs(30);

/// When something is written that has time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Between two signs of life.
    pub(crate) heartbeat: Duration,
    /// How long a step lasts before it is written.
    pub(crate) step: Duration,
}

/// The status as it should stand, with a count of its changes.
#[derive(Clone, Debug)]
struct Wanted {
    version: u64,
    /// The newest change that is written at once.
    at_once: u64,
    /// The newest change that is written soon.
    soon: u64,
    status: TerraformRunStatus,
}

impl Wanted {
    /// Makes a change, and gives its number.
    fn change(&mut self, change: impl FnOnce(&mut TerraformRunStatus), secrets: &Redactor) -> u64 {
        self.version += 1;
        change(&mut self.status);
        note_step(&mut self.status);
        hide(secrets, &mut self.status);
        self.version
    }
}

/// How far writing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    UpTo(u64),
    /// The run object is gone, somebody else has ended the run, or the API refuses the status for good.
    Never,
}

/// Why what was said is not known to be written.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ReportError {
    /// The API stayed away.
    #[error("the status was not written within {0:?}")]
    Late(Duration),
    /// The run object is gone, or the API refuses the status.
    #[error("the status cannot be written")]
    Refused,
}

/// The pen of one run.
#[derive(Debug)]
pub(crate) struct Reporter {
    wanted: watch::Sender<Wanted>,
    written: watch::Receiver<Written>,
    secrets: Mutex<Redactor>,
}

impl Reporter {
    /// Starts writing to the run as it was claimed, at these times. `stop` is called when somebody else has ended the run.
    pub(crate) fn start(
        api: Api<TerraformRun>,
        run: &TerraformRun,
        times: Times,
        stop: CancellationToken,
    ) -> Self {
        let held = run.status.clone().unwrap_or_default();
        let (wanted, changes) = watch::channel(Wanted {
            version: 0,
            at_once: 0,
            soon: 0,
            status: held.clone(),
        });
        let (done, written) = watch::channel(Written::UpTo(0));
        let pen = StatusWriter {
            api,
            name: run.name_any(),
            version: run.resource_version(),
            held,
            refusals: 0,
        };
        tokio::spawn(write(pen, changes, done, times, stop));
        Self {
            wanted,
            written,
            secrets: Mutex::default(),
        }
    }

    /// The values that are taken out of all that is said.
    pub(crate) fn secrets(&self) -> MutexGuard<'_, Redactor> {
        lock(&self.secrets)
    }

    /// Changes the status; it is written at once.
    pub(crate) fn say(&self, change: impl FnOnce(&mut TerraformRunStatus)) {
        self.wanted
            .send_modify(|wanted| wanted.at_once = wanted.change(change, &self.secrets()));
    }

    /// Changes the status; it is written with the next write, at the latest when it has stood for [`Times::step`].
    pub(crate) fn say_soon(&self, change: impl FnOnce(&mut TerraformRunStatus)) {
        self.wanted
            .send_modify(|wanted| wanted.soon = wanted.change(change, &self.secrets()));
    }

    /// Changes the status; it is written with the next write, at the latest with the next sign of life.
    pub(crate) fn note(&self, change: impl FnOnce(&mut TerraformRunStatus)) {
        self.wanted.send_modify(|wanted| {
            wanted.change(change, &self.secrets());
        });
    }

    /// What was said so far.
    pub(crate) fn said(&self) -> TerraformRunStatus {
        self.wanted.borrow().status.clone()
    }

    /// Writes everything said so far, and waits until that is done.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub(crate) async fn flush(&self, within: Duration) -> Result<(), ReportError> {
        self.wanted.send_modify(|wanted| wanted.at_once = wanted.version);
        let version = self.wanted.borrow().version;
        let mut written = self.written.clone();
        let done = |state: &Written| match state {
            Written::UpTo(reached) => *reached >= version,
            Written::Never => true,
        };
        match tokio::time::timeout(within, written.wait_for(done)).await {
            Err(_) => Err(ReportError::Late(within)),
            Ok(Ok(state)) if matches!(*state, Written::UpTo(_)) => Ok(()),
            Ok(_) => Err(ReportError::Refused),
        }
    }
}

/// Takes what nobody may read out of every text that is not our own word: keys of resources and identifiers come from values.
fn hide(secrets: &Redactor, status: &mut TerraformRunStatus) {
    let addresses = status.change_entries.iter_mut().map(|change| &mut change.address);
    let entries = status.inventory.iter_mut().flat_map(|listed| &mut listed.entries);
    let lock = status.lock.iter_mut();
    let holders = lock.flat_map(|lock| [&mut lock.who, &mut lock.operation]);
    let texts = [
        &mut status.message,
        &mut status.human_plan,
        &mut status.auto_apply_hold,
        &mut status.lock_holder,
    ];
    for text in texts
        .into_iter()
        .chain(holders)
        .chain(addresses)
        .chain(entries.map(|entry| &mut entry.identifier))
    {
        if let Cow::Owned(clean) = secrets.redact(text) {
            *text = clean;
        }
    }
}

/// Notes the phase that the run is in now, if it is another than before.
fn note_step(status: &mut TerraformRunStatus) {
    let same = status.steps.last().is_some_and(|step| step.phase == status.phase);
    if !same && !status.phase.is_final() && status.steps.len() < RunStatusLimit::STEPS {
        status.steps.push(RunStep {
            phase: status.phase,
            since: MicroTime(jiff::Timestamp::now()),
        });
    }
}

/// Writes what is wanted, until nobody wants anything any more.
async fn write(
    mut pen: StatusWriter,
    mut changes: watch::Receiver<Wanted>,
    done: watch::Sender<Written>,
    times: Times,
    stop: CancellationToken,
) {
    let mut written = 0;
    while let Some(is_sign_of_life) = due(&pen, &mut changes, written, times).await {
        match insist(&mut pen, &mut changes, is_sign_of_life).await {
            Ok(version) => {
                written = version;
                done.send_replace(Written::UpTo(version));
            }
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the status cannot be written"
                );
                done.send_replace(Written::Never);
                if matches!(error, PenError::Ended(_)) {
                    stop.cancel();
                }
                return;
            }
        }
    }
}

/// Waits for the next write, and tells whether it says that the run lives, whatever else it says; nothing when nobody wants anything
/// any more.
async fn due(
    pen: &StatusWriter,
    changes: &mut watch::Receiver<Wanted>,
    written: u64,
    times: Times,
) -> Option<bool> {
    let has_ended = pen.held.phase.is_final();
    let beat = Instant::now() + times.heartbeat;
    let mut soon = None;
    loop {
        {
            let wanted = changes.borrow_and_update();
            if wanted.at_once > written {
                return Some(false);
            }
            if wanted.soon > written {
                soon.get_or_insert_with(|| Instant::now() + times.step);
            }
        }
        let is_step = soon.is_some_and(|soon| soon <= beat);
        let until = soon.unwrap_or(beat).min(beat);
        tokio::select! {
            news = changes.changed() => news.ok()?,
            () = tokio::time::sleep_until(until), if !has_ended || soon.is_some() => return Some(!is_step),
        }
    }
}

/// Writes what is wanted now, again and again until it is written; gives its version.
async fn insist(
    pen: &mut StatusWriter,
    changes: &mut watch::Receiver<Wanted>,
    is_sign_of_life: bool,
) -> Result<u64, PenError> {
    let (mut wait, mut conflicts) = (FIRST, 0);
    loop {
        let mut wanted = changes.borrow_and_update().clone();
        wanted.status = fitted(wanted.status, pen.refusals);
        let error = match pen.attempt(&wanted.status, is_sign_of_life).await {
            Ok(()) => return Ok(wanted.version),
            Err(error) => error,
        };
        if is_too_large(&error) && can_shrink(pen.refusals) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the status is written in fewer words"
            );
            pen.refusals += 1;
        } else if is_conflict(&error) && conflicts < CONFLICTS {
            conflicts += 1;
        } else if is_conflict(&error) || is_passing(&error) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the status is written later"
            );
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST);
        } else {
            return Err(error.into());
        }
        if is_conflict(&error) {
            match pen.look(&wanted.status).await {
                Ok(()) => {}
                Err(PenError::Api(error)) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Why nothing is written any more.
#[derive(Debug, thiserror::Error)]
enum PenError {
    /// The run was ended in our place.
    #[error("somebody else has ended the run as {0}")]
    Ended(&'static str),
    /// The API refuses it.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// What writes the status of one run.
struct StatusWriter {
    api: Api<TerraformRun>,
    name: String,
    /// The version that the next write changes.
    version: Option<String>,
    /// The status of that version, as far as it is ours.
    held: TerraformRunStatus,
    /// How often the server refused a status as too large.
    refusals: usize,
}

impl StatusWriter {
    /// Writes what differs, and that the run lives; only that it lives, where that is what is to be said.
    async fn attempt(
        &mut self,
        wanted: &TerraformRunStatus,
        is_sign_of_life: bool,
    ) -> Result<(), kube::Error> {
        let difference = differences(&self.held, wanted)?;
        if difference.is_none() && !is_sign_of_life {
            return Ok(());
        }
        let mut status = difference.unwrap_or_else(|| json!({}));
        if let Value::Object(members) = &mut status {
            members.insert("heartbeatAt".to_owned(), json!(MicroTime(jiff::Timestamp::now())));
        }
        let patch =
            Patch::Merge(json!({ "metadata": { "resourceVersion": self.version }, "status": status }));
        let params = PatchParams::default();
        let written = within(self.api.patch_status(&self.name, &params, &patch)).await?;
        self.version = written.resource_version();
        self.held = wanted.clone();
        Ok(())
    }

    /// Reads what stands there, after a conflict. A write of ours whose answer was lost is among what may be found.
    async fn look(&mut self, wanted: &TerraformRunStatus) -> Result<(), PenError> {
        let found = within(self.api.get(&self.name)).await?;
        self.version = found.resource_version();
        let mut status = found.status.unwrap_or_default();
        status.heartbeat_at = None;
        let is_ours = status.claim.is_some() && status.claim == self.held.claim;
        if !is_ours || status.phase.is_final() && differences(&status, wanted)?.is_some() {
            return Err(PenError::Ended(status.phase.as_str()));
        }
        self.held = status;
        Ok(())
    }
}

/// What differs once it is written: in memory times are finer.
fn differences(held: &TerraformRunStatus, wanted: &TerraformRunStatus) -> Result<Option<Value>, kube::Error> {
    let value = |status| serde_json::to_value(status).map_err(kube::Error::SerdeError);
    Ok(difference(&value(held)?, &value(wanted)?))
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict())
}

async fn within<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    match tokio::time::timeout(ATTEMPT, call).await {
        Ok(answer) => answer,
        Err(_) => Err(kube::Error::Service("the API did not answer in time".into())),
    }
}
