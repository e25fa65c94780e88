//! Stacks whose run is at work. A runner says every few seconds that it lives, and each word of it calls its stack: such a pass reads
//! that run and nothing else, as long as neither the run nor the stack says anything new.

use super::{
    Context,
    dispatch::{DispatchError, reference},
    follow,
};
use crate::executor::RunRef;
use kube::{Api, ResourceExt};
use sluice_api::{
    run::{TerraformRun, TerraformRunStatus},
    terraform::Terraform,
};
use sluice_runtime::schedule::ObjectKey;
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What a full pass saw last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Followed {
    /// The version of the stack with what that pass wrote.
    stack: Option<String>,
    run: RunRef,
    /// What the run said, as a digest, but for its signs of life.
    said: u64,
}

/// The runs that are followed, by their stacks.
#[derive(Default)]
pub(crate) struct Following(Mutex<HashMap<ObjectKey, Followed>>);

impl Following {
    /// Notes what a full pass saw of a run that a runner has claimed; `stack` is what the pass wrote.
    pub(super) fn note(&self, stack: &Terraform, run: &TerraformRun) {
        let followed = Followed {
            stack: stack.resource_version(),
            run: reference(run),
            said: said(run),
        };
        self.all().insert(ObjectKey::of(stack), followed);
    }

    /// The stack follows no run.
    pub(super) fn forget(&self, stack: &Terraform) {
        self.all().remove(&ObjectKey::of(stack));
    }

    /// What was noted of the stack in just this version.
    fn of(&self, stack: &Terraform) -> Option<Followed> {
        let followed = self.all().get(&ObjectKey::of(stack)).cloned();
        followed.filter(|followed| followed.stack.is_some() && followed.stack == stack.resource_version())
    }

    fn all(&self) -> MutexGuard<'_, HashMap<ObjectKey, Followed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the stack's run goes on as it did when it was last looked at, and nothing else is to be decided.
pub(super) async fn goes_on(stack: &Terraform, context: &Context) -> Result<bool, DispatchError> {
    let Some(followed) = context.following.of(stack) else {
        return Ok(false);
    };
    let api: Api<TerraformRun> = Api::namespaced(context.client.clone(), &followed.run.namespace);
    let Some(run) = api.get_opt(&followed.run.name).await? else {
        return Ok(false);
    };
    Ok(said(&run) == followed.said && follow::lives(&run, context).await?)
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
