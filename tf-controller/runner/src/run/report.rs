//! What a run has to say, written to its status as merge patches by a task of its own: the run goes on while the API is away,
//! and what it said meanwhile is written when it is back.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use sluice_api::run::{RunStatusLimit, RunStep, TerraformRun, TerraformRunStatus};
use sluice_runtime::status::difference;
use tokio::sync::watch;

use super::patience::is_passing;
use crate::secrets::Secrets;

/// First wait after a failed write; doubled up to the longest.
const FIRST: Duration = Duration::from_millis(200);
/// Longest wait between writes while the API is away.
const LONGEST: Duration = Duration::from_secs(5);
/// Longest single write.
const ATTEMPT: Duration = Duration::from_secs(30);

/// The status as it should stand, with a count of its changes.
#[derive(Clone, Debug)]
struct Wanted {
    version: u64,
    status: TerraformRunStatus,
}

/// How far writing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    UpTo(u64),
    /// The run object is gone, or the API refuses the status for good.
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
pub(super) struct Reporter {
    wanted: watch::Sender<Wanted>,
    written: watch::Receiver<Written>,
    secrets: Mutex<Secrets>,
}

impl Reporter {
    /// Starts writing after `held`, the status as claimed.
    pub(super) fn start(api: Api<TerraformRun>, name: String, held: TerraformRunStatus) -> Self {
        let (wanted, changes) = watch::channel(Wanted {
            version: 0,
            status: held.clone(),
        });
        let (done, written) = watch::channel(Written::UpTo(0));
        tokio::spawn(write(api, name, held, changes, done));
        Self {
            wanted,
            written,
            secrets: Mutex::default(),
        }
    }

    /// The values that are taken out of all that is said.
    pub(super) fn secrets(&self) -> MutexGuard<'_, Secrets> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the status; it is written soon.
    pub(super) fn say(&self, change: impl FnOnce(&mut TerraformRunStatus)) {
        self.wanted.send_modify(|wanted| {
            wanted.version += 1;
            change(&mut wanted.status);
            note_step(&mut wanted.status);
            hide(&self.secrets(), &mut wanted.status);
        });
    }

    /// What was said so far.
    pub(super) fn said(&self) -> TerraformRunStatus {
        self.wanted.borrow().status.clone()
    }

    /// Waits until everything said so far is written.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub(super) async fn flush(&self, within: Duration) -> Result<(), ReportError> {
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
fn hide(secrets: &Secrets, status: &mut TerraformRunStatus) {
    let addresses = status.change_entries.iter_mut().map(|change| &mut change.address);
    let entries = status.inventory.iter_mut().flat_map(|listed| &mut listed.entries);
    let texts = [&mut status.message, &mut status.human_plan, &mut status.held];
    for text in texts
        .into_iter()
        .chain(addresses)
        .chain(entries.map(|entry| &mut entry.identifier))
    {
        if let Cow::Owned(clean) = secrets.hide(text) {
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

async fn write(
    api: Api<TerraformRun>,
    name: String,
    mut held: TerraformRunStatus,
    mut changes: watch::Receiver<Wanted>,
    done: watch::Sender<Written>,
) {
    let mut wait = FIRST;
    while changes.changed().await.is_ok() {
        loop {
            let wanted = changes.borrow_and_update().clone();
            match attempt(&api, &name, &held, &wanted.status).await {
                Ok(()) => {
                    held = wanted.status;
                    wait = FIRST;
                    done.send_replace(Written::UpTo(wanted.version));
                    break;
                }
                Err(error) if is_passing(&error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the status is written later"
                    );
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(LONGEST);
                }
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "the status cannot be written"
                    );
                    done.send_replace(Written::Never);
                    return;
                }
            }
        }
    }
}

async fn attempt(
    api: &Api<TerraformRun>,
    name: &str,
    held: &TerraformRunStatus,
    wanted: &TerraformRunStatus,
) -> Result<(), kube::Error> {
    let value = |status| serde_json::to_value(status).map_err(kube::Error::SerdeError);
    let Some(patch) = difference(&value(held)?, &value(wanted)?) else {
        return Ok(());
    };
    let patch = Patch::Merge(json!({ "status": patch }));
    let params = PatchParams::default();
    let call = api.patch_status(name, &params, &patch);
    match tokio::time::timeout(ATTEMPT, call).await {
        Ok(answer) => answer.map(drop),
        Err(_) => Err(kube::Error::Service("the API did not answer in time".into())),
    }
}
