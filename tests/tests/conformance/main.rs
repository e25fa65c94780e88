//! One suite, two servers: each case is sent to a real kube-apiserver and to the embedded API, and the answers must be
//! the same once identities, versions and times are taken out. What is known to differ stands in the case, with its
//! reason, and is checked to differ still.
//!
//! `CONFORMANCE=word` runs only the cases whose name contains the word and prints the real server's answers.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what failed by failing; clippy exempts only the test functions themselves"
)]

mod case;
#[expect(clippy::too_many_lines, reason = "tables of cases are data, not control flow")]
mod cases;
mod known;
mod normal;
mod side;
mod world;

use case::Case;
use serde_json::Value;
use side::Side;

/// How a case came out.
struct Outcome {
    case: Case,
    real: Result<Vec<Value>, String>,
    embedded: Result<Vec<Value>, String>,
}

impl Outcome {
    fn same(&self) -> bool {
        matches!((&self.real, &self.embedded), (Ok(real), Ok(embedded)) if real == embedded)
    }

    /// Whether it is as the case says: equal, or different for the reason given.
    fn expected(&self) -> bool {
        let ran = self.real.is_ok() && self.embedded.is_ok();
        ran && self.same() == self.case.differs.is_none()
    }

    fn row(&self) -> String {
        let short = |answers: &Result<Vec<Value>, String>| match answers {
            Ok(answers) => format!("{} answers", answers.len()),
            Err(_) => "did not run".to_owned(),
        };
        let verdict = match (self.same(), self.case.differs) {
            (true, None) => "same".to_owned(),
            (false, Some(reason)) => format!("differs: {reason}"),
            (true, Some(_)) => "SAME, but listed as a difference".to_owned(),
            (false, None) => "DIFFERENT".to_owned(),
        };
        format!(
            "{:<58} {:<12} {:<12} {verdict}",
            self.case.name,
            short(&self.real),
            short(&self.embedded)
        )
    }

    /// The answers side by side, only where they are not equal.
    fn explain(&self) -> String {
        let mut lines = vec![format!("== {}", self.case.name)];
        match (&self.real, &self.embedded) {
            (Ok(real), Ok(embedded)) => {
                for ((real, embedded), step) in real.iter().zip(embedded).zip(&self.case.steps) {
                    let found = normal::differences("answer", Some(real), Some(embedded));
                    if !found.is_empty() {
                        lines.push(format!("-- {step:?}"));
                        lines.extend(found);
                    }
                }
            }
            (real, embedded) => lines.push(format!("   real     {real:?}\n   embedded {embedded:?}")),
        }
        lines.join("\n") + "\n"
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_api_answers_as_kube_apiserver_does() {
    if sluice_harness::skip::without_cluster().unwrap() {
        return;
    }
    let wanted = std::env::var("CONFORMANCE").unwrap_or_default();
    let cases: Vec<_> = cases::all()
        .into_iter()
        .filter(|case| case.name.contains(&wanted))
        .collect();
    assert!(!cases.is_empty(), "no case is named like {wanted}");
    let world = world::World::start().await;
    let (real, embedded) = (world.real().await, world.embedded());
    let mut outcomes = Vec::new();
    for (number, case) in cases.into_iter().enumerate() {
        let namespace = format!("case-{number}");
        let (real, embedded) = tokio::join!(run(&real, &case, &namespace), run(&embedded, &case, &namespace));
        outcomes.push(Outcome { case, real, embedded });
    }
    for outcome in &outcomes {
        println!("{}", outcome.row());
        if !wanted.is_empty() {
            for answer in outcome.real.iter().flatten() {
                println!("    {answer}");
            }
        }
    }
    let same = outcomes.iter().filter(|outcome| outcome.same()).count();
    let known = outcomes
        .iter()
        .filter(|outcome| outcome.expected() && !outcome.same())
        .count();
    println!(
        "{} cases: {same} the same, {known} known to differ",
        outcomes.len()
    );
    let wrong: Vec<_> = outcomes
        .iter()
        .filter(|outcome| !outcome.expected())
        .map(Outcome::explain)
        .collect();
    assert!(
        wrong.is_empty(),
        "{} cases are not as they should be:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

async fn run(side: &Side, case: &Case, namespace: &str) -> Result<Vec<Value>, String> {
    side.make_namespace(namespace).await?;
    let mut answers = Vec::new();
    for step in &case.steps {
        answers.push(side.take(step, namespace, &answers).await?);
    }
    Ok(answers.iter().map(normal::value).collect())
}
