//! `sluice logs`: the output of the CLI of a run, of one that has ended or while it works.

mod apply;
mod follow;
mod section;

use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use sluice_api::run::{TerraformRun, TerraformRunStatus};
use sluice_api::terraform::Terraform;

use super::Context;
use crate::cluster::{ConnectionArgs, describe};
use crate::output::printable;
use crate::run_row::{RunRow, stack_with_rows};
use crate::{CliError, ExitStatus, run, stack};

/// The longest log that is read, decompressed: the runner stores at most 10 MiB.
const LIMIT: u64 = 16 << 20;
/// Data key of the log in its Secret (docs/concepts/runs.md).
const KEY: &str = "log.gz";

/// Arguments of `sluice logs`.
#[derive(clap::Args, Debug)]
pub struct LogsArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Print the log while the run works, until it ends. A dropped connection is opened again. After an approval, it is the run of the apply.
    #[arg(short = 'f', long)]
    pub follow: bool,
    /// Number of the run, as `sluice history` shows it. Default: the newest.
    #[arg(long, value_name = "N")]
    pub run: Option<u64>,
    /// Print only the output of this command.
    #[arg(long, value_enum, value_name = "PHASE", conflicts_with = "follow")]
    pub phase: Option<LogPhase>,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// A command of the CLI whose output can be selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogPhase {
    /// `init`.
    Init,
    /// `plan`, and `show` of the plan.
    Plan,
    /// `apply`.
    Apply,
}

/// Prints the log of a run.
pub(super) async fn logs(context: &Context, args: &LogsArgs) -> Result<ExitStatus, CliError> {
    let (mut stack, mut rows) = stack_with_rows(&context.cluster, &args.name).await?;
    if args.follow && args.run.is_none() {
        // On the heap: it holds the stack and the rows twice.
        (stack, rows) = Box::pin(apply::wait_for_apply_run(context, stack, rows)).await?;
    }
    let row = selected_row(&stack, &rows, args.run)?;
    let run: TerraformRun = context.cluster.get(&row.name).await?;
    if !run::phase(&run).is_final() {
        if args.follow {
            // On the heap: it holds copies of the run.
            return Box::pin(follow::follow(context, &run)).await;
        }
        context.console.note(&format!(
            "Run {} goes on ({}). -f follows it.",
            run::number(&run),
            run::phase(&run).as_str()
        ));
    }
    let log = stored_log(context, &run).await?;
    let shown = match args.phase {
        Some(phase) => section::of_phase(&log, phase),
        None => log,
    };
    context.console.data(&printable(&shown))?;
    Ok(ExitStatus::Success)
}

/// Returns the row of the run with this number, or of the newest.
fn selected_row<'a>(
    stack: &Terraform,
    rows: &'a [RunRow],
    number: Option<u64>,
) -> Result<&'a RunRow, CliError> {
    let found = match number {
        Some(number) => rows.iter().find(|row| row.number() == number),
        None => rows.first(),
    };
    found.ok_or_else(|| CliError::Refused {
        object: format!("terraform {}", stack::full_name(stack)),
        cause: match number {
            Some(number) => format!("it has no run {number}, or the run is not retained any more"),
            None => "it has no run yet".to_owned(),
        },
        next_command: match number {
            Some(_) => format!("sluice history {}", stack.name_any()),
            None => format!("sluice describe {}", stack.name_any()),
        },
    })
}

/// Reads the whole log if it is stored, or else its end.
async fn stored_log(context: &Context, run: &TerraformRun) -> Result<String, CliError> {
    let status = run.status.clone().unwrap_or_default();
    if !status.log_error.is_empty() {
        context
            .console
            .note(&format!("The log was not stored: {}", status.log_error));
    }
    if status.log_secret.is_empty() {
        note_missing_part(context, &status);
        return Ok(status.log_tail);
    }
    let secret: Secret = match context.cluster.get(&status.log_secret).await {
        // The role sluice-view reads no Secret; the status has the end of the log.
        Err(error) if error.is_forbidden() => {
            context.console.note(&format!(
                "This is the end of the log. You may not read all of it, in secret {}.",
                printable(&status.log_secret)
            ));
            return Ok(status.log_tail);
        }
        found => found?,
    };
    let compressed = secret.data.unwrap_or_default().remove(KEY).unwrap_or_default();
    decompress(&compressed.0).map_err(|source| CliError::File {
        what: format!(
            "cannot read the log in {}",
            describe::<Secret>(context.cluster.namespace(), &status.log_secret)
        ),
        source,
    })
}

/// Says where the rest of a log is that has only its end in the status.
fn note_missing_part(context: &Context, status: &TerraformRunStatus) {
    if !status.log_path.is_empty() && status.job_name.is_empty() {
        let directory = printable(&status.log_path);
        context.console.note(&format!(
            "This is the end of the log. All of it is in {directory}, on the machine of the run."
        ));
    }
}

/// Decompresses a log, at most [`LIMIT`] bytes; bytes that are not UTF-8 are replaced.
fn decompress(compressed: &[u8]) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    MultiGzDecoder::new(compressed)
        .take(LIMIT)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    fn compress(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_log_is_bounded() {
        let zeros = compress(&vec![b'0'; 20 << 20]);
        assert_eq!(decompress(&zeros).unwrap().len(), 16 << 20);
        let parts = [compress(b"a\n"), compress(b"b\n")].concat();
        assert_eq!(decompress(&parts).unwrap(), "a\nb\n");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decompress(&bytes);
        }
    }
}
