//! The end-to-end suite: the scenario of the README with `sluice up`, and on a real etcd and kube-apiserver with each controller
//! under its own ServiceAccount, with kills and outages of the API server.
//!
//! `SLUICE_CLUSTER=0` skips tests that need the built API server; under `CI` nothing is skipped.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking; clippy exempts only the test functions themselves"
)]

mod audit;
mod backup;
mod cluster;
mod crash;
mod docs;
mod docs_api;
mod environment;
mod features;
mod flux_cli;
mod installation;
mod load;
mod migration;
mod repos;
mod run_admission;
mod secrecy;
mod tenant_inputs;
mod up;
mod upgrade;
mod walkthrough;

use std::future::Future;
use std::time::Duration;

use sluice_harness::skip;

/// Timeout of a test, far above its normal duration.
const TEST_TIMEOUT: Duration = Duration::from_mins(5);

/// Runs a test with a timeout on its own runtime.
fn with_timeout<T>(test: impl Future<Output = T>) -> T {
    with_timeout_of(TEST_TIMEOUT, test)
}

/// Runs a test with this timeout on its own runtime.
fn with_timeout_of<T>(timeout: Duration, test: impl Future<Output = T>) -> T {
    sluice_runtime::http::install_crypto();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let ended = tokio::time::timeout(timeout, test).await;
        ended.unwrap_or_else(|_| panic!("timeout after {timeout:?}"))
    })
}

/// Whether tests on the real API server are skipped; never under CI.
fn without_cluster() -> bool {
    skip::without_cluster().unwrap()
}
