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
use normal::Difference;
use serde_json::Value;
use side::Side;

/// How a case came out.
struct Outcome {
    case: Case,
    real: Result<Vec<Value>, String>,
    embedded: Result<Vec<Value>, String>,
}

impl Outcome {
    /// Where the answers differ, step by step.
    fn differences(&self) -> Vec<Difference> {
        let (Ok(real), Ok(embedded)) = (&self.real, &self.embedded) else {
            return Vec::new();
        };
        let steps = real.iter().zip(embedded).enumerate();
        steps
            .flat_map(|(number, (real, embedded))| {
                normal::differences(&number.to_string(), Some(real), Some(embedded))
            })
            .collect()
    }

    fn ran(&self) -> bool {
        self.real.is_ok() && self.embedded.is_ok()
    }

    fn same(&self) -> bool {
        self.ran() && self.differences().is_empty()
    }

    /// What is not as the case says: equal, or different in what is listed, and in nothing else.
    fn wrong(&self) -> Vec<String> {
        if !self.ran() {
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

    /// Whether it is as the case says.
    fn expected(&self) -> bool {
        self.wrong().is_empty()
    }

    fn row(&self) -> String {
        let short = |answers: &Result<Vec<Value>, String>| match answers {
            Ok(answers) => format!("{} answers", answers.len()),
            Err(_) => "did not run".to_owned(),
        };
        let verdict = match (self.same(), self.case.differs) {
            (true, None) => "same".to_owned(),
            (false, Some(known)) if self.expected() => format!("differs: {}", known.reason),
            (false, Some(_)) => "DIFFERENT from what is listed".to_owned(),
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

    /// What is wrong, with the steps that the numbers of the paths stand for.
    fn explain(&self) -> String {
        let steps = self.case.steps.iter().enumerate();
        let steps = steps.map(|(number, step)| format!("   {number}: {step:?}"));
        let lines = std::iter::once(format!("== {}", self.case.name))
            .chain(steps)
            .chain(self.wrong());
        lines.collect::<Vec<_>>().join("\n") + "\n"
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
