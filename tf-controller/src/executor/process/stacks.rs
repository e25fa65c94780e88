//! The working directories of stacks that are gone.

use super::{ExecutorError, IsGone, LOOK, RunRef};
use sluice_runtime::schedule::ObjectKey;
use sluice_tf_core::workdir::{Removal as DirectoryRemoval, list as directories, remove as remove_directory};
use std::{
    io,
    path::{Path, PathBuf},
};
use tokio::sync::mpsc::UnboundedSender;

/// The stacks that have a directory.
pub(super) fn list(work: &Path) -> io::Result<Vec<ObjectKey>> {
    let key = |(namespace, name)| ObjectKey { namespace, name };
    Ok(directories(work)?.into_iter().map(key).collect())
}

/// Removes the directory of a stack, once nothing works in it: what was started before the stack went may still end. Gives up
/// when the stack is there again, and when the controller stops.
pub(super) async fn remove(work: PathBuf, stack: ObjectKey, is_gone: IsGone, stops: UnboundedSender<RunRef>) {
    while !stops.is_closed() {
        let (at, of, gone) = (work.clone(), stack.clone(), IsGone::clone(&is_gone));
        let removing =
            tokio::task::spawn_blocking(move || remove_directory(&at, (&of.namespace, &of.name), || gone()));
        match removing
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
        {
            Ok(DirectoryRemoval::Busy) if is_gone() => tokio::time::sleep(LOOK).await,
            Ok(DirectoryRemoval::HoldsState(state)) => {
                tracing::warn!(
                    %stack,
                    state = %state.display(),
                    "the stack is gone, and its directory holds a state that was never written: push it or remove it by hand"
                );
                return;
            }
            Ok(_) => return,
            Err(source) => {
                let path = work.display().to_string();
                let error = ExecutorError::Directory { path, source };
                tracing::warn!(
                    %stack,
                    error = &error as &dyn std::error::Error,
                    "files of a stack that is gone stay for now"
                );
                return;
            }
        }
    }
}
