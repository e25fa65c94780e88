//! Integration tests of the whole controller on the embedded API: real watches over TLS, real runner processes, the real CLI.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking and are documented by their names"
)]

mod accounts;
mod approval;
mod artifacts;
mod blocked_deletions;
mod break_glass;
mod cloud;
mod commands;
mod crd_dir;
mod deletion;
mod dependencies;
mod environment;
mod examples;
mod execution_environment;
mod exhaustive_interruption;
mod fake_cloud;
mod fake_executor;
mod faults;
mod foreign_sources;
mod forged_secrets;
mod guard_rails;
mod inputs;
mod interruptions;
mod large_inputs;
mod leader_loss;
mod lifecycle;
mod locks;
mod many_stacks;
mod metrics;
mod new_objects;
mod observe;
mod otlp;
mod plans;
mod post_apply;
mod provider;
mod records;
mod refused_requests;
mod rejections;
mod repos;
mod reproducible_plans;
mod request_counts;
mod requests;
mod required_approvals;
mod rescued_states;
mod run_files;
mod run_limits;
mod secrecy;
mod shared_providers;
mod state_copies;
mod state_mismatch;
mod stored_configurations;
mod takeover;
mod tofu_controller_objects;
mod tools;
mod traces;
mod triggers;
mod versions;
mod void_approvals;
mod webhooks;

/// The runner program: the process executor starts this test binary with the runner's arguments after `--`. In a plain test run there
/// are none, and it does nothing.
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

/// The controller program: tests that kill it start this test binary with its options after `--`.
#[tokio::test(flavor = "multi_thread")]
async fn as_controller() {
    if let Some(orders) = std::env::args().skip_while(|argument| argument != "--").nth(1) {
        exhaustive_interruption::controller::control(&orders).await;
    }
}
