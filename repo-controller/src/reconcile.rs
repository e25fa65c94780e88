//! Reconciles one `Repo`: reads it and its objects, decides, writes the objects, reports.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::condition::{ConditionUpdate, merge_conditions};
use sluice_api::repo::{Repo, RepoCondition, RepoStatus};
use sluice_api::run::{Action, Phase, TerraformRun};
use sluice_api::source::GitRepository;
use sluice_api::terraform::{Terraform, label_value, run_sequence};
use sluice_runtime::clock::Clock;
use sluice_runtime::event::{Event, Recorder};
use sluice_runtime::status::{self, Applied, WriteError};
use sluice_runtime::watch::{Reconciler, Requeue};

use crate::decide::{
    APPROVAL_REQUIRED, Child, ChildWrite, Decision, NAME_TAKEN, Observed, REFUSED, decide, failure,
};

/// When a `Repo` is reconciled again after another writer came first.
const CONFLICT_RETRY: Duration = Duration::from_secs(1);
/// When it is reconciled again after a refusal, or while another object has its name: no watch reports the end of these.
const REFUSAL_RETRY: Duration = Duration::from_secs(30);

/// Reconciles `Repo` objects.
pub(crate) struct RepoReconciler {
    /// Client of the API.
    pub(crate) client: Client,
    /// The time of conditions.
    pub(crate) clock: Arc<dyn Clock>,
    /// Records events.
    pub(crate) recorder: Recorder,
}

/// Why a reconciliation could not report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    /// The API server did not answer, or refuses to read.
    #[error("cannot read or write {what} {name}: {source}")]
    Api {
        /// The kind.
        what: &'static str,
        /// Name of the `Repo`.
        name: String,
        /// The error of the API.
        source: Box<kube::Error>,
    },
    /// The status could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What became of the writes.
enum Written {
    /// All are done.
    All,
    /// Another writer changed an object meanwhile.
    Conflict,
    /// The API server refuses an object; its message.
    Refused(String),
}

impl Reconciler<Repo> for RepoReconciler {
    type Error = ReconcileError;

    async fn reconcile(&self, repo: Arc<Repo>) -> Result<Requeue, ReconcileError> {
        let api: Api<Repo> = self.api(&repo);
        // Read live: the cache may lag behind our own status.
        let Some(repo) = get(&api, &repo.name_any(), "Repo").await? else {
            return Ok(Requeue::OnChange);
        };
        if repo.metadata.deletion_timestamp.is_some() {
            return Ok(Requeue::OnChange);
        }
        let observed = self.observe(&repo).await?;
        let mut decision = decide(&repo, &observed);
        let mut next = if decision.ready.reason == NAME_TAKEN {
            Requeue::After(REFUSAL_RETRY)
        } else {
            Requeue::OnChange
        };
        match self.write(&repo, &decision).await? {
            Written::All => {}
            Written::Conflict => next = Requeue::After(CONFLICT_RETRY),
            Written::Refused(message) => {
                decision.ready = failure(REFUSED, message);
                next = Requeue::After(REFUSAL_RETRY);
            }
        }
        self.report(&api, &repo, decision).await?;
        Ok(next)
    }
}

