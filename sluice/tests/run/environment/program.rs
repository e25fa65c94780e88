//! The runner as a separate program.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use sluice_harness::cli;

use super::{DEADLINE, NAMESPACE, TestEnvironment};

impl TestEnvironment {
    /// Starts the runner program as the process executor does. Returns the file of its process lock.
    pub(crate) fn spawn(&self, name: &str) -> (Child, PathBuf) {
        let lock = self.dir.path().join(format!("{name}.lock"));
        (self.program(name, &lock).spawn().unwrap(), lock)
    }

    /// Runs the runner program with this variable. Returns its log.
    pub(crate) async fn log_with(&self, name: &str, (variable, value): (&str, &str)) -> String {
        let lock = self.dir.path().join(format!("{name}.lock"));
        let mut program = self.program(name, &lock);
        program.env(variable, value);
        let output = tokio::task::spawn_blocking(move || program.output().unwrap());
        let output = tokio::time::timeout(DEADLINE, output).await.unwrap().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    /// Runs the runner program with `--input-stdin` and these bytes.
    pub(crate) async fn output_with_input(&self, name: &str, input: &[u8]) -> Output {
        let lock = self.dir.path().join(format!("{name}.lock"));
        let mut program = self.program(name, &lock);
        let pipes = program.arg("--input-stdin").stdin(Stdio::piped());
        let pipes = pipes.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (mut child, input) = (pipes.spawn().unwrap(), input.to_vec());
        let output = tokio::task::spawn_blocking(move || {
            child.stdin.take().unwrap().write_all(&input).unwrap();
            child.wait_with_output().unwrap()
        });
        tokio::time::timeout(DEADLINE, output).await.unwrap().unwrap()
    }

    fn program(&self, name: &str, lock: &Path) -> Command {
        let mut program = Command::new(env!("CARGO_BIN_EXE_sluice"));
        program.arg("tf-runner");
        self.configure(&mut program, name, lock);
        program
    }

    /// Sets arguments and environment of a runner program.
    pub(crate) fn configure(&self, program: &mut Command, name: &str, lock: &Path) {
        program
            .args([
                "--namespace",
                NAMESPACE,
                "--run",
                name,
                "--process",
                "--grace-seconds",
                "30",
                "--work-root",
            ])
            .arg(self.dir.path().join("work"))
            .arg("--lock-file")
            .arg(lock)
            .env_clear()
            .env("PATH", cli::search_path().unwrap())
            .env("KUBECONFIG", &self.kubeconfig);
    }
}

/// Sends SIGTERM to a runner program. Returns its exit code.
pub(crate) async fn terminate(mut runner: Child) -> Option<i32> {
    let pid = Pid::from_raw(i32::try_from(runner.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let code = tokio::task::spawn_blocking(move || runner.wait().unwrap().code());
    tokio::time::timeout(DEADLINE, code).await.unwrap().unwrap()
}
