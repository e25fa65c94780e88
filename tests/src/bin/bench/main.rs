//! `make bench`: what Sluice costs over the bare CLI, and what stacks cost that have nothing to do. Both sides of a ratio
//! are measured in turn in the same run, so that they see the same machine. `docs/benchmarks.md` says what is measured.

mod hand;
mod process;
mod sources;
mod stacks;

use clap::Parser;
use hand::Hand;
use process::Used;
use sluice_harness::git::{GitServer, Repository};
use sluice_tests::{
    Failed,
    program::{Program, Setup},
};
use stacks::Stacks;
use std::{
    io::Write,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Measures Sluice against the bare CLI.
#[derive(Parser)]
struct Args {
    /// Stacks of one repository for the pass over a new revision.
    #[arg(long, default_value_t = 200)]
    stacks: usize,
    /// Stacks that stand idle; each is applied once before.
    #[arg(long, default_value_t = 1500)]
    idle: usize,
    /// How often each pair of times is taken; the medians count.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long idle stacks are watched, in seconds.
    #[arg(long, default_value_t = 30)]
    watch: u64,
    /// Another build of `sluice`, which does the passes of sources in turn with this one.
    #[arg(long)]
    against: Option<PathBuf>,
    /// Measure the passes of sources and nothing else.
    #[arg(long)]
    sources_only: bool,
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

async fn measure(args: &Args) -> Result<(), Failed> {
    let mut table = Table::default();
    sources::measure(args.rounds, args.against.as_deref(), &mut table).await?;
    if !args.sources_only {
        of_stacks(args, &mut table).await?;
    }
    let written = std::io::stdout().write_all(table.text().as_bytes());
    Ok(written?)
}

async fn of_stacks(args: &Args, table: &mut Table) -> Result<(), Failed> {
    let tool = sluice_harness::cli::terraform()?;
    let repository = Repository::create()?;
    stacks::write(&repository, modules(args))?;
    let server = GitServer::start().await?;
    let folder = tempfile::tempdir()?;
    let setup = Setup::new(folder.path()).forgetful();
    setup.write(&[("source.yaml", stacks::source(&server.serve("bench", &repository)))])?;
    let program = Program::start(setup).await?;
    let stacks = Stacks::new(&program.client());
    let hand = Hand::new(&tool, folder.path(), &program.kubeconfig());
    single(args, &stacks, &hand, table).await?;
    many(args, &program, &stacks, &repository, table).await?;
    program.end().await
}

/// Small modules in the repository. Each of the many stacks has one of its own; idle ones share them, since every run unpacks the
/// whole repository.
fn modules(args: &Args) -> usize {
    args.stacks.max(1)
}

/// One stack of twenty resources: applied for the first time, then looked at again, by Sluice and by hand. Resources that
/// cost nothing show what Sluice costs at worst; those that take a second show what it costs at least.
async fn single(args: &Args, stacks: &Stacks, hand: &Hand, table: &mut Table) -> Result<(), Failed> {
    let titles = ["that cost nothing", "that take a second each"];
    for ((folder, module), title) in stacks::SINGLE.into_iter().zip(titles) {
        let (mut first, mut again) = (Pair::default(), Pair::default());
        for round in 0..args.rounds.max(1) {
            let name = format!("{folder}{round}x");
            first.hand.push(hand.first(&name, module)?);
            again.hand.push(hand.again(&name)?);
            let began = Instant::now();
            stacks.create(&name, folder).await?;
            stacks.ready(&name).await?;
            first.sluice.push(began.elapsed());
            let began = Instant::now();
            stacks.request(&name).await?;
            again.sluice.push(began.elapsed());
        }
        table.ratio(&format!("first apply, 20 resources {title}"), &mut first);
        table.ratio("  a look without drift", &mut again);
    }
    Ok(())
}

/// Many stacks that are as wanted: a revision that none of them reads, then nothing at all.
async fn many(
    args: &Args,
    program: &Program,
    stacks: &Stacks,
    repository: &Repository,
    table: &mut Table,
) -> Result<(), Failed> {
    let id = program.id().ok_or("sluice has ended")?;
    let empty = process::used(id)?;
    stacks.create_many(0..args.stacks, modules(args)).await?;
    let (runs, before) = (stacks.runs().await?, process::used(id)?);
    let began = Instant::now();
    let commit =
        repository.commit_files(&[("README.md", "read by nobody\n")], "Nothing that a stack reads")?;
    stacks.all_tried(&commit).await?;
    let (took, after) = (began.elapsed(), process::used(id)?);
    let count = args.stacks;
    table.line(
        &format!("{count} unchanged stacks, new revision: runs"),
        &(stacks.runs().await? - runs).to_string(),
    );
    table.line("  time until all have moved on", &seconds(took));
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
    let idle = process::used(id)?;
    tokio::time::sleep(Duration::from_secs(args.watch)).await;
    let Used { cpu, memory } = process::used(id)?;
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
    Ok(())
}

/// Times of the same thing on both sides.
#[derive(Default)]
struct Pair {
    hand: Vec<Duration>,
    sluice: Vec<Duration>,
}

/// What was measured, as lines of a Markdown table.
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

    /// As [`Table::ratio`]; the other side is another build.
    fn against(&mut self, what: &str, pair: &mut Pair) {
        self.compare(what, pair, "of the other build");
    }

    fn compare(&mut self, what: &str, pair: &mut Pair, other: &str) {
        let (hand, sluice) = (median(&mut pair.hand), median(&mut pair.sluice));
        let ratio = sluice.as_secs_f64() / hand.as_secs_f64().max(f64::EPSILON);
        let value = format!("{ratio:.2} ({} to {} {other})", seconds(sluice), seconds(hand));
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
