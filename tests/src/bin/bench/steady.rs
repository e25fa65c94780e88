//! Measures many unchanged sources with an interval of a minute on one host. A hundred of them share a repository, as the stacks of one
//! repository do, and so they share its lookups: what remains is the work of the reconciliations themselves.

use std::time::Duration;

use sluice_harness::git::{GitServer, RepositorySet};
use sluice_tests::BoxError;

use crate::controller::{Controller, Cost, definitions, own_program};
use crate::fleet::{self, CPU_OF_PASS};
use crate::results::{Goal, Results, Row, Unit, number, seconds};
use crate::usage::Usage;

/// The most rounds: each observes a minute.
pub(crate) const MAX_ROUNDS: usize = 3;
/// The Git requests of a URL in an interval, at most.
const REQUESTS_OF_URL: f64 = 2.0;
/// The least share of the sources that is reconciled in an interval. Fewer mean that the controller falls behind.
const SHARE: f64 = 0.9;
/// The numbers of the part.
const MANY: Size = Size {
    sources: 10_000,
    urls: 100,
    interval: 60,
};

/// How many sources there are.
#[derive(Clone, Copy)]
struct Size {
    sources: usize,
    urls: usize,
    /// In seconds.
    interval: u32,
}

/// What an interval took.
struct Interval {
    cost: Cost,
    git_requests: u64,
    usage: Usage,
}

/// Measures as many intervals as rounds, at most [`MAX_ROUNDS`].
pub(crate) async fn measure(rounds: usize, results: &mut Results) -> Result<(), BoxError> {
    let observed = observe(MANY, rounds.clamp(1, MAX_ROUNDS)).await?;
    report(MANY, &observed, results);
    Ok(())
}

/// Creates the sources, waits until all are ready, and observes intervals.
async fn observe(size: Size, rounds: usize) -> Result<Vec<Interval>, BoxError> {
    let contents = |number: usize| format!("locals {{\n  number = {number}\n}}\n");
    let repositories = RepositorySet::create(size.urls, "main.tf", contents)?;
    let server = GitServer::start().await?;
    let urls: Vec<_> = repositories
        .git_dirs()
        .enumerate()
        .map(|(number, git_dir)| server.serve_git_dir(&format!("steady{number}"), &git_dir))
        .collect();
    let of_sources: Vec<_> = urls.iter().cycle().take(size.sources).cloned().collect();
    let folder = tempfile::tempdir()?;
    let controller = Controller::start(&own_program()?, folder.path(), definitions()?).await?;
    let sources = controller.sources();
    fleet::create(sources, &of_sources).await?;
    fleet::wait_for_all(sources, fleet::is_ready).await?;
    fleet::shorten_intervals(sources, size.interval).await?;
    let mut observed = Vec::new();
    for _ in 0..rounds {
        observed.push(observe_interval(&controller, &server, size.interval).await?);
    }
    controller.end().await?;
    Ok(observed)
}

async fn observe_interval(
    controller: &Controller,
    server: &GitServer,
    interval: u32,
) -> Result<Interval, BoxError> {
    server.clear_requests();
    let before = controller.cost().await?;
    tokio::time::sleep(Duration::from_secs(interval.into())).await;
    // Before the page of metrics, which has lines of every source and so costs CPU.
    let usage = controller.usage()?;
    let git_requests = server.requests().len() as u64;
    let mut cost = controller.cost().await?.since(&before, Duration::ZERO);
    cost.cpu = usage.cpu.saturating_sub(before.cpu);
    Ok(Interval {
        cost,
        git_requests,
        usage,
    })
}

fn report(size: Size, observed: &[Interval], results: &mut Results) {
    let Size {
        sources,
        urls,
        interval,
    } = size;
    let samples = |sample: fn(&Interval) -> f64| observed.iter().map(sample).collect::<Vec<_>>();
    let cpus: Vec<_> = observed.iter().map(|interval| interval.cost.cpu).collect();
    let title = format!("{sources} unchanged sources of {urls} URLs: CPU of {interval} s");
    results.add(Row::times(title, &cpus).goal(Goal::AtMost(f64::from(interval))));
    let passes = samples(|interval| number(interval.cost.reconciliations));
    let each = seconds(&cpus).into_iter().zip(&passes);
    let each = each.map(|(cpu, passes)| cpu / passes.max(1.0)).collect();
    let title = "their reconciliations in this time";
    let least = Goal::AtLeast(number(sources as u64) * SHARE);
    results.add(Row::new(title, Unit::Count, passes).goal(least));
    let row = Row::new("CPU of one reconciliation", Unit::Seconds, each);
    results.add(row.goal(Goal::AtMost(CPU_OF_PASS)));
    let requests = samples(|interval| number(interval.git_requests));
    let row = Row::new("Git requests in this time", Unit::Count, requests);
    let most = number(urls as u64) * REQUESTS_OF_URL;
    results.add(row.goal(Goal::AtMost(most)));
    let requests = samples(|interval| number(interval.cost.requests));
    let row = Row::new("API requests in this time", Unit::Count, requests);
    results.add(row.goal(Goal::AtMost(0.0)));
    let resident = samples(|interval| number(interval.usage.memory));
    results.add(Row::new("resident memory", Unit::Bytes, resident));
    let anonymous = samples(|interval| number(interval.usage.private));
    results.add(Row::new("its anonymous part", Unit::Bytes, anonymous));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Timeout of a test.
    const LIMIT: Duration = Duration::from_mins(2);

    #[tokio::test(flavor = "multi_thread")]
    async fn a_few_sources_are_observed_without_a_request_to_the_api() {
        let few = Size {
            sources: 6,
            urls: 2,
            interval: 2,
        };
        let observing = Box::pin(observe(few, 1));
        let observed = tokio::time::timeout(LIMIT, observing).await.unwrap().unwrap();
        assert_eq!(observed.len(), 1);
        assert_eq!((observed[0].cost.requests, observed[0].cost.writes), (0, 0));
        let mut results = Results::default();
        report(few, &observed, &mut results);
        let titles = results.titles();
        assert_eq!(titles[0], "6 unchanged sources of 2 URLs: CPU of 2 s");
        assert_eq!(titles.len(), 7);
    }
}
