//! `sluice adopt`: finds the root modules of a repository, and prints a manifest for each. It says what it could not tell.

mod module;
mod roots;
mod walk;

use std::path::PathBuf;
use std::thread;

use roots::Adoption;
use walk::Limits;

use crate::output::{Console, Tone, counted, to_yaml};
use crate::{CliError, ExitStatus};

/// Stack of the parser thread, sufficient for the limits of a file.
const STACK_SIZE: usize = 64 << 20;

/// Arguments of `sluice adopt`.
#[derive(clap::Args, Debug)]
pub struct AdoptArgs {
    /// Directory of the repository.
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Source of the manifests.
    #[arg(
        long,
        value_name = "KIND/NAME[.NAMESPACE]",
        default_value = "GitRepository/infrastructure"
    )]
    source: String,
    /// Namespace of the manifests.
    #[arg(short = 'n', long, value_name = "NAME")]
    namespace: Option<String>,
}

/// Prints the manifests on standard output, and everything that the user has to decide on standard error.
pub(super) fn adopt(args: &AdoptArgs, console: Console) -> Result<ExitStatus, CliError> {
    let source = super::create::source_reference(&args.source)?;
    let directory = args.directory.clone();
    let parser = thread::Builder::new()
        .stack_size(STACK_SIZE)
        .spawn(move || walk::read(&directory, Limits::default()));
    let parser = parser.map_err(|source| CliError::File {
        what: "cannot start a thread".to_owned(),
        source,
    })?;
    let repository = parser
        .join()
        .map_err(|_| CliError::Format("the modules could not be parsed".to_owned()))??;
    let Adoption { roots, notes } = roots::find(&repository);
    for root in &roots {
        let manifest = root.manifest(&source, args.namespace.as_deref());
        console.data(&format!("---\n{}", to_yaml(&manifest)?))?;
        console.note(&console.paint(Tone::Plain, &format!("{} ({})", root.name, root.shown_path())));
        for note in &root.notes {
            console.note(&console.paint(Tone::Plain, &format!("  {note}")));
        }
    }
    for note in repository.notes.iter().chain(&notes) {
        console.note(&console.paint(Tone::Plain, note));
    }
    if roots.is_empty() {
        return Err(CliError::Refused {
            object: args.directory.display().to_string(),
            cause: "no root module was found".to_owned(),
            next_command: "sluice init NEW-DIRECTORY".to_owned(),
        });
    }
    console.note(&format!(
        "{}. Plans of these manifests wait for an approval: read each first plan.",
        counted(roots.len(), "root module")
    ));
    Ok(ExitStatus::Success)
}
