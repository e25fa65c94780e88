//! The story of the README, judged: on `sluice up`, on a real etcd and kube-apiserver with each controller under its own
//! ServiceAccount, through kills and through an API server that is away.
//!
//! What needs the built API server is left out under `SLUICE_CLUSTER=0`; under `CI` nothing is left out.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what failed by failing; clippy exempts only the test functions themselves"
)]

mod away;
mod cluster;
mod crash;
mod features;
mod manifests;
mod migration;
mod pages;
mod secrecy;
mod telling;
mod up;
mod world;

use sluice_harness::skip;
use std::{future::Future, time::Duration};

/// No test takes this long: one that does hangs.
const DEADLINE: Duration = Duration::from_secs(300);

/// Runs a test with its deadline, on a runtime of its own.
fn within_deadline<T>(test: impl Future<Output = T>) -> T {
    sluice_runtime::http::install_crypto();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let ended = tokio::time::timeout(DEADLINE, test).await;
        ended.unwrap_or_else(|_| panic!("not done in {DEADLINE:?}"))
    })
}

/// Whether tests on the real API server are left out; never under CI.
fn without_cluster() -> bool {
    skip::without_cluster().unwrap()
}
