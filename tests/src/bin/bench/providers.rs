//! Measures what a provider of 200 MB adds to the start of a run that is not the first one of its stack, and how often it is downloaded
//! then.

use sluice_harness::git::Repository;
use sluice_harness::trial::TrialProvider;
use sluice_tests::BoxError;

use crate::environment::Environment;
use crate::results::{Goal, Results, Row, Unit, median, number, seconds};
use crate::stacks;

/// Size of the provider in bytes.
const SIZE: usize = 200_000_000;
/// The name of the stack with the provider, and the folder of its module.
const PROVIDER_STACK: (&str, &str) = ("provider", "provider");
/// The name of the stack without providers, and the folder of its module.
const PLAIN_STACK: (&str, &str) = ("no-provider", "single");

/// The most that the provider adds to the start of a run, in seconds.
const LIMIT: f64 = 0.2;

/// Measures the start of `rounds` later runs with the provider, in turn with a stack without providers.
pub(crate) async fn measure(rounds: usize, results: &mut Results) -> Result<(), BoxError> {
    let trial = TrialProvider::create()?;
    let mirror = trial.mirror_of_size(SIZE).await?;
    let repository = Repository::create()?;
    stacks::write(&repository, 1)?;
    let block = trial.provider_block();
    let module =
        format!("{block}resource \"trial_thing\" \"it\" {{\n  name    = \"it\"\n  content = \"one\"\n}}\n");
    repository.write(&format!("{}/main.tf", PROVIDER_STACK.1), module)?;
    repository.write(
        &format!("{}/.terraform.lock.hcl", PROVIDER_STACK.1),
        mirror.lock_file(),
    )?;
    let environment = Environment::serve(repository).await?;
    let stacks = &environment.stacks;
    let files = [
        ("TF_CLI_CONFIG_FILE", mirror.cli_config()),
        ("SSL_CERT_FILE", mirror.authority()),
    ];
    let variables = files.map(|(name, file)| (name, file.display().to_string()));
    stacks
        .create_with_environment(PROVIDER_STACK.0, PROVIDER_STACK.1, &variables)
        .await?;
    stacks.create(PLAIN_STACK.0, PLAIN_STACK.1).await?;
    for (name, _) in [PROVIDER_STACK, PLAIN_STACK] {
        stacks.wait_until_ready(name).await?;
    }
    let before = mirror.downloads();
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..=rounds.max(1) {
        for ((name, _), times) in [(PROVIDER_STACK, &mut with), (PLAIN_STACK, &mut without)] {
            stacks.request_with(name, &format!("{name}-{round}")).await?;
            let took = stacks.start_of_last_run(name).await?;
            // The first one may wait until the cache is filled.
            if round > 0 {
                times.push(took);
            }
        }
    }
    let downloads = u64::try_from(mirror.downloads() - before)?;
    let (with, without) = (seconds(&with), seconds(&without));
    let base = median(&without).unwrap_or_default();
    let more = with.iter().map(|took| (took - base).max(0.0)).collect();
    let row = Row::new(
        "start of a later run with a provider of 200 MB",
        Unit::Seconds,
        with,
    );
    results.add(row.beside("a run without providers", without));
    let row = Row::new("what the provider adds to it", Unit::Seconds, more);
    results.add(row.goal(Goal::AtMost(LIMIT)));
    let row = Row::new("downloads of the provider", Unit::Count, vec![number(downloads)]);
    results.add(row.goal(Goal::AtMost(0.0)));
    environment.end().await
}
