//! The program `tf-controller`: flags into options, executor, leadership and an orderly end.

use crate::{
    Options,
    args::{Args, CONCURRENT, ExecutorKind},
    definitions,
    executor::{ProcessExecutor, ProcessOptions, provider_cache, runner_environment},
    inputs::{CliLocation, DefaultBackend, key_secret},
    run,
};
use sluice_api::{
    interval::Interval,
    reference::{CrossNamespace, ObjectName},
};
use sluice_runtime::{
    client,
    event::Recorder,
    leader,
    manager::{self, Endpoints, Instance, ProgramError},
    metrics::Metrics,
    probes::Readiness,
    shutdown::{self, Token},
};
use sluice_tf_core::pod::Pod;
use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

/// Passes over stacks at once; they never wait for runs.
const PASSES: u16 = 16;
/// Live runs may be silent for less than this.
const MIN_RUN_SILENCE: Duration = Duration::from_secs(30);
/// On shutdown, queued events get this long.
const LAST_EVENTS: Duration = Duration::from_secs(5);
/// The Lease of an instance that watches all objects: tofu-controller's.
const LEASE: &str = "1953de50.contrib.fluxcd.io";

/// Runs until a signal, or until leadership is lost.
///
/// # Errors
/// Flags do not go together, the API cannot be reached, or a port cannot be bound.
pub async fn run_program(args: Args) -> Result<leader::LeadershipEnd, ProgramError> {
    check_flags(&args)?;
    warn_about_flags_without_effect(&args);
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
    let endpoints = Endpoints::open(&args.common.addresses).await?;
    // Ends with the program.
    let _served = endpoints.serve(&metrics, &ready, &stop);
    // Before the election: an instance that cannot work must not block one that can.
    definitions::wait(&client, &ready, &stop).await;
    let (executor, ended) = ProcessExecutor::new(process(&args)?)?;
    let executor = Arc::new(executor);
    let names = ("tf-controller", LEASE);
    let instance = Instance::new(names, &args.common, manager::hostname(), client.clone(), metrics);
    let leadership = instance.acquire_leadership(&stop).await?;
    if matches!(leadership, leader::Leadership::Stopped) {
        return Ok(leader::LeadershipEnd::Released);
    }
    let recorder = instance.recorder()?;
    let options = options(&args, &instance, recorder.clone(), ready)?;
    let (done, asked) = (Token::new(), stop_time(&stop));
    let grace = || remaining_grace(args.graceful_shutdown_timeout, &asked);
    // In its own task: a long reconciliation must not delay the renewal of the Lease.
    let leadership = tokio::spawn({
        let done = done.clone();
        async move { leadership.hold(&done).await }
    });
    let work = async {
        run(options, (Arc::clone(&executor), ended), client, stop).await?;
        recorder.close(LAST_EVENTS).await;
        if is_in_pod(&args) {
            executor.finish(grace(), signals.reached(2)).await;
        }
        done.cancel();
        // The leadership task releases the Lease.
        std::future::pending::<Result<leader::LeadershipEnd, ProgramError>>().await
    };
    let ended = tokio::select! {
        failed = work => return failed,
        ended = leadership => ended?,
    };
    if ended == leader::LeadershipEnd::Lost && is_in_pod(&args) {
        // This instance decides nothing any more, but its active runs must be able to write their state.
        executor.finish(grace(), signals.reached(2)).await;
    }
    Ok(ended)
}

/// Refuses values of flags that this version does not support.
fn check_flags(args: &Args) -> Result<(), ProgramError> {
    if args.executor == ExecutorKind::Job {
        return Err(
            "--executor=job is not part of this version; leave the flag out, or say --executor=process, to run as child processes"
                .into(),
        );
    }
    if args.run_silence < MIN_RUN_SILENCE {
        let least = MIN_RUN_SILENCE.as_secs();
        return Err(
            format!("--run-silence must be at least {least}s: a run says every 10s that it lives").into(),
        );
    }
    Ok(())
}

/// The time of the request to stop, once there is one.
fn stop_time(stop: &Token) -> Arc<OnceLock<Instant>> {
    let (asked, stop) = (Arc::<OnceLock<_>>::default(), stop.clone());
    let set = Arc::clone(&asked);
    tokio::spawn(async move {
        stop.cancelled().await;
        set.get_or_init(Instant::now);
    });
    asked
}

/// The rest of the grace period of runs.
fn remaining_grace(grace: Duration, asked: &OnceLock<Instant>) -> Duration {
    grace.saturating_sub(asked.get().map(Instant::elapsed).unwrap_or_default())
}

/// In a pod the end of this process is the end of its runs: they get the time to finish. Elsewhere runs go on by themselves and
/// the next controller finds them.
fn is_in_pod(args: &Args) -> bool {
    args.kubeconfig.is_none() && std::env::var_os("KUBECONFIG").is_none()
}

fn warn_about_flags_without_effect(args: &Args) {
    let flags = args.transport.given();
    if !flags.is_empty() {
        tracing::warn!(
            flags = flags.join(" "),
            "these flags have no effect in this version"
        );
    }
}

fn process(args: &Args) -> Result<ProcessOptions, ProgramError> {
    let mut environment = runner_environment(std::env::vars());
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
    let mut command = match &args.runner {
        Some(program) => vec![program.display().to_string()],
        None => vec![
            std::env::current_exe()?.display().to_string(),
            "tf-runner".to_owned(),
        ],
    };
    command.push(format!("--http-retry={}", args.http_retry));
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

fn interval(duration: Duration) -> Interval {
    Interval::from_secs(u32::try_from(duration.as_secs()).unwrap_or(u32::MAX))
}

/// The Secret of `--plan-encryption-secret`. Without a namespace nothing would be sealed, so the program does not start.
fn plan_encryption(args: &Args) -> Result<Option<ObjectName>, ProgramError> {
    let (text, own) = (&args.plan_encryption_secret, &args.common.scope.runtime_namespace);
    if text.is_empty() {
        return Ok(None);
    }
    match key_secret(text, own) {
        Some(secret) => Ok(Some(secret)),
        None => Err(
            "--plan-encryption-secret names no Secret: say namespace/name, or set RUNTIME_NAMESPACE".into(),
        ),
    }
}

fn options(
    args: &Args,
    instance: &Instance<'_, CONCURRENT>,
    recorder: Recorder,
    ready: Readiness,
) -> Result<Options, ProgramError> {
    Ok(Options {
        settings: instance.watch_settings("terraform", PASSES, recorder),
        scratch: args.work_root.join("scratch"),
        tools: tools(args)?,
        runs: args.common.concurrency.concurrent,
        runs_per_namespace: args.concurrent_per_namespace,
        cross_namespace: CrossNamespace::from_flags(
            args.allow_cross_namespace_refs,
            args.no_cross_namespace_refs,
        ),
        ignore_account: args.ignore_service_account_name || !is_in_pod(args),
        run_deadline: interval(args.run_deadline),
        destroy_files_limit: args.destroy_files_limit,
        run_silence: args.run_silence,
        plan_encryption: plan_encryption(args)?,
        break_glass_limit: args
            .allow_break_the_glass
            .then(|| interval(args.break_the_glass_deadline)),
        http_retry: args.http_retry,
        cli_location: if is_in_pod(args) {
            CliLocation::Pod
        } else {
            CliLocation::Outside
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
