//! The whole controller on the embedded API: real watches over TLS, real runner processes, the real CLI.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking and are documented by their names"
)]

mod aftermath;
mod approval;
mod around;
mod artifacts;
mod beginnings;
mod cloud;
mod deletion;
mod dependencies;
mod double;
mod examples;
mod faults;
mod foreign;
mod forged;
mod glass;
mod guards;
mod inputs;
mod interruptions;
mod kept;
mod large_inputs;
mod leaders;
mod left;
mod leftovers;
mod lifecycle;
mod locks;
mod looks;
mod plans;
mod provider;
mod refusals;
mod repeats;
mod requests;
mod secrecy;
mod service;
mod shared_providers;
mod stops;
mod storms;
mod successors;
mod takeover;
mod tools;
mod traces;
mod versions;
mod voids;
mod watches;
mod webhooks;
mod world;
mod writes;

/// The runner program: this test binary, started by the process executor with the runner's arguments behind `--`.
/// A plain test run has none of them and nothing to do here.
#[tokio::test(flavor = "multi_thread")]
async fn as_runner() {
    use clap::Parser;
    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        runner: sluice_tf_runner::args::RunnerArgs,
    }
    let arguments: Vec<_> = std::env::args().skip_while(|argument| argument != "--").collect();
    if arguments.is_empty() {
        return;
    }
    let ending = sluice_tf_runner::args::run(&Cli::parse_from(arguments).runner).await;
    println!("{ending:?}");
}

/// The controller as a program: the stories that kill it start this test binary with its orders behind `--`.
#[tokio::test(flavor = "multi_thread")]
async fn as_controller() {
    if let Some(orders) = std::env::args().skip_while(|argument| argument != "--").nth(1) {
        stops::controller::control(&orders).await;
    }
}
