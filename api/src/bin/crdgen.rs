//! Generates one file per CustomResourceDefinition from the types; `--check` only compares.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use clap::Parser;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// Writes the CustomResourceDefinitions of Sluice.
#[derive(Parser)]
struct Args {
    /// Directory of the definitions that every installation has.
    #[arg(long, default_value = "config/crd/bases")]
    dir: PathBuf,
    /// Directory of the definition of the optional kind `Repo`.
    #[arg(long, default_value = "config/components/repo-controller/crd")]
    repo_dir: PathBuf,
    /// Write nothing; exit with 1 when a file differs from the types.
    #[arg(long)]
    check: bool,
}

/// The files could not be written or compared.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{path}: {source}", path = .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("definition {name}: {source}")]
    Yaml {
        name: String,
        source: serde_yaml_ng::Error,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(differences) if differences.is_empty() => ExitCode::SUCCESS,
        Ok(differences) => {
            for difference in differences {
                eprintln!("{difference}");
            }
            eprintln!("run `make manifests` and commit the result");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("crdgen: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes or compares all files; returns one line per difference.
fn run(args: &Args) -> Result<Vec<String>, Error> {
    let mut differences = Vec::new();
    let required = sluice_api::crds().into_iter().map(|crd| (&args.dir, crd));
    let optional = sluice_api::optional_crds()
        .into_iter()
        .map(|crd| (&args.repo_dir, crd));
    for (dir, crd) in required.chain(optional) {
        let path = dir.join(format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural));
        let text = yaml(&crd)?;
        if args.check {
            differences.extend(difference(&path, &text));
        } else {
            write(&path, &text)?;
        }
    }
    Ok(differences)
}

/// Returns the content of a definition's file.
fn yaml(crd: &CustomResourceDefinition) -> Result<String, Error> {
    let name = || crd.metadata.name.clone().unwrap_or_default();
    let body = serde_yaml_ng::to_string(crd).map_err(|source| Error::Yaml { name: name(), source })?;
    let body = body.lines().map(quoted).collect::<Vec<_>>().join("\n");
    Ok(format!(
        "# Generated from the types in api/ by crdgen; do not edit.\n---\n{body}\n"
    ))
}

/// Quotes key and value of a YAML line where YAML 1.1, which kubectl reads, would parse a boolean.
fn quoted(line: &str) -> String {
    let boolean = |word: &str| {
        ["y", "n", "yes", "no", "on", "off"]
            .iter()
            .any(|other| word.eq_ignore_ascii_case(other))
    };
    let key = line.len() - line.trim_start_matches([' ', '-']).len();
    if let Some((word, rest)) = line[key..].split_once(':')
        && boolean(word)
    {
        return format!("{}'{word}':{rest}", &line[..key]);
    }
    let start = line
        .rfind("- ")
        .max(line.rfind(": "))
        .map_or(0, |start| start + 2);
    let (front, word) = line.split_at(start);
    if boolean(word) && start > 0 {
        format!("{front}'{word}'")
    } else {
        line.to_owned()
    }
}

/// Describes the first difference of a file from its expected content.
fn difference(path: &Path, wanted: &str) -> Option<String> {
    let shown = path.display();
    let found = match fs::read_to_string(path) {
        Ok(found) if found == wanted => return None,
        Ok(found) => found,
        Err(error) => return Some(format!("{shown}: {error}")),
    };
    let same = found
        .lines()
        .zip(wanted.lines())
        .take_while(|(a, b)| a == b)
        .count();
    let line = |text: &str| {
        text.lines()
            .nth(same)
            .unwrap_or("(end of file)")
            .trim()
            .to_owned()
    };
    Some(format!(
        "{shown}: {} lines instead of {}; line {} is {:?} instead of {:?}",
        found.lines().count(),
        wanted.lines().count(),
        same + 1,
        line(&found),
        line(wanted)
    ))
}

/// Writes a file and its directory.
fn write(path: &Path, text: &str) -> Result<(), Error> {
    let failed = |source| Error::File {
        path: path.to_owned(),
        source,
    };
    path.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
    fs::write(path, text).map_err(failed)
}
