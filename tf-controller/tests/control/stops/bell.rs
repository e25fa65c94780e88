//! The CLI with a bell: a script in its place says when a command begins and when it has ended, and waits for leave. The CLI
//! behind it is the real one.

use super::fate::{Actor, Fate, Side};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// `begins`/`ended`, its process, its runner's, its directory, the command. File descriptors are left to bash: those that are
/// handed down hold locks.
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

/// Hangs the bell at the CLI; gives the directory that goes first in PATH.
pub(crate) async fn hang(folder: &Path, cli: &Path, fate: Fate) -> PathBuf {
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
            let fate = fate.clone();
            tokio::spawn(async move {
                // Whoever rang may have been killed.
                drop(answer(stream, &fate).await);
            });
        }
    });
    place
}

async fn answer(stream: TcpStream, fate: &Fate) -> std::io::Result<()> {
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
        begins(process, runner, Path::new(directory), word, fate).await
    } else {
        ended(process, runner, word, fate)
    };
    stream.write_all(format!("{word}\n").as_bytes()).await
}

async fn begins(process: i32, runner: i32, directory: &Path, word: &str, fate: &Fate) -> &'static str {
    fate.saw_runner(runner);
    match fate.step(&format!("command {word}")) {
        Some(Side::Before) => {
            fate.kill(Actor::Runner(runner));
            return "stop";
        }
        Some(Side::During) => fate.kill(Actor::Runner(runner)),
        Some(Side::After) => fate.laws.dies_after(process),
        _ => {}
    }
    fate.command_begins(process, word, directory);
    if word == "apply"
        && let Err(law) = fate.laws.may_apply(runner).await
    {
        fate.broken(law);
    }
    "go"
}

fn ended(process: i32, runner: i32, _: &str, fate: &Fate) -> &'static str {
    fate.command_ended(process);
    if fate.laws.is_to_die_after(process) {
        fate.kill(Actor::Runner(runner));
    }
    "go"
}