impl RepoReconciler {
    fn api<K>(&self, repo: &Repo) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &repo.namespace().unwrap_or_default())
    }

    /// Reads the objects live: a decision on a stale cache could show the run of an earlier spec.
    async fn observe(&self, repo: &Repo) -> Result<Observed, ReconcileError> {
        let name = repo.name_any();
        let source = get(&self.api::<GitRepository>(repo), &name, "GitRepository").await?;
        let stack = get(&self.api::<Terraform>(repo), &name, "Terraform").await?;
        // After the stack: a newer run than its status shows is the present one, an older one would not be.
        let run = match &stack {
            Some(stack) => self.newest_run(repo, stack).await?,
            None => None,
        };
        Ok(Observed { source, stack, run })
    }

    /// Returns the newest run that plans or applies and was not superseded. Lists metadata only: a run has its plan in its status.
    async fn newest_run(
        &self,
        repo: &Repo,
        stack: &Terraform,
    ) -> Result<Option<TerraformRun>, ReconcileError> {
        let api: Api<TerraformRun> = self.api(repo);
        let selector = format!("{TERRAFORM_LABEL}={}", label_value(&stack.name_any()));
        let listed = api.list_metadata(&ListParams::default().labels(&selector)).await;
        let listed = listed.map_err(|source| api_error("TerraformRuns of", repo, source))?;
        let uid = stack.uid().unwrap_or_default();
        let own = listed
            .items
            .iter()
            .filter(|run| run.owner_references().iter().any(|owner| owner.uid == uid));
        let mut names: Vec<(u64, String)> = own
            .filter_map(|run| Some((run_sequence(&run.name_any())?, run.name_any())))
            .collect();
        names.sort_unstable();
        for (_, name) in names.iter().rev() {
            let run = get(&api, name, "TerraformRun").await?;
            if let Some(run) = run.filter(counts) {
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    /// Writes the objects of a decision in its order.
    async fn write(&self, repo: &Repo, decision: &Decision) -> Result<Written, ReconcileError> {
        for child in decision.order {
            let written = match child {
                Child::Source => {
                    let write = decision.source.as_ref();
                    self.write_child::<GitRepository>(repo, write, "GitRepository")
                        .await?
                }
                Child::Stack => {
                    let write = decision.stack.as_ref();
                    self.write_child::<Terraform>(repo, write, "Terraform").await?
                }
            };
            if !matches!(written, Written::All) {
                return Ok(written);
            }
        }
        Ok(Written::All)
    }

    async fn write_child<K>(
        &self,
        repo: &Repo,
        write: Option<&ChildWrite>,
        kind: &'static str,
    ) -> Result<Written, ReconcileError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let Some(write) = write else {
            return Ok(Written::All);
        };
        let (name, namespace) = (repo.name_any(), repo.namespace().unwrap_or_default());
        let resource = ApiResource::erase::<K>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, &resource);
        let sent = match write {
            ChildWrite::Create(object) => api.create(&PostParams::default(), object).await,
            ChildWrite::Patch(body) => {
                let (params, patch) = (PatchParams::default(), Patch::Merge(body));
                api.patch(&name, &params, &patch).await
            }
        };
        match sent {
            Ok(_) => {
                let verb = if matches!(write, ChildWrite::Create(_)) {
                    "created"
                } else {
                    "changed"
                };
                tracing::info!(childKind = kind, "{verb} the object");
                Ok(Written::All)
            }
            Err(kube::Error::Api(status)) if is_conflict(write, status.code) => Ok(Written::Conflict),
            Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => {
                Ok(Written::Refused(format!("{kind}: {}", status.message)))
            }
            Err(source) => Err(api_error(kind, repo, source)),
        }
    }

    /// Writes the status, and an event about a new state.
    async fn report(&self, api: &Api<Repo>, repo: &Repo, decision: Decision) -> Result<(), ReconcileError> {
        let Decision { status, ready, .. } = decision;
        let (updates, now) = ([ready], self.clock.now());
        let compute = |object: &Repo| {
            let existing = object.status.as_ref().map(|status| &*status.conditions);
            let generation = repo.metadata.generation;
            RepoStatus {
                conditions: merge_conditions(existing.unwrap_or_default(), &updates, generation, now),
                ..status.clone()
            }
        };
        let written = status::apply(api, repo, &[RepoCondition::Ready.as_str()], compute).await?;
        let [ready] = updates;
        if matches!(written, Applied::Written(_)) && is_reportable(repo, &ready) {
            self.recorder.record(repo, event(ready));
        }
        Ok(())
    }
}

/// Whether another writer came first: it created, changed or deleted the object.
const fn is_conflict(write: &ChildWrite, code: u16) -> bool {
    code == 409 || code == 404 && matches!(write, ChildWrite::Patch(_))
}

/// Whether a run counts as the run of a commit. Others release a lock, or keep the directory for a user.
fn counts(run: &TerraformRun) -> bool {
    let phase = run.status.as_ref().map(|status| status.phase);
    let plans = matches!(
        run.spec.action,
        Action::Plan | Action::Apply | Action::PlanAndApply
    );
    plans && phase != Some(Phase::Superseded)
}

/// Whether an event reports this condition: it ends something, and differs from the previous one.
fn is_reportable(repo: &Repo, ready: &ConditionUpdate<RepoCondition>) -> bool {
    let before = repo.status.as_ref().map(|status| &*status.conditions);
    let before = before.unwrap_or_default().iter();
    let mut same =
        before.filter(|condition| condition.reason == ready.reason && condition.message == ready.message);
    let ends = ready.status.as_str() != "Unknown" || ready.reason == APPROVAL_REQUIRED;
    ends && same.next().is_none()
}

fn event(ready: ConditionUpdate<RepoCondition>) -> Event {
    if ready.status.as_str() == "False" {
        Event::warning(ready.reason, ready.message)
    } else {
        Event::normal(ready.reason, ready.message)
    }
}

async fn get<K>(api: &Api<K>, name: &str, what: &'static str) -> Result<Option<K>, ReconcileError>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.get_opt(name).await.map_err(|source| ReconcileError::Api {
        what,
        name: name.to_owned(),
        source: Box::new(source),
    })
}

fn api_error(what: &'static str, repo: &Repo, source: kube::Error) -> ReconcileError {
    ReconcileError::Api {
        what,
        name: repo.name_any(),
        source: Box::new(source),
    }
}
