//! `make bench`: Sluice beside the programs that do the same work. Both sides of a ratio are measured in turn in the same run, on the
//! same machine. `docs/reference/benchmarks.md` describes the measurements.

mod api_load;
mod cli;
mod commands;
mod controller;
mod curve;
mod digests;
mod disk;
mod environment;
mod first_apply;
mod fleet;
mod git_store;
mod head;
mod idle;
mod large;
mod machine;
mod objects;
mod packages;
mod parts;
mod plot;
mod providers;
mod results;
mod serving;
mod slow;
mod sources;
mod stacks;
mod steady;
mod text;
mod usage;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use idle::Numbers;
use machine::Machine;
use parts::Part;
use results::Results;
use sluice_tests::BoxError;

/// Measures Sluice beside git, gzip, pigz, nginx, Flux, kubectl, the CLI, and kube-apiserver with etcd.
#[derive(Parser)]
struct Args {
    /// Measure only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Number of measurements per median.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Stacks of one repository that reconcile a new revision.
    #[arg(long, default_value_t = 200)]
    stacks: usize,
    /// Idle stacks; each is applied once before.
    #[arg(long, default_value_t = 1500)]
    idle: usize,
    /// Observation time of idle stacks, in seconds.
    #[arg(long, default_value_t = 30)]
    watch: u64,
    /// Numbers of small sources, each measured on its own.
    #[arg(long, value_delimiter = ',', default_values_t = [300_usize, 1000])]
    sources: Vec<usize>,
    /// Measure a push to a repository of 1 GB too.
    #[arg(long)]
    gigabyte: bool,
    /// Another build of `sluice`, which reconciles sources alternately with this one.
    #[arg(long)]
    against: Option<PathBuf>,
    /// Folder of the results.
    #[arg(long, default_value = "target/bench")]
    output: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let mut results = Results::default();
    let measured = measure(&args, &mut results).await;
    // The rows before a failure are results too.
    let published = publish(&args.output, args.rounds, &results);
    let ended = measured.and(published);
    if let Err(error) = &ended {
        eprintln!("The benchmark failed: {error}");
    }
    if ended.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Measures the selected parts in their order, and says before each how long it may take.
async fn measure(args: &Args, results: &mut Results) -> Result<(), BoxError> {
    let parts = Part::selected(&args.only);
    let total: u64 = parts.iter().map(|part| estimate(*part, args)).sum();
    let names: Vec<_> = parts.iter().map(|part| part.name()).collect();
    eprintln!(
        "Measuring {} in {} rounds: about {} minutes on two cores.",
        names.join(", "),
        args.rounds,
        total.div_ceil(60)
    );
    let began = Instant::now();
    for (number, part) in parts.iter().enumerate() {
        eprintln!(
            "== [{}/{}] {}: {}, about {} minutes; {} minutes have passed",
            number + 1,
            parts.len(),
            part.name(),
            part.description(),
            estimate(*part, args).div_ceil(60),
            began.elapsed().as_secs() / 60
        );
        Box::pin(measure_part(*part, &parts, args, results)).await?;
    }
    Ok(())
}

async fn measure_part(
    part: Part,
    parts: &[Part],
    args: &Args,
    results: &mut Results,
) -> Result<(), BoxError> {
    let rounds = args.rounds;
    let with_commands = parts.contains(&Part::Commands);
    match part {
        Part::Head => head::measure(rounds, results).await,
        Part::Sources => sources::measure(rounds, args.against.as_deref(), results).await,
        Part::Packages => packages::measure(rounds, results).await,
        Part::Curve => curve::measure(rounds, args.gigabyte, results).await,
        Part::Large => large::measure(rounds, results).await,
        Part::Digests => {
            digests::measure(rounds, results);
            Ok(())
        }
        Part::Fleet => fleet::measure_all(&args.sources, rounds, results).await,
        Part::Steady => steady::measure(rounds, results).await,
        Part::Serving => serving::measure(rounds, results).await,
        Part::FirstApply => first_apply::measure(rounds, results).await,
        Part::Providers => providers::measure(rounds, results).await,
        Part::Stacks => idle::measure(numbers(args), true, with_commands, results).await,
        // With the stacks, they have been measured there.
        Part::Commands if parts.contains(&Part::Stacks) => Ok(()),
        Part::Commands => idle::measure(numbers(args), false, true, results).await,
        Part::GitStore => git_store::measure(rounds, results).await,
        Part::ApiLoad => api_load::measure(rounds, results).await,
    }
}

fn numbers(args: &Args) -> Numbers {
    Numbers {
        stacks: args.stacks,
        idle: args.idle,
        watch: Duration::from_secs(args.watch),
        rounds: args.rounds,
    }
}

/// Returns about how many seconds a part takes on two cores.
fn estimate(part: Part, args: &Args) -> u64 {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let rounds = count(args.rounds.max(1));
    let gigabyte = if args.gigabyte { 120 + rounds * 60 } else { 0 };
    match part {
        Part::Head => 80 + rounds * 5,
        Part::Sources => 30 + rounds * 5,
        Part::Packages => 40 + rounds * 10,
        Part::Curve => 90 + rounds * 40 + gigabyte,
        Part::Large => 60 + rounds * 60,
        Part::Digests => rounds,
        // Both controllers observe four intervals; Flux takes longer for everything else.
        Part::Fleet => {
            let each = |number: &usize| 90 + count(*number) * 3 / 10;
            args.sources.iter().map(|number| rounds * each(number)).sum()
        }
        Part::Steady => 400 + rounds.min(count(steady::MAX_ROUNDS)) * 60,
        Part::Serving => 20 + rounds * 18,
        Part::FirstApply => 20 + rounds * 8,
        Part::Providers => 40 + rounds * 6,
        Part::Stacks => 60 + args.watch + count(args.idle.max(args.stacks)),
        Part::Commands if Part::selected(&args.only).contains(&Part::Stacks) => rounds * 2,
        Part::Commands => 30 + count(args.idle.max(args.stacks)) + rounds * 2,
        Part::GitStore => 60 + rounds.min(count(git_store::MAX_ROUNDS)) * 60,
        Part::ApiLoad => rounds.min(count(api_load::MAX_ROUNDS)) * 180,
    }
}

/// Writes the results and prints the table.
fn publish(folder: &Path, rounds: usize, results: &Results) -> Result<(), BoxError> {
    let machine = Machine::describe(rounds);
    results.write(folder, &machine)?;
    std::io::stdout().write_all(results.text(&machine).as_bytes())?;
    eprintln!("The results are in {}.", folder.display());
    Ok(())
}
