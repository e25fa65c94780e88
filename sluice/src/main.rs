//! The program. Under the name of a controller or of the runner it is that program: images link those names to it.

mod help;

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use mimalloc::MiMalloc;
use rustix::thread::disable_transparent_huge_pages;
use sluice::local_plan::{self, ApplyArgs};
use sluice::record::{RecordArgs, record};
use sluice::state::{DirectoryCommand, StateArgs, StateCommand, state};
use sluice::up::{UpArgs, up};
use sluice_runtime::failure::chain;
use sluice_runtime::telemetry::{self, Encoding, Level};
use sluice_runtime::{args, http, manager};
use sluice_tf_runner::args::{self as runner, RunnerArgs};
use sluice_tf_runner::run::RunOutcome;
use tokio::runtime::{Builder, Runtime};

/// A controller has many threads, and memory that a burst of work has freed must not stay with each of them.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// GitOps for Terraform and OpenTofu.
#[derive(Parser)]
#[command(name = "sluice", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything on this machine, without a cluster: the API, both controllers, and runs as processes.
    Up(UpArgs),
    /// List, print or restore the state of a stack; check or export a state directory while no `up` runs on it.
    State(StateArgs),
    /// Plan a directory that is not pushed yet against the state and variables of a stack (--local). It applies nothing.
    Apply(ApplyArgs),
    /// The commands that talk to an API.
    #[command(flatten)]
    Client(sluice_cli::Command),
    /// The commands for the first minutes.
    #[command(flatten)]
    Begin(sluice_cli::BeginCommand),
    /// Write signed records of runs, and verify them without an API.
    Record(RecordArgs),
    /// Run the source controller on a cluster; its flags are those of Flux.
    #[command(disable_help_flag = true)]
    SourceController(Flags),
    /// Run the tf-controller on a cluster; its flags are those of tofu-controller.
    #[command(disable_help_flag = true)]
    TfController(Flags),
    /// Run the optional repo-controller on a cluster: it serves Repo objects.
    #[command(disable_help_flag = true)]
    RepoController(Flags),
    /// Carry out one TerraformRun; started by `up` and by the tf-controller.
    #[command(hide = true, version)]
    TfRunner(RunnerProgram),
}

/// Flags in Go's form, which the controller parses itself.
#[derive(clap::Args)]
struct Flags {
    /// Flags of the controller; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAG")]
    flags: Vec<OsString>,
}

impl Flags {
    /// Parses the flags and the environment as a program of this name does; ends the process on bad flags and on `--help`.
    fn parse<P: Parser>(self, program: &str) -> P {
        let arguments = std::iter::once(OsString::from(program)).chain(self.flags);
        args::parse(arguments, |name| std::env::var_os(name)).unwrap_or_else(|error| error.exit())
    }
}

impl Command {
    /// Whether it is a controller of a cluster. Such a process has many small objects for months, and a node with
    /// `transparent_hugepage=always` would keep four times their memory. The programs of runs inherit the setting, so `up` and the
    /// runner leave it: a CLI that decodes a large state is faster with huge pages.
    const fn is_controller(&self) -> bool {
        matches!(
            self,
            Self::SourceController(_) | Self::TfController(_) | Self::RepoController(_)
        )
    }
}

#[derive(clap::Args)]
struct RunnerProgram {
    #[command(flatten)]
    runner: RunnerArgs,
    /// Format of the log. Default: console on a terminal, JSON elsewhere.
    #[arg(long, value_enum)]
    log_encoding: Option<Encoding>,
    /// Least severe log level. Default: error on a terminal, info elsewhere.
    #[arg(long, value_enum)]
    log_level: Option<Level>,
}

