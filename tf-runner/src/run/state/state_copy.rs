//! The copy of the state before an apply, see [`sluice_tf_core::state_copy`]. Without it the apply does not begin, unless copies
//! are switched off or the state is too large.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{ListParams, PartialObjectMeta};
use sluice_tf_core::state_copy::{self, CopyOrigin, STATE_LIMIT, StateCopyError, outdated, stored_copies};
use sluice_tf_core::state_summary::StateSummary;
use sluice_tf_core::workdir::{create_private_directory, read_limited};

use crate::run::lifecycle::api_retry::{CLEANUP_TIMEOUT, remove, retry};
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use crate::run::lifecycle::session::RunSession;
use crate::run::state;
use crate::run::workdir::{directory_error, write_private};

/// The variable with a configuration of OpenTofu's encryption.
const ENCRYPTION_VARIABLE: &str = "TF_ENCRYPTION";
/// The block of a key provider in such a configuration.
const KEY_PROVIDER: &str = "key_provider";
/// Endings of the files of a module's configuration.
const CONFIGURATION_ENDINGS: [&str; 4] = [".tf", ".tofu", ".tf.json", ".tofu.json"];
/// Size limit of such a file.
const CONFIGURATION_LIMIT: u64 = 64 * 1024 * 1024;
/// The directory of unpacked copies in a break-glass session, below the scratch directory.
const UNPACKED: &str = "state-copies";

/// Stores a copy of the state that the apply changes, and deletes older copies. A stack without a state, or with an empty one, has
/// nothing to copy.
pub(crate) async fn store(session: &RunSession<'_>) -> Result<(), RunError> {
    let RunSession {
        context, bundle, cli, ..
    } = session;
    if bundle.state_copies.count == 0 {
        return Ok(());
    }
    let file = state::pull_once(cli).await?;
    let secrets = match encode(session, &file).await {
        Ok(Some(secrets)) => secrets,
        Ok(None) => return Ok(()),
        Err(RunError::StateCopy(error)) if error.permits_apply() => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the state is not copied before the apply"
            );
            cli.status
                .buffer(|status| status.state_copy_error = error.to_string());
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for secret in &secrets {
        let created = context.create_if_absent(secret).await;
        created.map_err(|source| RunError::StoreStateCopy { source })?;
    }
    let Some(first) = secrets.first() else {
        return Ok(());
    };
    let name = first.name_any();
    let name = name.rsplit_once('-').map_or(name.as_str(), |(name, _)| name);
    // Written together with the start of the apply.
    cli.status
        .buffer(|status| name.clone_into(&mut status.state_copy));
    delete_outdated(session, state_copy::id_of(&first.metadata)).await;
    Ok(())
}

/// Encodes the state in a file; `None` if there is nothing to copy.
async fn encode(session: &RunSession<'_>, file: &Path) -> Result<Option<Vec<Secret>>, RunError> {
    let RunSession { run, bundle, cli, .. } = session;
    let is_sealed = !bundle.state_copies.keys.is_empty();
    let may_copy = is_sealed || !encrypts_state(&cli.module, &cli.environment)?;
    let (file, stack, workspace) = (file.to_owned(), bundle.stack.clone(), bundle.workspace.clone());
    let (run, revision) = (run.name_any(), run.spec.source.revision.clone());
    let (key, limit) = (
        bundle.state_copies.keys.first().cloned(),
        bundle.state_copies.limit,
    );
    let work = tokio::task::spawn_blocking(move || {
        let size = std::fs::metadata(&file).map_err(read_error)?.len();
        if size > STATE_LIMIT {
            return Err(StateCopyError::StateTooLarge { size }.into());
        }
        let bytes = read_limited(&file, STATE_LIMIT).map_err(read_error)?;
        let summary = StateSummary::parse(&bytes)?;
        let Some(summary) = summary.filter(|summary| !summary.is_empty) else {
            return Ok(None);
        };
        if !may_copy {
            return Err(StateCopyError::Unencrypted.into());
        }
        let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
        let origin = CopyOrigin {
            stack: &stack,
            workspace: &workspace,
            run: &run,
            revision: &revision,
            time: &time,
        };
        let secrets = state_copy::encode(&bytes, &summary, origin, key.as_ref(), limit)?;
        Ok(Some(secrets))
    });
    work.await
        .map_err(|error| read_error(std::io::Error::other(error)))?
}

