//! Program entry.

use sluice_api::{interval::Interval, reference::CrossNamespace};
use sluice_runtime::{
    args, client,
    clock::{Clock, SystemClock},
    event::{Poster, PosterError, Recorder, Reporter},
    http, leader,
    metrics::{self, Metrics},
    probes::{self, Readiness},
    random::{Generator, Random},
    serve,
    shutdown::{self, Token},
    telemetry,
    watch::{Scope, Settings},
};
use sluice_tf_controller::{
    Options,
    args::{Args, ExecutorKind},
    definitions,
    executor::{ProcessExecutor, ProcessOptions, passed_on, provider_cache},
    inputs::{DefaultBackend, Place, SecretPlace},
    run,
};
use sluice_tf_runner::run::Pod;
use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Passes over stacks at once; they never wait for runs.
const PASSES: u16 = 16;
/// Shorter silences happen to runs that live.
const LEAST_SILENCE: Duration = Duration::from_secs(30);
/// How long the last events may take to be delivered once the program stops.
const LAST_EVENTS: Duration = Duration::from_secs(5);
/// The Lease of an instance that watches all objects: tofu-controller's.
const LEASE: &str = "1953de50.contrib.fluxcd.io";

#[tokio::main]
async fn main() -> ExitCode {
    let args: Args = args::of_process();
    http::install_crypto();
    let logging = &args.common.logging;
    if let Err(error) = telemetry::install(logging.log_encoding, logging.log_level) {
        eprintln!("tf-controller: no log: {error}");
    }
    match Box::pin(control(args)).await {
        Ok(leader::Ended::Resigned) => ExitCode::SUCCESS,
        // Another instance may lead by now: what still runs in the background must not go on.
        Ok(leader::Ended::Lost) => std::process::exit(1),
        Err(error) => {
            tracing::error!(error = &*error as &dyn std::error::Error, "ended");
            eprintln!("tf-controller: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn control(args: Args) -> Result<leader::Ended, Failed> {
    if args.executor == ExecutorKind::Job {
        return Err(
            "--executor=job is not part of this version; leave the flag out, or say --executor=process, to run as child processes"
                .into(),
        );
    }
    if args.run_silence < LEAST_SILENCE {
        let least = LEAST_SILENCE.as_secs();
        return Err(
            format!("--run-silence must be at least {least}s: a run says every 10s that it lives").into(),
        );
    }
    say_what_has_no_effect(&args);
    let signals = shutdown::on_signals()?;
    let stop = signals.token();
    let metrics = Metrics::new();
    let settings = client::Settings {
        kubeconfig: args.kubeconfig.clone(),
        metrics: metrics.clone(),
        ..client::Settings::default()
    };
    let client = client::build(&settings).await?;
    let ready = Readiness::default();
    serve_around(&args, &metrics, &ready, &stop).await?;
    // Before it may lead: who cannot work must not stand in the way of who can.
    definitions::wait(&client, &ready, &stop).await;
    let (executor, ended) = ProcessExecutor::new(process(&args)?)?;
    let executor = Arc::new(executor);
    let turn = turn(&args, &client, &metrics, &stop).await?;
    if matches!(turn, leader::Turn::Never) {
        return Ok(leader::Ended::Resigned);
    }
    let recorder = recorder(&args, &client, &metrics)?;
    let options = options(&args, metrics, recorder.clone(), ready)?;
    let (done, asked) = (Token::new(), when(&stop));
    let grace = || left_of(args.graceful_shutdown_timeout, &asked);
    // In a task of its own: however long a pass thinks, the Lease is renewed.
    let turn = tokio::spawn({
        let done = done.clone();
        async move { turn.keep(&done).await }
    });
    let work = async {
        run(options, (Arc::clone(&executor), ended), client, stop).await?;
        recorder.close(LAST_EVENTS).await;
        if is_in_pod(&args) {
            executor.finish(grace(), signals.reached(2)).await;
        }
        done.cancel();
        // The Lease is given up by the other one.
        std::future::pending::<Result<leader::Ended, Failed>>().await
    };
    let ended = tokio::select! {
        failed = work => return failed,
        ended = turn => ended?,
    };
    if ended == leader::Ended::Lost && is_in_pod(&args) {
        // Nothing is decided here any more, but a run that was started must be able to write its state.
        executor.finish(grace(), signals.reached(2)).await;
    }
    Ok(ended)
}

/// When the program was asked to stop, once it was.
fn when(stop: &Token) -> Arc<OnceLock<Instant>> {
    let (asked, stop) = (Arc::<OnceLock<_>>::default(), stop.clone());
    let set = Arc::clone(&asked);
    tokio::spawn(async move {
        stop.cancelled().await;
        set.get_or_init(Instant::now);
    });
    asked
}

/// What is left of the time that runs are given.
fn left_of(grace: Duration, asked: &OnceLock<Instant>) -> Duration {
    grace.saturating_sub(asked.get().map(Instant::elapsed).unwrap_or_default())
}

/// Waits until this instance may work.
async fn turn(
    args: &Args,
    client: &kube::Client,
    metrics: &Metrics,
    stop: &Token,
) -> Result<leader::Turn, leader::BadTimes> {
    let (clock, random): (Arc<dyn Clock>, Arc<dyn Random>) =
        (Arc::new(SystemClock), Arc::new(Generator::from_system()));
    let program = leader::Program {
        lease: LEASE,
        flags: &args.common.leader_election,
        scope: &args.common.scope,
        host: &std::env::var("HOSTNAME").unwrap_or_default(),
        client,
        clock: &clock,
        random: &random,
        metrics,
    };
    program.turn(stop).await
}

/// In a pod the end of this process is the end of its runs: they get the time to finish. Elsewhere runs go on by themselves and
/// the next controller finds them.
fn is_in_pod(args: &Args) -> bool {
    args.kubeconfig.is_none() && std::env::var_os("KUBECONFIG").is_none()
}

fn say_what_has_no_effect(args: &Args) {
    let flags = args.transport.given();
    if !flags.is_empty() {
        tracing::warn!(
            flags = flags.join(" "),
            "these flags have no effect in this version"
        );
    }
}

/// Probes and metrics.
async fn serve_around(args: &Args, metrics: &Metrics, ready: &Readiness, stop: &Token) -> Result<(), Failed> {
    let addresses = &args.common.addresses;
    if let Some(listener) = serve::listen(&addresses.health_addr).await? {
        tokio::spawn(probes::run(listener, ready.clone(), stop.clone()));
    }
    if let Some(listener) = serve::listen(&addresses.metrics_addr).await? {
        tokio::spawn(metrics::run(listener, metrics.clone(), stop.clone()));
    }
    Ok(())
}

fn process(args: &Args) -> Result<ProcessOptions, Failed> {
    let beside = || -> std::io::Result<PathBuf> { Ok(std::env::current_exe()?.with_file_name("tf-runner")) };
    let program = args.runner.clone().map_or_else(beside, Ok)?;
    let mut environment = passed_on(std::env::vars());
    if let Some(path) = args
        .kubeconfig
        .as_ref()
        .map(|path| path.display().to_string())
        .or_else(|| environment.get("KUBECONFIG").cloned())
    {
        environment.insert("KUBECONFIG".to_owned(), path.clone());
        environment.insert("KUBE_CONFIG_PATH".to_owned(), path);
    }
    let shared = || args.work_root.join("providers");
    let providers = args.provider_cache_dir.clone().unwrap_or_else(shared);
    let mut command = vec![
        program.display().to_string(),
        format!("--http-retry={}", args.http_retry),
    ];
    command.extend(provider_cache(&providers, args.provider_cache_max_bytes));
    Ok(ProcessOptions {
        command,
        root: args.work_root.clone(),
        tools: tools(args)?,
        environment,
        credentials: None,
        pod: pod(args),
        artifact_host: args.source_controller_localhost.clone(),
    })
}

/// The pod that this process works in. What its own object says of it comes by the downward API; without it, nothing is proved
/// by the pod.
fn pod(args: &Args) -> Option<Pod> {
    let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (name, uid) = (given("POD_NAME"), given("POD_UID"));
    if !is_in_pod(args) && uid.is_none() {
        return None;
    }
    Some(Pod {
        namespace: args.common.scope.runtime_namespace.clone(),
        name: name.or_else(|| given("HOSTNAME")).unwrap_or_default(),
        uid: uid.unwrap_or_default(),
    })
}

/// The directory of installed programs, wherever a runner works.
fn tools(args: &Args) -> std::io::Result<Option<PathBuf>> {
    args.tools_dir.as_ref().map(std::path::absolute).transpose()
}

/// The name of the machine, as `os.Hostname` of upstream tells it: the variable is of a shell or a pod.
fn host() -> String {
    let given = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    given.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

/// Takes the events of all passes: for Kubernetes, and for a receiver where there is one.
fn recorder(args: &Args, client: &kube::Client, metrics: &Metrics) -> Result<Recorder, PosterError> {
    let addresses = &args.common.addresses;
    let reporter = Reporter {
        component: "tf-controller".to_owned(),
        instance: host(),
        trace: addresses.trace_events,
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let poster = Poster::for_address(
        &addresses.events_addr,
        reporter.clone(),
        Arc::clone(&clock),
        metrics,
    )?;
    Ok(Recorder::start(client.clone(), reporter, clock).posting(poster))
}

fn interval(duration: Duration) -> Interval {
    Interval::from_secs(u32::try_from(duration.as_secs()).unwrap_or(u32::MAX))
}

/// The Secret of `--plan-encryption-secret`. Without a namespace nothing would be sealed, so the program does not start.
fn plan_encryption(args: &Args) -> Result<Option<SecretPlace>, Failed> {
    let (text, own) = (&args.plan_encryption_secret, &args.common.scope.runtime_namespace);
    if text.is_empty() {
        return Ok(None);
    }
    match SecretPlace::of_flag(text, own) {
        Some(place) => Ok(Some(place)),
        None => Err(
            "--plan-encryption-secret names no Secret: say namespace/name, or set RUNTIME_NAMESPACE".into(),
        ),
    }
}

fn options(args: &Args, metrics: Metrics, recorder: Recorder, ready: Readiness) -> Result<Options, Failed> {
    Ok(Options {
        settings: Settings {
            controller: "terraform",
            scope: Scope {
                namespace: args.common.scope.namespace().map(str::to_owned),
                labels: args.common.scope.labels().map(str::to_owned),
            },
            concurrent: PASSES,
            backoff: Arc::new(args.common.retry.backoff()),
            metrics,
            recorder,
            random: Arc::new(Generator::from_system()),
        },
        scratch: args.work_root.join("scratch"),
        tools: tools(args)?,
        runs: args.common.concurrency.concurrent,
        runs_per_namespace: args.concurrent_per_namespace,
        cross_namespace: CrossNamespace::of_flags(
            args.allow_cross_namespace_refs,
            args.no_cross_namespace_refs,
        ),
        ignore_account: args.ignore_service_account_name || !is_in_pod(args),
        run_deadline: interval(args.run_deadline),
        destroy_files_limit: args.destroy_files_limit,
        run_silence: args.run_silence,
        plan_encryption: plan_encryption(args)?,
        glass: args
            .allow_break_the_glass
            .then(|| interval(args.break_the_glass_deadline)),
        http_retry: args.http_retry,
        place: if is_in_pod(args) {
            Place::Pod
        } else {
            Place::Outside
        },
        default_backend: if args.disable_tf_k8s_backend {
            DefaultBackend::Local
        } else {
            DefaultBackend::Kubernetes
        },
        artifact_host: args.source_controller_localhost.clone(),
        ready,
    })
}
