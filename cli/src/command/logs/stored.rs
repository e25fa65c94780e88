//! The log of a run that has ended: its parts in Secrets, or the end of it in the status.

use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use sluice_api::run::{Phase, TerraformRun, TerraformRunStatus};
use sluice_tf_core::run_log::{KEY, LogPart, is_owned, secret_name};

use super::LogPrinter;
use crate::CliError;
use crate::cluster::describe;
use crate::command::Context;
use crate::output::printable;

/// The longest part of a log that is read, decompressed: the runner stores at most 8 MiB in one, and earlier versions 10 MiB.
const PART_LIMIT: u64 = 16 << 20;

/// Prints the whole log if it is stored, or else its end. Each part is printed before the next one is read.
pub(super) async fn print(printer: &mut LogPrinter<'_>, run: &TerraformRun) -> Result<(), CliError> {
    let context = printer.context;
    let status = run.status.clone().unwrap_or_default();
    if !status.log_error.is_empty() {
        context
            .console
            .note(&format!("The log is not complete: {}", status.log_error));
    }
    let Some(first) = first_part(context, run, &status).await? else {
        note_other_place(context, &status);
        return printer.print(&status.log_tail);
    };
    let mut missing = Vec::new();
    printer.print(&text_of(context, &first)?)?;
    for part in LogPart::of(&first).following() {
        let name = part.secret_name(&first.name_any());
        if let Some(secret) = following_part(context, part, &name, &first).await? {
            printer.print(&text_of(context, &secret)?)?;
        } else {
            printer.print_gap(part)?;
            missing.push(format!("{part}, secret {}", printable(&name)));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(CliError::Refused {
        object: describe::<TerraformRun>(context.cluster.namespace(), &run.name_any()),
        cause: format!("its log is not complete; missing: {}", missing.join("; ")),
        next_command: String::new(),
    })
}

/// Reads the Secret with the first part of the log, or with all of it. `None`: the end of the log in the status is all that can be read.
async fn first_part(
    context: &Context,
    run: &TerraformRun,
    status: &TerraformRunStatus,
) -> Result<Option<Secret>, CliError> {
    if status.log_secret.is_empty() {
        return unnamed_part(context, run, status).await;
    }
    match context.cluster.get::<Secret>(&status.log_secret).await {
        // The role sluice-view reads no Secret; the status has the end of the log.
        Err(error) if error.is_forbidden() => {
            context.console.note(&format!(
                "This is the end of the log. You may not read all of it, in secret {}.",
                printable(&status.log_secret)
            ));
            Ok(None)
        }
        Ok(secret) if !is_owned(&secret, run) => Err(CliError::Refused {
            object: describe::<TerraformRun>(context.cluster.namespace(), &run.name_any()),
            cause: format!(
                "secret {} has the name of its log, and is not of this run",
                printable(&status.log_secret)
            ),
            next_command: String::new(),
        }),
        found => found.map(Some),
    }
}

/// Reads the first part of the log of a runner that died: it may have stored the log, and reported nothing.
async fn unnamed_part(
    context: &Context,
    run: &TerraformRun,
    status: &TerraformRunStatus,
) -> Result<Option<Secret>, CliError> {
    if status.phase != Phase::Lost || status.job_name.is_empty() {
        return Ok(None);
    }
    let found = context.cluster.get::<Secret>(&secret_name(&run.name_any())).await;
    match found {
        Ok(secret) if is_owned(&secret, run) => Ok(Some(secret)),
        Ok(_) | Err(CliError::NotFound { .. }) => Ok(None),
        Err(error) if error.is_forbidden() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a part after the first one. `None`: it is missing, or what has its name is not part of the log.
async fn following_part(
    context: &Context,
    part: LogPart,
    name: &str,
    first: &Secret,
) -> Result<Option<Secret>, CliError> {
    match context.cluster.get::<Secret>(name).await {
        Ok(secret) => Ok(part.is_in(&secret, first).then_some(secret)),
        Err(CliError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Says where the rest of a log is that has only its end in the status.
fn note_other_place(context: &Context, status: &TerraformRunStatus) {
    if !status.log_path.is_empty() && status.job_name.is_empty() {
        let directory = printable(&status.log_path);
        context.console.note(&format!(
            "This is the end of the log. All of it is in {directory}, on the machine of the run."
        ));
    }
}

/// Returns the text in a Secret.
fn text_of(context: &Context, secret: &Secret) -> Result<String, CliError> {
    let compressed = secret.data.as_ref().and_then(|data| data.get(KEY));
    let compressed = compressed.map_or(&[] as &[u8], |bytes| bytes.0.as_slice());
    decompress(compressed).map_err(|source| CliError::File {
        what: format!(
            "cannot read the log in {}",
            describe::<Secret>(context.cluster.namespace(), &secret.name_any())
        ),
        source,
    })
}

/// Decompresses a part, at most [`PART_LIMIT`] bytes; bytes that are not UTF-8 are replaced.
fn decompress(compressed: &[u8]) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    MultiGzDecoder::new(compressed)
        .take(PART_LIMIT)
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
    fn a_part_is_bounded() {
        let zeros = compress(&vec![b'0'; 20 << 20]);
        assert_eq!(decompress(&zeros).unwrap().len(), 16 << 20);
        let members = [compress(b"a\n"), compress(b"b\n")].concat();
        assert_eq!(decompress(&members).unwrap(), "a\nb\n");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decompress(&bytes);
        }
    }
}
