//! `make bench`: the overhead of Sluice over the CLI, and the cost of idle stacks. Both sides of a ratio are measured
//! alternately in the same run, on the same machine. `docs/contributing/benchmarks.md` describes the measurements.

mod cli;
mod commands;
mod controller;
mod fleet;
mod packages;
mod serving;
mod sources;
mod stacks;
mod usage;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use cli::Cli;
use sluice_harness::git::{GitServer, Repository};
use sluice_tests::BoxError;
use sluice_tests::program::{Program, Setup};
use stacks::Stacks;
use usage::Usage;

/// Measures Sluice against the CLI.
#[derive(Parser)]
struct Args {
    /// Stacks of one repository that reconcile a new revision.
    #[arg(long, default_value_t = 200)]
    stacks: usize,
    /// Idle stacks; each is applied once before.
    #[arg(long, default_value_t = 1500)]
    idle: usize,
    /// Number of measurements per median.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Observation time of idle stacks, in seconds.
    #[arg(long, default_value_t = 30)]
    watch: u64,
    /// Another build of `sluice`, which reconciles sources alternately with this one.
    #[arg(long)]
    against: Option<PathBuf>,
    /// Measure only sources: their reconciliations, packages, number and downloads.
    #[arg(long)]
    sources_only: bool,
    /// Number of small sources.
    #[arg(long, default_value_t = 300)]
    sources: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let ended = measure(&args).await;
    if let Err(error) = &ended {
        eprintln!("The benchmark failed: {error}");
    }
    if ended.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

async fn measure(args: &Args) -> Result<(), BoxError> {
    let mut table = Table::default();
    sources::measure(args.rounds, args.against.as_deref(), &mut table).await?;
    packages::measure(args.rounds, &mut table).await?;
    fleet::measure(args.sources, args.rounds, &mut table).await?;
    serving::measure(args.rounds, &mut table).await?;
    if !args.sources_only {
        measure_stacks(args, &mut table).await?;
    }
    let written = std::io::stdout().write_all(table.text().as_bytes());
    Ok(written?)
}

async fn measure_stacks(args: &Args, table: &mut Table) -> Result<(), BoxError> {
    let tool = sluice_harness::cli::terraform()?;
    let repository = Repository::create()?;
    stacks::write(&repository, modules(args))?;
    let server = GitServer::start().await?;
    let folder = tempfile::tempdir()?;
    let setup = Setup::new(folder.path()).without_state();
    setup.write(&[("source.yaml", stacks::source(&server.serve("bench", &repository)))])?;
    let program = Program::start(setup).await?;
    let stacks = Stacks::new(&program.client());
    let cli = Cli::new(&tool, folder.path(), &program.kubeconfig());
    measure_single_stacks(args, &stacks, &cli, table).await?;
    measure_many_stacks(args, &program, &stacks, &repository, table).await?;
    program.end().await
}

/// Returns the number of small modules in the repository. Each of the many stacks has its own; idle stacks share them, since every
/// run unpacks the whole repository.
fn modules(args: &Args) -> usize {
    args.stacks.max(1)
}

/// Measures one stack of twenty resources: the first apply and a later plan, by Sluice and by the CLI. Instant resources show the
/// largest relative overhead, resources that take a second the smallest.
async fn measure_single_stacks(
    args: &Args,
    stacks: &Stacks,
    cli: &Cli,
    table: &mut Table,
) -> Result<(), BoxError> {
    let titles = ["that are instant", "that take a second each"];
    for ((folder, module), title) in stacks::SINGLE.into_iter().zip(titles) {
        let (mut first, mut again) = (Pair::default(), Pair::default());
        for round in 0..args.rounds.max(1) {
            let name = format!("{folder}{round}x");
            first.cli.push(cli.first_apply(&name, module)?);
            again.cli.push(cli.plan_again(&name)?);
            let began = Instant::now();
            stacks.create(&name, folder).await?;
            stacks.wait_until_ready(&name).await?;
            first.sluice.push(began.elapsed());
            let began = Instant::now();
            stacks.request(&name).await?;
            again.sluice.push(began.elapsed());
        }
        table.ratio(&format!("first apply, 20 resources {title}"), &mut first);
        table.ratio("  plan without changes", &mut again);
    }
    Ok(())
}

/// Measures many unchanged stacks: a revision that does not touch their inputs, then idle time, then the commands that look at them.
async fn measure_many_stacks(
    args: &Args,
    program: &Program,
    stacks: &Stacks,
    repository: &Repository,
    table: &mut Table,
) -> Result<(), BoxError> {
    let id = program.id().ok_or("sluice has ended")?;
    let empty = usage::of_process(id)?;
    stacks.create_many(0..args.stacks, modules(args)).await?;
    let (runs, before) = (stacks.runs().await?, usage::of_process(id)?);
    let began = Instant::now();
    let commit = repository.commit_files(&[("README.md", "not an input\n")], "No input of a stack")?;
    stacks.wait_until_all_attempted(&commit).await?;
    let (took, after) = (began.elapsed(), usage::of_process(id)?);
    let count = args.stacks;
    table.line(
        &format!("{count} unchanged stacks, new revision: runs"),
        &(stacks.runs().await? - runs).to_string(),
    );
    table.line("  time until all have attempted it", &seconds(took));
    table.line(
        "  CPU of the program",
        &seconds(after.cpu.saturating_sub(before.cpu)),
    );
    table.line(
        "  memory of the program, before and after",
        &format!("{} and {}", mebibytes(before.memory), mebibytes(after.memory)),
    );
    stacks.create_many(args.stacks..args.idle, modules(args)).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let idle = usage::of_process(id)?;
    tokio::time::sleep(Duration::from_secs(args.watch)).await;
    let Usage { cpu, memory } = usage::of_process(id)?;
    let count = args.idle.max(args.stacks);
    table.line(
        &format!("{count} idle stacks: memory of the program"),
        &mebibytes(memory),
    );
    let each = memory.saturating_sub(empty.memory) / u64::try_from(count)?.max(1) / 1024;
    table.line("  for each stack, its run and its events", &format!("{each} KiB"));
    let share =
        cpu.saturating_sub(idle.cpu).as_secs_f64() / Duration::from_secs(args.watch.max(1)).as_secs_f64();
    table.line("  CPU, of one core", &format!("{:.2} %", share * 100.0));
    // The API is warm, and has all these stacks with their runs.
    commands::measure(args.rounds, &program.kubeconfig(), &stacks::stack_name(0), table)
}

/// Durations of the same operation on both builds.
#[derive(Default)]
struct Pair {
    cli: Vec<Duration>,
    sluice: Vec<Duration>,
}

/// The results, as rows of a Markdown table.
#[derive(Default)]
struct Table(Vec<(String, String)>);

impl Table {
    fn line(&mut self, what: &str, value: &str) {
        eprintln!("{what}: {value}");
        self.0.push((what.to_owned(), value.to_owned()));
    }

    fn ratio(&mut self, what: &str, pair: &mut Pair) {
        self.compare(what, pair, "by hand");
    }

    /// As [`Table::ratio`], against another build.
    fn against(&mut self, what: &str, pair: &mut Pair) {
        self.compare(what, pair, "of the other build");
    }

    fn compare(&mut self, what: &str, pair: &mut Pair, other: &str) {
        let (cli, sluice) = (median(&mut pair.cli), median(&mut pair.sluice));
        let ratio = sluice.as_secs_f64() / cli.as_secs_f64().max(f64::EPSILON);
        let value = format!("{ratio:.2} ({} to {} {other})", seconds(sluice), seconds(cli));
        self.line(what, &value);
    }

    fn text(&self) -> String {
        let lines = self
            .0
            .iter()
            .map(|(what, value)| format!("| {what} | {value} |\n"));
        format!("| What | Measured |\n|---|---|\n{}", lines.collect::<String>())
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
