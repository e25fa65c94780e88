//! The conformance suite: sends each case to a real kube-apiserver and to the embedded API on each of its stores, and compares the
//! responses without identities, versions and times. Known differences are listed with reasons, must still exist, and are the same on
//! each store. `controller_runtime` runs a controller in Go on both.
//!
//! `CONFORMANCE=text` runs only the cases whose name contains the text and prints the real server's responses.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking; clippy exempts only the test functions themselves"
)]

mod case;
#[expect(clippy::too_many_lines, reason = "tables of cases are data, not control flow")]
mod cases;
mod controller_runtime;
mod known_differences;
mod normalize;
mod server;
mod stores;

use std::collections::BTreeMap;

use case::Case;
use futures::future::join_all;
use normalize::Difference;
use serde_json::Value;
use server::{TestServer, TestServers};
use stores::StoreType;

/// The result of a case on one store of the embedded API.
struct Outcome {
    case: Case,
    store: StoreType,
    real: Result<Vec<Value>, String>,
    embedded: Result<Vec<Value>, String>,
}

impl Outcome {
    /// Returns the differences of all steps.
    fn differences(&self) -> Vec<Difference> {
        let (Ok(real), Ok(embedded)) = (&self.real, &self.embedded) else {
            return Vec::new();
        };
        let steps = real.iter().zip(embedded).enumerate();
        steps
            .flat_map(|(number, (real, embedded))| {
                normalize::differences(&number.to_string(), Some(real), Some(embedded))
            })
            .collect()
    }

    fn completed(&self) -> bool {
        self.real.is_ok() && self.embedded.is_ok()
    }

    fn is_same(&self) -> bool {
        self.completed() && self.differences().is_empty()
    }

    /// Returns the unexpected differences and the missing expected ones.
    fn unexpected(&self) -> Vec<String> {
        if !self.completed() {
            return vec![format!(
                "   real     {:?}\n   embedded {:?}",
                self.real, self.embedded
            )];
        }
        let found = self.differences();
        match self.case.differs {
            Some(known) => known.check(&found),
            None => found.iter().map(Difference::to_string).collect(),
        }
    }

    /// Whether the result is the expected one.
    fn is_expected(&self) -> bool {
        self.unexpected().is_empty()
    }

    fn row(&self) -> String {
        let short = |responses: &Result<Vec<Value>, String>| match responses {
            Ok(responses) => format!("{} responses", responses.len()),
            Err(_) => "failed".to_owned(),
        };
        let verdict = match (self.is_same(), self.case.differs) {
            (true, None) => "same".to_owned(),
            (false, Some(known)) if self.is_expected() => format!("differs: {}", known.reason),
            (false, Some(_)) => "DIFFERS from the listed differences".to_owned(),
            (true, Some(_)) => "SAME, but differences are listed".to_owned(),
            (false, None) => "DIFFERS".to_owned(),
        };
        format!(
            "{:<58} {:<7} {:<12} {:<12} {verdict}",
            self.case.name,
            self.store.name(),
            short(&self.real),
            short(&self.embedded)
        )
    }

    /// Describes the differences, with the steps to which the paths refer.
    fn explain(&self) -> String {
        let steps = self.case.steps.iter().enumerate();
        let steps = steps.map(|(number, step)| format!("   {number}: {step:?}"));
        let lines = std::iter::once(format!("== {}, store: {}", self.case.name, self.store.name()))
            .chain(steps)
            .chain(self.unexpected());
        lines.collect::<Vec<_>>().join("\n") + "\n"
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_api_responds_as_kube_apiserver() {
    if sluice_harness::skip::without_cluster().unwrap() {
        return;
    }
    let filter = std::env::var("CONFORMANCE").unwrap_or_default();
    let cases: Vec<_> = cases::all()
        .into_iter()
        .filter(|case| case.name.contains(&filter))
        .collect();
    assert!(!cases.is_empty(), "no case name contains {filter}");
    let servers = TestServers::start().await;
    let outcomes = run_all(&servers, &cases).await;
    for outcome in &outcomes {
        println!("{}", outcome.row());
    }
    if !filter.is_empty() {
        let of_one_store = outcomes
            .iter()
            .filter(|outcome| outcome.store == StoreType::Memory);
        for response in of_one_store.flat_map(|outcome| outcome.real.iter().flatten()) {
            println!("    {response}");
        }
    }
    for line in summary(&outcomes) {
        println!("{line}");
    }
    let wrong: Vec<_> = outcomes
        .iter()
        .filter(|outcome| !outcome.is_expected())
        .map(Outcome::explain)
        .collect();
    assert!(
        wrong.is_empty(),
        "{} cases have unexpected results:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Runs each case once on the real server, and once on each store of the embedded API at the same time.
async fn run_all(servers: &TestServers, cases: &[Case]) -> Vec<Outcome> {
    let (real_server, embedded) = (servers.real().await, servers.embedded());
    let mut outcomes = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let namespace = format!("case-{number}");
        let on_stores = embedded.iter().map(|(_, server)| run(server, case, &namespace));
        let (real, on_stores) = tokio::join!(run(&real_server, case, &namespace), join_all(on_stores));
        for ((store, _), embedded) in embedded.iter().zip(on_stores) {
            outcomes.push(Outcome {
                case: case.clone(),
                store: *store,
                real: real.clone(),
                embedded,
            });
        }
    }
    outcomes
}

/// Returns a line for each store.
fn summary(outcomes: &[Outcome]) -> Vec<String> {
    let mut by_store: BTreeMap<StoreType, Vec<&Outcome>> = BTreeMap::new();
    for outcome in outcomes {
        by_store.entry(outcome.store).or_default().push(outcome);
    }
    let line = |(store, outcomes): (StoreType, Vec<&Outcome>)| {
        let same = outcomes.iter().filter(|outcome| outcome.is_same()).count();
        let known = outcomes
            .iter()
            .filter(|outcome| outcome.is_expected() && !outcome.is_same())
            .count();
        format!(
            "{} cases on {}: {same} the same, {known} known to differ",
            outcomes.len(),
            store.name()
        )
    };
    by_store.into_iter().map(line).collect()
}

/// Returns the responses of a server to a case.
async fn run(server: &TestServer, case: &Case, namespace: &str) -> Result<Vec<Value>, String> {
    server.create_namespace(namespace).await?;
    let mut responses = Vec::new();
    for step in &case.steps {
        let response = server.execute(step, namespace, &responses).await?;
        responses.push(response);
    }
    Ok(responses.iter().map(normalize::value).collect())
}
