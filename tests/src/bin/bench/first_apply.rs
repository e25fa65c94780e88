//! Measures one stack of twenty resources: the first apply and a later plan, by Sluice and by the CLI. Instant resources show the
//! largest relative overhead, resources that take a second the smallest.

use std::time::Instant;

use sluice_tests::BoxError;

use crate::cli::Cli;
use crate::environment::Environment;
use crate::results::{Goal, Results, Row, seconds};
use crate::stacks;

/// The largest ratio of a first apply to the work by hand.
const LIMIT: f64 = 1.15;

/// Measures `rounds` stacks of each module.
pub(crate) async fn measure(rounds: usize, results: &mut Results) -> Result<(), BoxError> {
    let tool = sluice_harness::cli::terraform()?;
    let environment = Environment::start(1).await?;
    let stacks = &environment.stacks;
    let cli = Cli::new(&tool, environment.folder(), &environment.program.kubeconfig());
    let titles = ["that are instant", "that take a second each"];
    for ((folder, module), title) in stacks::SINGLE_STACKS.into_iter().zip(titles) {
        let (mut first, mut again) = (Vec::new(), Vec::new());
        let (mut first_by_hand, mut again_by_hand) = (Vec::new(), Vec::new());
        for round in 0..rounds.max(1) {
            let name = format!("{folder}{round}x");
            first_by_hand.push(cli.first_apply(&name, module)?);
            again_by_hand.push(cli.plan_again(&name)?);
            let began = Instant::now();
            stacks.create(&name, folder).await?;
            stacks.wait_until_ready(&name).await?;
            first.push(began.elapsed());
            let began = Instant::now();
            stacks.request(&name).await?;
            again.push(began.elapsed());
        }
        let row = Row::times(format!("first apply of 20 resources {title}"), &first);
        let row = row.beside("init, plan, apply by hand", seconds(&first_by_hand));
        results.add(row.goal(Goal::RatioAtMost(LIMIT)));
        let row = Row::times("its later plan without changes", &again);
        results.add(row.beside("init, plan by hand", seconds(&again_by_hand)));
    }
    environment.end().await
}
