//! Measures many unchanged stacks: a revision that does not touch their inputs, then idle time, then the commands that read them.

use std::time::{Duration, Instant};

use sluice_tests::BoxError;

use crate::environment::Environment;
use crate::results::{Goal, Results, Row, Unit, number};
use crate::{commands, stacks, usage};

/// Time after the last apply before idle stacks are observed.
const SETTLE: Duration = Duration::from_secs(5);

/// The numbers of the part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    /// Stacks that see a new revision. Each has a module of its own.
    pub(crate) stacks: usize,
    /// Idle stacks. They share the modules, since every run unpacks the whole repository.
    pub(crate) idle: usize,
    /// Observation time of idle stacks.
    pub(crate) watch: Duration,
    /// Calls of each command.
    pub(crate) rounds: usize,
}

/// Measures the stacks if `with_stacks`, and the commands if `with_commands`.
pub(crate) async fn measure(
    numbers: Numbers,
    with_stacks: bool,
    with_commands: bool,
    results: &mut Results,
) -> Result<(), BoxError> {
    let modules = numbers.stacks.max(1);
    let environment = Environment::start(modules).await?;
    let id = environment.program.id().ok_or("sluice has ended")?;
    let empty = usage::of_process(id)?;
    environment.stacks.create_many(0..modules, modules).await?;
    if with_stacks {
        measure_new_revision(&environment, id, modules, results).await?;
    }
    environment
        .stacks
        .create_many(modules..numbers.idle, modules)
        .await?;
    let count = numbers.idle.max(modules);
    if with_stacks {
        tokio::time::sleep(SETTLE).await;
        let before = usage::of_process(id)?;
        tokio::time::sleep(numbers.watch).await;
        let after = usage::of_process(id)?;
        let memory = number(after.memory);
        let title = format!("{count} idle stacks: memory of the program");
        results.add(Row::new(title, Unit::Bytes, vec![memory]));
        let each = number(after.memory.saturating_sub(empty.memory)) / number(count as u64);
        let title = "for each stack, its run and its events";
        results.add(Row::new(title, Unit::Bytes, vec![each]));
        let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
        let share = cpu / numbers.watch.as_secs_f64().max(1.0) * 100.0;
        let title = format!("{count} idle stacks: CPU, of one core");
        results.add(Row::new(title, Unit::Percent, vec![share]));
    }
    if with_commands {
        // The API is warm, and has all these stacks with their runs.
        let kubeconfig = environment.program.kubeconfig();
        commands::measure(numbers.rounds, &kubeconfig, &stacks::stack_name(0), results)?;
    }
    environment.end().await
}

/// Measures a commit that no stack reads, until every stack has moved to it.
async fn measure_new_revision(
    environment: &Environment,
    id: u32,
    count: usize,
    results: &mut Results,
) -> Result<(), BoxError> {
    let (stacks, repository) = (&environment.stacks, &environment.repository);
    let (runs, before) = (stacks.runs().await?, usage::of_process(id)?);
    let began = Instant::now();
    let commit = repository.commit_files(&[("README.md", "not an input\n")], "No input of a stack")?;
    stacks.wait_until_all_attempted(&commit).await?;
    let (took, after) = (began.elapsed(), usage::of_process(id)?);
    let title = format!("{count} unchanged stacks, new revision: runs");
    let started = number((stacks.runs().await? - runs) as u64);
    results.add(Row::new(title, Unit::Count, vec![started]).goal(Goal::AtMost(0.0)));
    results.add(Row::times("time until all have attempted it", &[took]));
    let cpu = after.cpu.saturating_sub(before.cpu);
    results.add(Row::times("CPU of the program", &[cpu]));
    for (when, usage) in [("before", before), ("after", after)] {
        let title = format!("memory of the program {when} it");
        results.add(Row::new(title, Unit::Bytes, vec![number(usage.memory)]));
    }
    Ok(())
}
