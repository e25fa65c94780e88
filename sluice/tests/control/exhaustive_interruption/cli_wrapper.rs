//! A wrapper script of the CLI that reports the start and end of each command to the test and waits for its response. It runs the
//! real CLI.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::fault_state::{Actor, Fault, FaultState};

/// Reports `begins` or `ended`, its process, its runner's, its directory and the command. Only bash file descriptors are used:
/// inherited ones hold locks.
const SCRIPT: &str = r#"#!/bin/bash
for word in "$@"; do case $word in -*) ;; *) break ;; esac; done
ring() {
  answer=go
  exec {bell}<>/dev/tcp/127.0.0.1/PORT || return
  printf '%s\n' "$1 $$ $PPID $PWD $word" >&"$bell"
  read -r answer <&"$bell"
  exec {bell}>&-
}
ring begins
[ "$answer" = stop ] && exit 137
"REAL" "$@" &
child=$!
trap 'kill -INT $child' INT
while :; do
  wait $child
  code=$?
  kill -0 $child 2>/dev/null || break
done
ring ended
exit $code
"#;

/// Installs the wrapper; returns the directory that must be first in PATH.
pub(crate) async fn install(folder: &Path, cli: &Path, fault_state: FaultState) -> PathBuf {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let place = folder.join("cli");
    std::fs::create_dir(&place).unwrap();
    let script = place.join(cli.file_name().unwrap());
    let text = SCRIPT
        .replace("PORT", &port)
        .replace("REAL", &cli.display().to_string());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let fault_state = fault_state.clone();
            tokio::spawn(async move {
                // The client may have been killed.
                drop(answer(stream, &fault_state).await);
            });
        }
    });
    place
}

async fn answer(stream: TcpStream, fault_state: &FaultState) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let words: Vec<_> = line.split_whitespace().collect();
    let [moment, process, runner, directory, word] = words[..] else {
        return Ok(());
    };
    let (Ok(process), Ok(runner)) = (process.parse(), runner.parse()) else {
        return Ok(());
    };
    let word = if moment == "begins" {
        begins(process, runner, Path::new(directory), word, fault_state).await
    } else {
        ended(process, runner, word, fault_state)
    };
    stream.write_all(format!("{word}\n").as_bytes()).await
}

async fn begins(
    process: i32,
    runner: i32,
    directory: &Path,
    word: &str,
    fault_state: &FaultState,
) -> &'static str {
    fault_state.add_runner(runner);
    match fault_state.step(&format!("command {word}")) {
        Some(Fault::Before) => {
            fault_state.kill(Actor::Runner(runner));
            return "stop";
        }
        Some(Fault::During) => fault_state.kill(Actor::Runner(runner)),
        Some(Fault::After) => fault_state.invariants.kill_after(process),
        _ => {}
    }
    fault_state.command_begins(process, word, directory);
    if word == "apply"
        && let Err(law) = fault_state.invariants.check_apply(runner).await
    {
        fault_state.report_violation(law);
    }
    "go"
}

fn ended(process: i32, runner: i32, _: &str, fault_state: &FaultState) -> &'static str {
    fault_state.command_ended(process);
    if fault_state.invariants.is_killed_after(process) {
        fault_state.kill(Actor::Runner(runner));
    }
    "go"
}
