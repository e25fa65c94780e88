//! Measures the commands that read, as a user waits for them: from the start of the program to its end. kubectl lists the same stacks
//! alternately.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sluice_tests::{BoxError, binary};

use crate::results::{Goal, Results, Row, seconds};

/// The least number of measurements per median: they take milliseconds.
const ROUNDS: usize = 5;

/// The longest that a command may take with 1,500 stacks, and the start of the program, in seconds.
const ANSWER: f64 = 0.15;
const START: f64 = 0.02;

/// Measures `rounds` calls of each command, at least [`ROUNDS`], with the API of this kubeconfig. `stack` is one of its stacks.
pub(crate) fn measure(
    rounds: usize,
    kubeconfig: &Path,
    stack: &str,
    results: &mut Results,
) -> Result<(), BoxError> {
    let list: &[&str] = &["get", "terraforms"];
    let reads: [(&[&str], &[&str], f64); 6] = [
        (&["version", "--client"], &["version", "--client"], START),
        (list, list, ANSWER),
        (&["get", "terraforms", stack], list, ANSWER),
        (&["status"], list, ANSWER),
        (&["tree", stack], list, ANSWER),
        (&["history", stack], list, ANSWER),
    ];
    let (sluice, kubectl) = (binary("sluice")?, Path::new("kubectl"));
    let has_kubectl = call(kubectl, kubeconfig, &["version", "--client"]).is_ok();
    for (arguments, alternative, limit) in reads {
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
        let name = if has_kubectl {
            format!("kubectl {}", alternative.join(" "))
        } else {
            "kubectl is not installed: https://kubernetes.io/docs/tasks/tools".to_owned()
        };
        let row = Row::times(format!("`sluice {}`", arguments.join(" ")), &own);
        results.add(row.beside(name, seconds(&other)).goal(Goal::AtMost(limit)));
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
