//! Whether the modules that `init` downloaded may read the entire artifact. The controller cannot determine it, because they
//! are not in the artifact. If they may read outside of the stack's directory, every commit changes the inputs of the stack.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use sluice_api::run::ModuleReads;
use sluice_tf_core::artifact_path::resolve_in;
use sluice_tf_core::scan::{
    Findings, PathFlow, PathOrigin, PathReference, is_configuration, reads_files, scan,
};

use crate::run::cli::Cli;
use crate::run::lifecycle::error::RunError;
use crate::run::workdir::directory_error;

/// Maximum number of modules that are scanned.
const MAX_MODULES: usize = 1000;
/// Maximum number of files of a directory of templates that are scanned.
const MAX_TEMPLATES: usize = 500;
/// Largest file that is scanned.
const FILE_LIMIT: u64 = 1 << 20;
/// Maximum number of characters of a reason.
const REASON_LIMIT: usize = 500;

/// The CLI's manifest of the modules of a stack.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Manifest {
    #[serde(default)]
    modules: Vec<Module>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Module {
    key: String,
    dir: PathBuf,
}

/// Records in the status what the downloaded modules may read.
pub(crate) async fn record(cli: &Cli<'_>) -> Result<(), RunError> {
    let module = cli.module.clone();
    let found = tokio::task::spawn_blocking(move || reads(&module));
    let found = found
        .await
        .map_err(|error| directory_error("read the modules", std::io::Error::other(error)))?;
    cli.status.buffer(|status| status.module_reads = Some(found));
    Ok(())
}

fn reads(module: &Path) -> ModuleReads {
    let why = reason_for_whole_artifact(module)
        .unwrap_or_else(|error| Some(format!("the modules cannot be read: {error}")));
    ModuleReads {
        whole_artifact: why.is_some(),
        reason: why
            .map(|why| why.chars().take(REASON_LIMIT).collect())
            .unwrap_or_default(),
    }
}

/// The reason why a downloaded module may read outside of the stack's directory, if one may.
fn reason_for_whole_artifact(module: &Path) -> std::io::Result<Option<String>> {
    let list = match std::fs::read(module.join(".terraform/modules/modules.json")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        list => list?,
    };
    let manifest: Manifest = serde_json::from_slice(&list)?;
    let is_downloaded = |called: &Module| called.dir.starts_with(".terraform/modules");
    if !manifest.modules.iter().any(is_downloaded) {
        return Ok(None);
    }
    if manifest.modules.len() > MAX_MODULES {
        return Ok(Some(format!("more than {MAX_MODULES} modules")));
    }
    // A path may flow through variables from the stack's own modules to a downloaded one.
    let mut flow = PathFlow::default();
    for called in &manifest.modules {
        for file in configuration(&module.join(&called.dir))? {
            let findings = findings(&file)?;
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let origin = format!("module {}: {name}", called.key);
            if is_downloaded(called)
                && let Some(why) = reason_in_file(module, called, &findings)?
            {
                return Ok(Some(format!("{origin}: {why}")));
            }
            flow.add(findings.flow, &origin);
        }
    }
    Ok(flow.find_split_path())
}

/// The reason why a path in a file may lead out of the stack's directory.
fn reason_in_file(module: &Path, called: &Module, findings: &Findings) -> std::io::Result<Option<String>> {
    if findings.wide_reason.is_some() {
        return Ok(findings.wide_reason.clone());
    }
    let computed = |named: &PathReference| named.computed == Some(PathOrigin::Variable);
    if findings.has_computed_pattern || findings.references.iter().any(computed) {
        return Ok(Some(
            "a path contains variables that another module sets".to_owned(),
        ));
    }
    for named in &findings.references {
        let base = if named.of_module {
            called.dir.as_path()
        } else {
            Path::new("")
        };
        let Some(path) = resolve_in(base, &named.path) else {
            return Ok(Some("a path leads out of the stack's directory".to_owned()));
        };
        if named.is_template && !reads_no_files(&module.join(path))? {
            return Ok(Some("a template may read files itself".to_owned()));
        }
    }
    Ok(None)
}

/// Whether a template, or each template of a directory, contains no function that reads files. True for an absent one.
fn reads_no_files(path: &Path) -> std::io::Result<bool> {
    if !path.is_dir() {
        return Ok(!path.exists() || size(path)? <= FILE_LIMIT && !reads_files(&std::fs::read(path)?));
    }
    for (number, entry) in std::fs::read_dir(path)?.enumerate() {
        let entry = entry?.path();
        if number >= MAX_TEMPLATES || entry.is_dir() || !reads_no_files(&entry)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The configuration files of a directory, in order.
fn configuration(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if is_configuration(&path) && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn findings(file: &Path) -> std::io::Result<Findings> {
    if size(file)? > FILE_LIMIT {
        return Ok(Findings::wide("is too large to be scanned"));
    }
    let json = file.extension().is_some_and(|extension| extension == "json");
    Ok(scan(&std::fs::read(file)?, json))
}

fn size(file: &Path) -> std::io::Result<u64> {
    std::fs::metadata(file).map(|metadata| metadata.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reason that is recorded for a stack with this downloaded module.
    fn reason(own: &str, downloaded: &[(&str, &str)]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let list = r#"{"Modules":[{"Key":"","Source":"","Dir":"."},
            {"Key":"far","Source":"git::http://x/y.git","Dir":".terraform/modules/far/sub"}]}"#;
        let far = dir.path().join(".terraform/modules/far/sub");
        std::fs::create_dir_all(far.join("tpl")).unwrap();
        std::fs::write(dir.path().join(".terraform/modules/modules.json"), list).unwrap();
        std::fs::write(dir.path().join("main.tf"), own).unwrap();
        for (name, text) in downloaded {
            std::fs::write(far.join(name), text).unwrap();
        }
        let found = reads(dir.path());
        assert_eq!(found.whole_artifact, !found.reason.is_empty());
        found.reason
    }

    #[test]
    fn reads_of_a_downloaded_module_outside_of_the_stack_are_recorded() {
        for text in [
            "locals { a = file(\"${path.root}/../common.yaml\") }",
            "locals { a = file(\"../common.yaml\") }",
            "locals { a = file(\"${path.module}/../../../../../common.yaml\") }",
            "locals { a = file(var.path) }",
            "locals { a = templatefile(\"${path.module}/tpl/${var.name}\", {}) }",
            "locals { a = fileset(path.root, var.pattern) }",
            "locals { a = \"${path.cwd}-x\" }",
            "locals { a = templatefile(\"${path.module}/x.tpl\", {}) }",
            "locals { a = replace(var.dir, \"a\", \"b\") }",
        ] {
            let own = "module \"far\" {\n  source = \"git::http://x/y.git\"\n  dir = \"${path.module}/x\"\n}";
            let template = ("x.tpl", "${file(x)}");
            let reason = reason(own, &[("main.tf", text), template]);
            assert!(reason.starts_with("module far: main.tf: "), "{text}: {reason:?}");
        }
    }

    #[test]
    fn reads_within_the_module_or_the_stack_are_not_recorded() {
        for text in [
            "locals { a = file(\"${path.module}/x.txt\") }",
            "locals { a = file(\"${path.module}/../y.txt\") }",
            "locals { a = file(\"${path.root}/own.txt\") }",
            "locals { a = templatefile(\"${path.module}/x.tpl\", {}) }",
            "module \"m\" {\n  source = \"../other\"\n}",
        ] {
            assert_eq!(reason("", &[("main.tf", text), ("x.tpl", "${x}")]), "", "{text}");
        }
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(reads(empty.path()), ModuleReads::default());
    }
}
