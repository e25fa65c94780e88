//! What the steps of a stack's story cost the API: each request of controller, runner and CLI is counted at a door in front of it.

use crate::{
    leaders::door::Door,
    looks::condition,
    world::{DEADLINE, World},
};
use serde_json::json;
use sluice_api::terraform::Terraform;
use std::{collections::BTreeMap, time::Duration};

/// A world whose controller, runners and CLIs come to the API by a door, with a source.
async fn counted() -> (World, Door) {
    let mut world = World::without_controller().await;
    let door = Door::open(world.client.clone()).await;
    // However busy the machine is: no step counts as slow, and no sign of life is due.
    let runner = World::own_runner().into_iter();
    let slow = ["--step-seconds", "600", "--heartbeat-seconds", "600"].map(str::to_owned);
    world.runner = Some(runner.chain(slow).collect());
    world.kubeconfig = door.way(world.dir.path(), "all");
    world.start(4).await;
    let code = "resource \"terraform_data\" \"it\" { input = 1 }\noutput \"it\" { value = terraform_data.it.output }\n";
    world.commit("a", &[("main.tf", code)]).await;
    Count::of(&door, "start").await;
    (world, door)
}

/// The requests of one step of a story, as method and address, and how often each was made.
struct Count(BTreeMap<String, usize>);

impl Count {
    /// Waits until nothing has been asked for a while, and counts what was asked for since the last count, but for watches.
    async fn of(door: &Door, step: &str) -> Self {
        let settling = async {
            let mut before = usize::MAX;
            while before != door.asked().len() {
                before = door.asked().len();
                tokio::time::sleep(Duration::from_millis(1500)).await;
            }
        };
        tokio::time::timeout(DEADLINE, settling).await.unwrap();
        let mut asked = BTreeMap::new();
        for line in door.asked().into_iter().filter(|line| !line.contains("watch=")) {
            *asked.entry(line).or_default() += 1;
        }
        door.forget();
        let count = Self(asked);
        eprintln!(
            "{step}: {} writes, {} requests, the CLI's {} among these\n{:#?}",
            count.writes(),
            count.requests(),
            count.sum(|line| line.starts_with("cli ")),
            count.0
        );
        count
    }

    fn sum(&self, counts: impl Fn(&str) -> bool) -> usize {
        let lines = self.0.iter().filter(|(line, _)| counts(line));
        lines.map(|(_, times)| times).sum()
    }

    /// Writes of controller and runner.
    fn writes(&self) -> usize {
        self.sum(|line| !line.starts_with("GET ") && !line.starts_with("cli "))
    }

    /// All requests.
    fn requests(&self) -> usize {
        self.sum(|_| true)
    }
}

/// When the stack was last found as wanted.
fn success(stack: &Terraform) -> Option<String> {
    let status = stack.status.as_ref()?;
    Some(status.last_successful_reconcile_at.as_ref()?.0.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_an_approved_apply_and_a_look_write_little() {
    let (world, door) = counted().await;
    world.stack("net", json!({ "approvePlan": "" })).await;
    let planned = |stack: &Terraform| condition(stack, "Plan").starts_with("True");
    let stack = world.until("net", "planned", planned).await;
    let plan = Count::of(&door, "first plan").await;
    let id = stack.status.unwrap().plan.unwrap().pending;
    world.edit("net", json!({ "approvePlan": id })).await;
    let before = success(&world.ready("net", "True").await);
    let apply = Count::of(&door, "approved apply").await;
    world.edit("net", json!({ "interval": "6s" })).await;
    let looked =
        |stack: &Terraform| success(stack) != before && condition(stack, "Ready").contains("NoDrift");
    let before = success(&world.until("net", "looked at", looked).await);
    Count::of(&door, "first look").await;
    let runs = world.runs("net").await.len();
    let looked = |stack: &Terraform| success(stack) != before;
    world.until("net", "looked at again", looked).await;
    let looks = Count::of(&door, "later looks").await;
    let runs = world.runs("net").await.len() - runs;
    assert!(plan.writes() <= 9, "{}", plan.writes());
    assert!(apply.writes() <= 8, "{}", apply.writes());
    assert!(looks.writes() <= 4 * runs, "{} of {runs}", looks.writes());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_apply_asks_little() {
    let (world, door) = counted().await;
    world.stack("net", json!({})).await;
    world.ready("net", "True").await;
    let apply = Count::of(&door, "first apply").await;
    let of_the_cli = apply.sum(|line| line.starts_with("cli "));
    assert!(apply.requests() - of_the_cli <= 24, "{}", apply.requests());
    // The CLI asks 25 to 27 times.
    assert!(apply.requests() <= 51, "{}", apply.requests());
}
