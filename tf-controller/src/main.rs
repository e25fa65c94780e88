//! Program entry.

use clap::Parser;
use sluice_api::{interval::Interval, reference::CrossNamespace};
use sluice_runtime::{
    client,
    clock::SystemClock,
    event::{Recorder, Reporter},
    http,
    metrics::{self, Metrics},
    probes::{self, Readiness},
    random::Generator,
    serve,
    shutdown::{self, Token},
    telemetry,
    watch::{Scope, Settings},
};
use sluice_tf_controller::{
    Options,
    args::{Args, ExecutorKind},
    executor::{ProcessExecutor, ProcessOptions},
    inputs::Place,
    run,
};
use std::{collections::BTreeMap, path::PathBuf, process::ExitCode, sync::Arc};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Passes over stacks at once; they never wait for runs.
const PASSES: u16 = 16;
/// The variables that runs get from the controller on a cluster: no credential of the controller is among them but
/// those by which runs reach the API.
const PASSED_ON: [&str; 10] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "KUBECONFIG",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "CHECKPOINT_DISABLE",
];

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    http::install_crypto();
    let logging = &args.common.logging;
    if let Err(error) = telemetry::install(logging.log_encoding, logging.log_level) {
        eprintln!("tf-controller: no log: {error}");
    }
    match control(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = &*error as &dyn std::error::Error, "ended");
            eprintln!("tf-controller: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn control(args: Args) -> Result<(), Failed> {
    if args.executor == ExecutorKind::Job {
        return Err(
            "--executor=job is not part of this version; say --executor=process to run as child processes"
                .into(),
        );
    }
    let without_effect = args.transport.given();
    if !without_effect.is_empty() {
        tracing::info!(
            flags = without_effect.join(" "),
            "flags of the runner transport have no effect"
        );
    }
    let stop = shutdown::on_signals()?.token();
    let settings = client::Settings {
        kubeconfig: args.kubeconfig.clone(),
        ..client::Settings::default()
    };
    let client = client::build(&settings).await?;
    let metrics = Metrics::new();
    serve_around(&args, &metrics, &stop).await?;
    let executor = ProcessExecutor::new(process(&args)?)?;
    let options = options(&args, &client, metrics);
    run(options, (Arc::new(executor.0), executor.1), client, stop).await?;
    Ok(())
}

/// Probes and metrics.
async fn serve_around(args: &Args, metrics: &Metrics, stop: &Token) -> Result<(), Failed> {
    let addresses = &args.common.addresses;
    if let Some(listener) = serve::listen(&addresses.health_addr).await? {
        let ready = Readiness::default();
        ready.set(true);
        tokio::spawn(probes::run(listener, ready, stop.clone()));
    }
    if let Some(listener) = serve::listen(&addresses.metrics_addr).await? {
        tokio::spawn(metrics::run(listener, metrics.clone(), stop.clone()));
    }
    Ok(())
}

fn process(args: &Args) -> Result<ProcessOptions, Failed> {
    let beside = || -> std::io::Result<PathBuf> { Ok(std::env::current_exe()?.with_file_name("tf-runner")) };
    let program = args.runner.clone().map_or_else(beside, Ok)?;
    let mut environment: BTreeMap<_, _> = std::env::vars()
        .filter(|(name, _)| PASSED_ON.contains(&name.as_str()))
        .collect();
    if let Some(path) = args
        .kubeconfig
        .as_ref()
        .map(|path| path.display().to_string())
        .or_else(|| environment.get("KUBECONFIG").cloned())
    {
        environment.insert("KUBECONFIG".to_owned(), path.clone());
        environment.insert("KUBE_CONFIG_PATH".to_owned(), path);
    }
    Ok(ProcessOptions {
        command: vec![program.display().to_string()],
        root: args.work_root.clone(),
        environment,
    })
}

fn options(args: &Args, client: &kube::Client, metrics: Metrics) -> Options {
    let instance = std::env::var("HOSTNAME").unwrap_or_default();
    let trace = args.common.addresses.trace_events;
    let reporter = Reporter {
        component: "tf-controller".to_owned(),
        instance,
        trace,
    };
    let in_pod = args.kubeconfig.is_none() && std::env::var_os("KUBECONFIG").is_none();
    Options {
        settings: Settings {
            controller: "terraform",
            scope: Scope {
                namespace: args.common.scope.namespace().map(str::to_owned),
                labels: args.common.scope.labels().map(str::to_owned),
            },
            concurrent: PASSES,
            backoff: Arc::new(args.common.retry.backoff()),
            metrics,
            recorder: Recorder::start(client.clone(), reporter, Arc::new(SystemClock)),
            random: Arc::new(Generator::from_system()),
        },
        scratch: args.work_root.join("scratch"),
        runs: args.common.concurrency.concurrent,
        cross_namespace: CrossNamespace::of_flags(
            args.allow_cross_namespace_refs,
            args.no_cross_namespace_refs,
        ),
        run_deadline: Interval::from_secs(u32::try_from(args.run_deadline.as_secs()).unwrap_or(u32::MAX)),
        place: if in_pod { Place::Pod } else { Place::Outside },
        artifact_host: args.source_controller_localhost.clone(),
    }
}
