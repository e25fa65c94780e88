//! `sluice record`: writes signed records of runs, and verifies them without an API.

mod error;
mod export;
mod verify;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

pub use error::RecordCommandError;
use export::{ExportArgs, export};
use verify::{VerifyArgs, verify};

/// Arguments of `sluice record`.
#[derive(clap::Args, Clone, Debug)]
pub struct RecordArgs {
    #[command(subcommand)]
    command: RecordCommand,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum RecordCommand {
    /// Write the signed record of a run that has ended to standard output.
    Export(ExportArgs),
    /// Verify a signed record, without an API, and print what it says.
    Verify(VerifyArgs),
}

/// Runs the command. Standard output has its result only.
///
/// # Errors
/// [`RecordCommandError`].
pub async fn record(args: &RecordArgs) -> Result<(), RecordCommandError> {
    let mut output = match &args.command {
        RecordCommand::Export(args) => Box::pin(export(args)).await?,
        RecordCommand::Verify(args) => verify(args)?,
    };
    if output.last() != Some(&b'\n') {
        output.push(b'\n');
    }
    let mut out = io::stdout().lock();
    let written = out.write_all(&output).and_then(|()| out.flush());
    written.map_err(|source| RecordCommandError::File {
        action: "write",
        path: "standard output".to_owned(),
        source,
    })
}

/// Reads a file of at most `limit` bytes, for which `action` says what it is. Of a longer one it returns one byte more, which the caller refuses.
fn read(path: &Path, limit: usize, action: &'static str) -> Result<Vec<u8>, RecordCommandError> {
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(limit.saturating_add(1)).read_to_end(&mut bytes));
    read.map_err(|source| RecordCommandError::File {
        action,
        path: path.display().to_string(),
        source,
    })?;
    Ok(bytes)
}