/// The subcommand for the name under which the program is called: images link the names of Flux, tofu-controller and Sluice to it. Any
/// other name has all subcommands; `kubectl` finds `kubectl-sluice` on PATH and calls it for `kubectl sluice`.
fn linked_command(program: &OsStr) -> Option<&'static str> {
    match Path::new(program).file_name()?.to_str()? {
        "source-controller" => Some("source-controller"),
        "tf-controller" | "tofu-controller" => Some("tf-controller"),
        "repo-controller" => Some("repo-controller"),
        "tf-runner" => Some("tf-runner"),
        _ => None,
    }
}

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(command) = arguments.first().and_then(|program| linked_command(program)) {
        arguments.insert(1, command.into());
    }
    let matches = help::with_groups_and_examples(Cli::command()).get_matches_from(arguments);
    let command = Cli::from_arg_matches(&matches)
        .unwrap_or_else(|error| error.exit())
        .command;
    if command.is_controller()
        && let Err(error) = disable_transparent_huge_pages(true)
    {
        eprintln!("sluice: cannot turn off transparent huge pages, with which it takes more memory: {error}");
    }
    match runtime_of(&command) {
        Ok(runtime) => runtime.block_on(execute(command)),
        Err(error) => {
            eprintln!("sluice: cannot start threads: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The variable of tokio for the number of threads. A number that the program sets would take precedence.
const WORKER_THREADS: &str = "TOKIO_WORKER_THREADS";

/// Creates the runtime of a command. The commands of a user send a few requests and end: the start of a thread for each core would take
/// longer than their work. One thread beside the main one serves the connections while the user answers a question.
///
/// source-controller has one thread too. Packs and archives have threads of their own, and large files are sent by the kernel. The rest
/// is short: a second thread would be woken for most events only to find that the first one has handled them, which is a fifth of the
/// CPU of a lookup.
fn runtime_of(command: &Command) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    match command {
        Command::Apply(_)
        | Command::State(_)
        | Command::Client(_)
        | Command::Begin(_)
        | Command::Record(_) => {
            builder.worker_threads(1);
        }
        Command::SourceController(_) if std::env::var_os(WORKER_THREADS).is_none() => {
            builder.worker_threads(1);
        }
        Command::Up(_)
        | Command::SourceController(_)
        | Command::TfController(_)
        | Command::RepoController(_)
        | Command::TfRunner(_) => {}
    }
    builder.enable_all().build()
}

async fn execute(command: Command) -> ExitCode {
    match command {
        Command::Up(args) => start_up(args).await,
        Command::State(args) => match args.command {
            StateCommand::Directory(command) => check_state(&command),
            StateCommand::Stack(command) => sluice_cli::execute_state(command).await,
        },
        Command::Apply(args) => local_plan::apply(&args).await,
        Command::Client(command) => sluice_cli::execute(command).await,
        Command::Begin(command) => sluice_cli::begin(command, Cli::command).await,
        Command::Record(args) => write_or_verify_record(&args).await,
        Command::SourceController(flags) => {
            let options: sluice_source_controller::Options = flags.parse("source-controller");
            let logging = options.common.logging;
            let work = Box::pin(sluice_source_controller::run_program(options));
            manager::run("source-controller", logging, work).await
        }
        Command::TfController(flags) => {
            let args: sluice_tf_controller::args::Args = flags.parse("tf-controller");
            let logging = args.common.logging;
            let work = Box::pin(sluice_tf_controller::run_program(args));
            manager::run("tf-controller", logging, work).await
        }
        Command::RepoController(flags) => {
            let args: sluice_repo_controller::Args = flags.parse("repo-controller");
            let logging = args.common.logging;
            let work = Box::pin(sluice_repo_controller::run_program(args));
            manager::run("repo-controller", logging, work).await
        }
        Command::TfRunner(program) => carry_out(program).await,
    }
}

async fn start_up(args: UpArgs) -> ExitCode {
    http::install_crypto();
    match up(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice up: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Exit code 0: no fault was found; 1: a fault was found, or the state could not be read. 2 is that of wrong arguments.
fn check_state(command: &DirectoryCommand) -> ExitCode {
    match state(command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("sluice state: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Exit code 0: the record is written, or valid; 1: it is not.
async fn write_or_verify_record(args: &RecordArgs) -> ExitCode {
    match record(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice record: {error}");
            let advice = error.advice();
            if !advice.is_empty() {
                eprintln!("  next: {advice}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Exit code 0: the run succeeded; 1: it failed, and its status says why; 2: it was superseded; 3: it could not begin, or another
/// runner has claimed it.
async fn carry_out(program: RunnerProgram) -> ExitCode {
    http::install_crypto();
    let (encoding, level) = if std::io::stderr().is_terminal() {
        (Encoding::Console, Level::Error)
    } else {
        (Encoding::Json, Level::Info)
    };
    let (encoding, level) = (
        program.log_encoding.unwrap_or(encoding),
        program.log_level.unwrap_or(level),
    );
    if let Err(error) = telemetry::install(encoding, level) {
        eprintln!("tf-runner: no log: {error}");
    }
    match runner::run(&program.runner).await {
        Ok(RunOutcome::Succeeded) => ExitCode::SUCCESS,
        Ok(RunOutcome::Failed) => ExitCode::from(1),
        Ok(RunOutcome::Superseded) => ExitCode::from(2),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the run did not begin");
            eprintln!("tf-runner: {}", chain(&error));
            ExitCode::from(3)
        }
    }
}
