//! Measures the commands that look, as a person waits for them: from the start of the program to its end. kubectl lists the same stacks
//! alternately.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sluice_tests::{BoxError, binary};

use crate::{Table, median};

/// The least number of measurements per median: they take milliseconds.
const ROUNDS: usize = 5;

/// Measures `rounds` calls of each command, at least [`ROUNDS`], with the API of this kubeconfig. `stack` is one of its stacks.
pub(crate) fn measure(
    rounds: usize,
    kubeconfig: &Path,
    stack: &str,
    table: &mut Table,
) -> Result<(), BoxError> {
    let list: &[&str] = &["get", "terraforms"];
    let looks: [(&[&str], &[&str]); 6] = [
        (&["version", "--client"], &["version", "--client"]),
        (list, list),
        (&["get", "terraforms", stack], list),
        (&["status"], list),
        (&["tree", stack], list),
        (&["history", stack], list),
    ];
    let (sluice, kubectl) = (binary("sluice")?, Path::new("kubectl"));
    let has_kubectl = call(kubectl, kubeconfig, &["version", "--client"]).is_ok();
    for (arguments, alternative) in looks {
        let (mut own, mut other) = (Vec::new(), Vec::new());
        // The first call of each reads the program from the disk, and that of kubectl discovers the API.
        for round in 0..=rounds.max(ROUNDS) {
            let took = call(&sluice, kubeconfig, arguments)?;
            own.extend((round != 0).then_some(took));
            if has_kubectl {
                let took = call(kubectl, kubeconfig, alternative)?;
                other.extend((round != 0).then_some(took));
            }
        }
        let own = median(&mut own);
        let value = if has_kubectl {
            let other = median(&mut other);
            format!(
                "{:.2} ({} to {} of `kubectl {}`)",
                own.as_secs_f64() / other.as_secs_f64().max(f64::EPSILON),
                milliseconds(own),
                milliseconds(other),
                alternative.join(" ")
            )
        } else {
            format!("{}; kubectl is not installed", milliseconds(own))
        };
        table.line(&format!("`sluice {}`", arguments.join(" ")), &value);
    }
    Ok(())
}

/// Runs a program, which must succeed. Its files are beside the kubeconfig: kubectl caches there what it discovers.
fn call(program: &Path, kubeconfig: &Path, arguments: &[&str]) -> Result<Duration, BoxError> {
    let home = kubeconfig.parent().ok_or("the kubeconfig has no directory")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("HOME", home)
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::null());
    let began = Instant::now();
    let done = command.output()?;
    let took = began.elapsed();
    if done.status.success() {
        return Ok(took);
    }
    let errors = String::from_utf8_lossy(&done.stderr);
    Err(format!("{} {arguments:?}: {errors}", program.display()).into())
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}
