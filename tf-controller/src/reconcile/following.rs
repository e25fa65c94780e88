//! Stacks whose run is at work. A runner says every few seconds that it lives, and each word of it calls its stack: such a pass reads
//! that run and nothing else, and not even that where the watch tells of nothing new. What the run says of another step reaches the
//! stack's status from what the last full pass read. Everything is read once the run ends, or the stack changes.

use super::{
    Context,
    dispatch::{DispatchError, reference},
    follow,
    observe::claimed,
    report::phase,
};
use kube::{Api, ResourceExt};
use sluice_api::{
    run::{TerraformRun, TerraformRunStatus},
    terraform::Terraform,
};
use sluice_runtime::schedule::ObjectKey;
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What a full pass saw last, with what is known of its run since.
pub(super) struct Followed {
    /// The versions of the stack of which that pass knew everything: as the watch had it, as it was read, and as it was written.
    pub(super) versions: Vec<Option<String>>,
    /// The stack with what was written last.
    pub(super) stack: Terraform,
    /// The stack's runs.
    pub(super) runs: Vec<TerraformRun>,
    /// The name of the run that is at work.
    pub(super) run: String,
}

impl Followed {
    fn run(&self) -> Option<&TerraformRun> {
        let named = |run: &&TerraformRun| run.metadata.name.as_deref() == Some(&self.run);
        self.runs.iter().find(named)
    }
}

/// The runs that are followed, by their stacks.
#[derive(Default)]
pub(crate) struct Following(Mutex<HashMap<ObjectKey, Arc<Followed>>>);

impl Following {
    /// Notes a run that was started, or that a runner has claimed.
    pub(super) fn note(&self, followed: Followed) {
        let key = ObjectKey::of(&followed.stack);
        self.all().insert(key, Arc::new(followed));
    }

    /// The stack follows no run.
    pub(super) fn forget(&self, stack: &Terraform) {
        self.all().remove(&ObjectKey::of(stack));
    }

    /// What was noted of the stack, if that is all that there is in this version.
    fn of(&self, stack: &Terraform) -> Option<Arc<Followed>> {
        let (followed, version) = (
            self.all().get(&ObjectKey::of(stack)).cloned(),
            stack.resource_version(),
        );
        followed.filter(|followed| version.is_some() && followed.versions.contains(&version))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<ObjectKey, Arc<Followed>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a look at the run that is followed tells.
pub(super) enum Look {
    /// It goes on as it did, and nothing else is to be decided.
    Same,
    /// It goes on, and says something new: the last full pass with its run as it is now.
    News(Box<Followed>),
    /// Everything is to be read.
    Unknown,
}

/// Looks at the stack's run.
pub(super) async fn look(stack: &Terraform, context: &Context) -> Result<Look, DispatchError> {
    let Some(followed) = context.following.of(stack) else {
        return Ok(Look::Unknown);
    };
    let Some(known) = followed.run() else {
        return Ok(Look::Unknown);
    };
    let reference = reference(known);
    let heard = context.runs.version(&ObjectKey::of(known));
    if heard.is_some() && heard == known.resource_version() {
        let lives = follow::lives(known, context).await?;
        return Ok(if lives { Look::Same } else { Look::Unknown });
    }
    let api: Api<TerraformRun> = Api::namespaced(context.client.clone(), &reference.namespace);
    let Some(run) = api.get_opt(&reference.name).await? else {
        return Ok(Look::Unknown);
    };
    if phase(&run).is_final() || !follow::lives(&run, context).await? {
        return Ok(Look::Unknown);
    }
    let is_new = said(&run) != said(known);
    if is_new && claimed(std::slice::from_ref(&run)).next().is_none() {
        return Ok(Look::Unknown);
    }
    let name = run.name_any();
    let others = followed.runs.iter().filter(|other| other.name_any() != name);
    let news = Followed {
        versions: followed.versions.clone(),
        stack: followed.stack.clone(),
        runs: others.cloned().chain([run]).collect(),
        run: name,
    };
    if is_new {
        return Ok(Look::News(Box::new(news)));
    }
    context.following.note(news);
    Ok(Look::Same)
}

/// What the run says, but for its signs of life.
fn said(run: &TerraformRun) -> u64 {
    let status = TerraformRunStatus {
        heartbeat_at: None,
        ..run.status.clone().unwrap_or_default()
    };
    let mut hash = DefaultHasher::new();
    (run.uid(), serde_json::to_string(&status).unwrap_or_default()).hash(&mut hash);
    hash.finish()
}
