//! Prepares a directory for the CLI: fetches, verifies and unpacks the artifact, and writes the generated files.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_runtime::artifact::{self, ArtifactRef, FailedAttempt, Limits};
use sluice_tf_core::artifact_path;
use sluice_tf_core::bundle::{Artifact, Bundle};
use sluice_tf_core::cli::text::{TEXT_LIMIT, truncate};
use sluice_tf_core::template::{self, Delimiters, Functions, TemplateError};
use sluice_tf_core::workdir::Home;
use tokio_util::sync::CancellationToken;

use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use crate::run::status::StatusWriter;
use crate::run::workdir::{WorkDirectory, directory_error, run_environment, write_private};

/// The file that overrides the module's backend. The name is upstream's.
pub(crate) const BACKEND_FILE: &str = "backend_override.tf";
/// The file of generated variables. The name is upstream's.
pub(crate) const VARIABLES_FILE: &str = "generated.auto.tfvars.json";
/// The template of the root module. The name is upstream's.
const TEMPLATE_FILE: &str = "main.tf.tpl";
const MAIN_FILE: &str = "main.tf";
/// The fetched artifact in the scratch directory.
pub(crate) const ARCHIVE: &str = "artifact.tar.gz";

/// Fetches the artifact, verifies its digest and unpacks it into the emptied working directory. While the download fails, the
/// message of the run says why.
pub(crate) async fn fetch(
    context: &Context,
    artifact: &Artifact,
    directory: &WorkDirectory,
    stop: &CancellationToken,
    status: &StatusWriter,
) -> Result<(), RunError> {
    let file = directory.scratch.path().join(ARCHIVE);
    let artifact_ref = ArtifactRef {
        url: &artifact.url,
        digest: &artifact.digest,
        size: artifact.size,
    };
    let report = |failed: &FailedAttempt| {
        let message = truncate(&format!("waiting for the artifact: {failed}"), TEXT_LIMIT);
        status.write_soon(|status| status.message = message);
    };
    let fetcher = &context.fetcher;
    fetcher.fetch_with(artifact_ref, &file, stop, report).await?;
    status.buffer(|status| status.message.clear());
    let (root, stop) = (directory.root.clone(), stop.clone());
    let unpacked = tokio::task::spawn_blocking(move || {
        let archive = File::open(&file).map_err(|source| directory_error("read the artifact", source))?;
        artifact::unpack(archive, &root, &Limits::default(), &stop).map_err(RunError::from)
    });
    unpacked
        .await
        .map_err(|error| directory_error("unpack the artifact", std::io::Error::other(error)))??;
    Ok(())
}

/// The module directory of a path, which has to exist. The path cannot leave the root, and the unpacked tree contains no links,
/// so it is resolved lexically.
pub(crate) fn module_directory(root: &Path, path: &str) -> Result<PathBuf, RunError> {
    let relative = artifact_path::normalize(path);
    let module = if relative.as_os_str().is_empty() {
        root.to_owned()
    } else {
        root.join(relative)
    };
    Some(module)
        .filter(|module| module.is_dir())
        .ok_or_else(|| RunError::Path {
            path: path.to_owned(),
        })
}

/// The arguments with the absolute paths of the variable files. Each has to be a file of the artifact.
pub(crate) fn variable_file_arguments(root: &Path, bundle: &Bundle) -> Result<Vec<String>, RunError> {
    let argument = |path: &String| {
        let file = root.join(artifact_path::normalize(path));
        if file.is_dir() {
            return Err(RunError::VariableDirectory { path: path.clone() });
        }
        let found = Some(file).filter(|file| file.is_file());
        let file = found.ok_or_else(|| RunError::VariableFile { path: path.clone() })?;
        Ok(format!("-var-file={}", file.display()))
    };
    bundle.variable_files.iter().map(argument).collect()
}

/// Writes the generated files into the module directory, in upstream's order: a mapped file may replace the generated
/// backend, but not the variables. A rendered `main.tf` comes last.
pub(crate) fn write_generated(module: &Path, home: &Home, bundle: &Bundle) -> Result<(), RunError> {
    if let Some(backend) = &bundle.backend {
        write_private(&module.join(BACKEND_FILE), backend.as_bytes())?;
    }
    run_environment::write(module, home, &bundle.run_environment)?;
    write_private(&module.join(VARIABLES_FILE), bundle.variables.as_bytes())?;
    render_main(module, bundle)
}

/// Renders `main.tf.tpl`, if the module has one, to `main.tf`, with the generated variables; `Values` is an alias of `values`.
fn render_main(module: &Path, bundle: &Bundle) -> Result<(), RunError> {
    let path = module.join(TEMPLATE_FILE);
    if !path.is_file() {
        return Ok(());
    }
    let text = read_template(&path)?;
    let rendered = template::render(&text, Delimiters::Curly, Functions::Text, &template_data(bundle))?;
    write_private(&module.join(MAIN_FILE), rendered.as_bytes())
}

/// Reads the template, at most one byte more than the limit: rendering rejects what is longer.
fn read_template(path: &Path) -> Result<String, RunError> {
    let limit = u64::try_from(template::TEXT_LIMIT).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes));
    read.map_err(|source| directory_error("read main.tf.tpl", source))?;
    String::from_utf8(bytes)
        .map_err(|_| RunError::from(TemplateError::Execution("it is not UTF-8 text".to_owned())))
}

fn template_data(bundle: &Bundle) -> Value {
    let mut data = serde_json::from_str(&bundle.variables).unwrap_or(Value::Null);
    if let Value::Object(members) = &mut data
        && let Some(values) = members.get("values").cloned()
    {
        members.insert("Values".to_owned(), values);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_in_the_artifact() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("infra/net")).unwrap();
        let module = |path| module_directory(dir.path(), path);
        assert_eq!(module("").unwrap(), dir.path());
        for path in [
            "./infra/net",
            "/infra/net",
            "../infra/net",
            "x/../infra/net",
            "infra/../../infra/net/",
        ] {
            assert_eq!(module(path).unwrap(), dir.path().join("infra/net"), "{path}");
        }
        assert_eq!(module("infra/net/../../..").unwrap(), dir.path());
        for path in ["../x", "absent", "infra/absent"] {
            assert!(matches!(module(path), Err(RunError::Path { .. })), "{path}");
        }
    }
}