/// Whether OpenTofu may encrypt the state: `state pull` returns it decrypted. Every method of encryption refers to a key provider.
fn encrypts_state(module: &Path, environment: &BTreeMap<String, String>) -> Result<bool, RunError> {
    if environment
        .get(ENCRYPTION_VARIABLE)
        .is_some_and(|text| !text.is_empty())
    {
        return Ok(true);
    }
    for entry in std::fs::read_dir(module).map_err(read_error)? {
        let path = entry.map_err(read_error)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_configuration = CONFIGURATION_ENDINGS.iter().any(|ending| name.ends_with(ending));
        if is_configuration && path.is_file() {
            let text = read_limited(&path, CONFIGURATION_LIMIT).map_err(read_error)?;
            if String::from_utf8_lossy(&text).contains(KEY_PROVIDER) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn read_error(source: std::io::Error) -> RunError {
    directory_error("copy the state", source)
}

/// Deletes the copies that are not among the newest ones. A failure is only logged: the next apply tries again.
async fn delete_outdated(session: &RunSession<'_>, newest: &str) {
    let RunSession { context, bundle, .. } = session;
    let listed = match list(
        context,
        &state_copy::selector(&bundle.stack.name, &bundle.workspace),
    )
    .await
    {
        Ok(listed) => listed,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "old copies of the state cannot be deleted"
            );
            return;
        }
    };
    let copies = stored_copies(listed.iter().map(|secret| &secret.metadata));
    let count = usize::from(bundle.state_copies.count);
    let api = context.api::<Secret>();
    for name in outdated(&copies, newest, count)
        .into_iter()
        .flat_map(|copy| &copy.names)
    {
        if let Err(error) = remove(&api, name).await {
            tracing::warn!(
                name,
                error = &error as &dyn std::error::Error,
                "an old copy of the state cannot be deleted"
            );
        }
    }
}

async fn list(context: &Context, selector: &str) -> Result<Vec<PartialObjectMeta<Secret>>, kube::Error> {
    let params = ListParams::default().labels(selector);
    let api = context.api::<Secret>();
    let list = retry(CLEANUP_TIMEOUT, || api.list_metadata(&params)).await?;
    Ok(list.items)
}

/// Unpacks the copies of the stack and workspace for a break-glass session, one file `<serial>-<id>.tfstate` each. Returns their
/// directory; `None` if there is no copy. A copy that cannot be opened is only logged.
pub(crate) async fn unpack_all(session: &RunSession<'_>) -> Result<Option<PathBuf>, RunError> {
    let RunSession {
        context, bundle, cli, ..
    } = session;
    let selector = state_copy::selector(&bundle.stack.name, &bundle.workspace);
    let listed = list(context, &selector).await;
    let listed = listed.map_err(RunError::api("list the copies of the state"))?;
    let copies = stored_copies(listed.iter().map(|secret| &secret.metadata));
    if copies.is_empty() {
        return Ok(None);
    }
    let directory = cli.directory.scratch.path().join(UNPACKED);
    create_private_directory(&directory)?;
    let api = context.api::<Secret>();
    for copy in copies {
        let mut secrets = Vec::new();
        for name in &copy.names {
            let secret = context.retry(|| api.get_opt(name)).await;
            secrets.extend(secret.map_err(RunError::api("read a copy of the state"))?);
        }
        let keys = &bundle.state_copies.keys;
        match state_copy::decode(&secrets, &bundle.stack, &bundle.workspace, keys) {
            Ok(state) => write_private(&directory.join(file_name(&copy.serial, &copy.id)), &state)?,
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a copy of the state cannot be unpacked"
            ),
        }
    }
    Ok(Some(directory))
}

/// The file of a copy. The labels of a Secret may have any text.
fn file_name(serial: &str, id: &str) -> String {
    let serial: u64 = serial.parse().unwrap_or_default();
    let id: String = id.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("{serial}-{id}.tfstate")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_state_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let none = BTreeMap::new();
        let encrypts = |environment: &_| encrypts_state(dir.path(), environment).unwrap();
        std::fs::write(
            dir.path().join("main.tf"),
            "resource \"a\" \"b\" { encryption {} }",
        )
        .unwrap();
        std::fs::write(dir.path().join("README.md"), "key_provider").unwrap();
        assert!(!encrypts(&none));
        let variable = |text: &str| BTreeMap::from([(ENCRYPTION_VARIABLE.to_owned(), text.to_owned())]);
        assert!(encrypts(&variable("key_provider \"pbkdf2\" \"a\" {}")) && !encrypts(&variable("")));
        let block = "terraform {\n  encryption {\n    key_provider \"pbkdf2\" \"a\" {}\n  }\n}\n";
        std::fs::write(dir.path().join("encryption.tofu"), block).unwrap();
        assert!(encrypts(&none));
    }

    #[test]
    fn the_file_of_a_copy_stays_in_its_directory() {
        assert_eq!(file_name("12", "ab12cd34ef"), "12-ab12cd34ef.tfstate");
        assert_eq!(file_name("../12", "../../etc"), "0-etc.tfstate");
    }
}
