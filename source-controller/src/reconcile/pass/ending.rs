//! How a pass ends: what is written, told, and when it is called again; and the end of the object itself.

use std::sync::Arc;

use kube::ResourceExt as _;
use sluice_api::annotation::for_events;
use sluice_api::source::{FINALIZER, GitRepository, GitRepositoryStatus};
use sluice_runtime::event::Event;
use sluice_runtime::failure::{Class, Failure as _};
use sluice_runtime::finalizer;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::status::{self, Applied, WriteError};
use sluice_runtime::watch::Next;

use super::super::observe::Observed;
use super::super::report::{self, Ending};
use super::super::{Context, UnreportedError, cleanup, conditions, told};
use super::Pass;
use super::phases::STORAGE_LIMIT;
use crate::storage::ObjectDirectory;

impl Pass<'_> {
    pub(super) async fn announce(&mut self, observed: &Observed, text: &str) -> Result<(), WriteError> {
        let (news, now) = (&self.news, self.context.clock.now());
        let written = self
            .write(|object| report::in_progress(object, observed, text, news, now))
            .await?;
        if let Some(latest) = written.object() {
            self.latest = latest;
        }
        Ok(())
    }

    /// Reports, and says when to look again.
    pub(super) async fn finish(&self, observed: &Observed, ending: Ending) -> Result<Next, UnreportedError> {
        if matches!(ending, Ending::Failed(_)) && self.context.stop.is_cancelled() {
            // What was interrupted by the program's end is no failure of the object.
            return Ok(Next::OnChange);
        }
        let now = self.context.clock.now();
        let Some(after) = self
            .write(|object| report::settled(object, observed, &self.news, &ending, now))
            .await?
            .object()
        else {
            return Ok(Next::OnChange);
        };
        for event in told::events(&self.object, &ending, &after.status.unwrap_or_default()) {
            self.tell(event);
        }
        let interval = || {
            self.context
                .schedule
                .after(self.context.times.interval(&self.object.spec))
        };
        Ok(match &ending {
            Ending::Stored(_) | Ending::UpToDate { .. } => Next::at(interval()),
            Ending::Suspended => Next::OnChange,
            Ending::Failed(error) => {
                let (class, reason, error) = (error.class(), error.reason(), error as &dyn std::error::Error);
                match class {
                    Class::Transient => {
                        tracing::warn!(error, reason, "reconciliation failed");
                        Next::Backoff
                    }
                    Class::Waiting(after) => {
                        tracing::info!(error, reason, duration = ?after, "reconciliation waiting");
                        Next::After(after)
                    }
                    Class::Terminal => {
                        tracing::error!(error, reason, "reconciliation stalled");
                        Next::OnChange
                    }
                }
            }
        })
    }

    /// Writes a status that is computed from the object as this pass saw it and the status that stands there now.
    pub(super) async fn write(
        &self,
        compute: impl Fn(&GitRepository) -> GitRepositoryStatus,
    ) -> Result<Applied<GitRepository>, WriteError> {
        let written = status::apply(&self.api, &self.latest, &conditions::owned(), |fresh| {
            compute(&GitRepository {
                status: fresh.status.clone(),
                ..self.object.clone()
            })
        })
        .await;
        self.wrote(&written);
        written
    }

    /// Remembers what came of a write: the next pass must not build on an older form of the object.
    pub(super) fn wrote(&self, written: &Result<Applied<GitRepository>, WriteError>) {
        self.context.memory.wrote(&ObjectKey::of(&self.object), written);
    }

    pub(super) async fn delete(&self) -> Result<Next, UnreportedError> {
        if !finalizer::is_held(&self.object, FINALIZER) {
            return Ok(Next::OnChange);
        }
        // Somebody else's finalizer may hold the object for long: it must not name a file that is gone.
        let Some(latest) = self
            .write(|object| report::released(object, self.context.clock.now()))
            .await?
            .object()
        else {
            return Ok(Next::OnChange);
        };
        if let Ok(directory) = ObjectDirectory::git_repository(&self.namespace, &self.object.name_any()) {
            let Context {
                storage, looks, stop, ..
            } = self.context;
            let storage = Arc::clone(storage);
            let removed = looks
                .run(STORAGE_LIMIT, stop, move |_| {
                    cleanup::cleanup(&*storage, &directory)
                })
                .await;
            match removed {
                Ok(Ok(event)) => event.into_iter().for_each(|event| self.tell(event)),
                Ok(Err(error)) => return Ok(self.stuck(&error)),
                Err(error) => return Ok(self.stuck(&error)),
            }
        }
        let released = finalizer::release(&self.api, &latest, FINALIZER).await;
        self.wrote(&released);
        released?;
        Ok(Next::OnChange)
    }

    /// The object keeps its finalizer, and is tried again.
    fn stuck(&self, error: &dyn std::error::Error) -> Next {
        if self.context.stop.is_cancelled() {
            // The next start goes on with it.
            return Next::OnChange;
        }
        let text = format!("garbage collection for deleted resource failed: {error}");
        tracing::error!(error = text, "artifacts of a deleted object stay for now");
        self.tell(Event::warning("GarbageCollectionFailed", text));
        Next::Backoff
    }

    /// Records an event, with the object's own annotations for events.
    pub(super) fn tell(&self, event: Event) {
        let own = for_events(self.object.annotations());
        let event = own.fold(event, |event, (key, value)| event.with(key, value));
        self.context.recorder.record(&self.object, event);
    }
}
