//! The copy of the state before an apply, see [`sluice_tf_core::state_copy`]. Without it the apply does not begin, unless copies
//! are switched off or the state is too large.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{ListParams, PartialObjectMeta, Patch, PatchParams};
use serde_json::json;
use sluice_tf_core::state_copy::{self, CopyOrigin, STATE_LIMIT, StateCopyError, outdated, stored_copies};
use sluice_tf_core::state_summary::StateSummary;
use sluice_tf_core::workdir::{create_private_directory, read_limited};

use crate::run::lifecycle::api_retry::{CLEANUP_TIMEOUT, Creation, RetryRule, remove, retry};
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use crate::run::lifecycle::session::RunSession;
use crate::run::state;
use crate::run::workdir::{directory_error, write_private};

/// The variable with a configuration of OpenTofu's encryption.
const ENCRYPTION_VARIABLE: &str = "TF_ENCRYPTION";
/// Words of such a configuration, of which each method that encrypts needs one: the block of a key provider, or an external command.
const ENCRYPTION_MARKS: [&str; 2] = ["key_provider", "encrypt_command"];
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
        let created = context.create_if_absent(secret, RetryRule::Transient).await;
        let created = created.map_err(|source| RunError::StoreStateCopy { source })?;
        if created == Creation::Existed {
            update_origin(context, secret).await;
        }
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

/// Records this run as the origin of a copy that an earlier run stored, so that the copy does not count as old. A failure is only logged:
/// the copy itself is valid.
async fn update_origin(context: &Context, secret: &Secret) {
    let name = secret.name_any();
    let annotations = state_copy::origin_annotations(&secret.metadata);
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    let (api, params) = (context.api::<Secret>(), PatchParams::default());
    let patched = retry(CLEANUP_TIMEOUT, || api.patch_metadata(&name, &params, &patch)).await;
    if let Err(error) = patched {
        tracing::warn!(
            name,
            error = &error as &dyn std::error::Error,
            "the time of a copy of the state cannot be updated"
        );
    }
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

/// Whether OpenTofu may encrypt the state: `state pull` returns it decrypted. See [`ENCRYPTION_MARKS`].
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
            let text = String::from_utf8_lossy(&text);
            if ENCRYPTION_MARKS.iter().any(|mark| text.contains(mark)) {
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

/// Unpacks the copies of the stack and workspace for a break-glass session, one file `<serial>-<id>.tfstate` each, or
/// `<serial>-<id>.unsealed.tfstate` if copies are sealed and this one is not. Returns their directory; `None` if there is no copy. A
/// copy that cannot be opened is only logged.
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
            Ok(opened) => {
                // A copy from the time before the keys, or a forged one.
                let is_unproved = !keys.is_empty() && !opened.is_sealed;
                let file = file_name(&copy.serial, &copy.id, is_unproved);
                write_private(&directory.join(file), &opened.state)?;
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a copy of the state cannot be unpacked"
            ),
        }
    }
    Ok(Some(directory))
}

/// The file of a copy. The labels of a Secret may have any text.
fn file_name(serial: &str, id: &str, is_unproved: bool) -> String {
    let serial: u64 = serial.parse().unwrap_or_default();
    let id: String = id.chars().filter(char::is_ascii_alphanumeric).collect();
    let mark = if is_unproved { ".unsealed" } else { "" };
    format!("{serial}-{id}{mark}.tfstate")
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
        for (file, block) in [
            (
                "encryption.tofu",
                "terraform {\n  encryption {\n    key_provider \"pbkdf2\" \"a\" {}\n  }\n}\n",
            ),
            // The method `external` needs no key provider.
            (
                "encryption.tf",
                "terraform {\n  encryption {\n    method \"external\" \"a\" {\n      encrypt_command = [\"/bin/e\"]\n      \
                 decrypt_command = [\"/bin/d\"]\n    }\n  }\n}\n",
            ),
            (
                "encryption.tf.json",
                r#"{"terraform":{"encryption":{"method":{"external":{"a":{"encrypt_command":["/bin/e"]}}}}}}"#,
            ),
        ] {
            let file = dir.path().join(file);
            std::fs::write(&file, block).unwrap();
            assert!(encrypts(&none), "{block}");
            std::fs::remove_file(file).unwrap();
        }
        assert!(!encrypts(&none));
    }

    #[test]
    fn the_file_of_a_copy_stays_in_its_directory() {
        assert_eq!(file_name("12", "ab12cd34ef", false), "12-ab12cd34ef.tfstate");
        assert_eq!(
            file_name("12", "ab12cd34ef", true),
            "12-ab12cd34ef.unsealed.tfstate"
        );
        assert_eq!(file_name("../12", "../../etc", false), "0-etc.tfstate");
    }
}
