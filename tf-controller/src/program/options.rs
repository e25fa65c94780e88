//! The options that follow from the flags of `tf-controller`, from its environment, and from whether it is in a pod.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_api::interval::Interval;
use sluice_api::reference::{CrossNamespace, ObjectName};
use sluice_runtime::event::Recorder;
use sluice_runtime::manager::{Instance, ProgramError};
use sluice_runtime::probes::Readiness;
use sluice_tf_core::bundle::StateCopies;
use sluice_tf_core::run_input::PodRef;

use crate::Options;
use crate::args::{Args, CONCURRENT, ExecutorKind};
use crate::executor::{JobOptions, ProcessOptions, pod_environment, provider_cache, runner_environment};
use crate::inputs::{CliLocation, DefaultBackend, key_secret};
use crate::memory::MemoryRequest;
use crate::schedule::RunLimits;

/// Maximum number of concurrent reconciliations; they do not wait for runs.
const CONCURRENT_RECONCILES: u16 = 16;
/// Minimum of `--runner-job-ttl`: without its Job, a run that ended before it began looks like one that was not started.
const MIN_JOB_TTL: Duration = Duration::from_mins(1);
/// Minimum of `--run-silence`: live runs send heartbeats less often.
const MIN_RUN_SILENCE: Duration = Duration::from_secs(30);
/// Default of `--tools-dir` for Jobs: where the images of runs have the versions of the CLI.
const IMAGE_TOOLS: &str = "/opt/tools";
/// Rejects values of flags that this version does not support.
pub(super) fn check_flags(args: &Args) -> Result<(), ProgramError> {
    if uses_jobs(args) && args.runner_image.is_empty() {
        return Err(
            "--executor=job, the default in a cluster, requires an image: set --runner-image or RUNNER_POD_IMAGE"
                .into(),
        );
    }
    if uses_jobs(args) && args.runner_job_ttl < MIN_JOB_TTL {
        let least = MIN_JOB_TTL.as_secs();
        return Err(format!(
            "--runner-job-ttl must be at least {least}s: the Job of a run that failed says why, until it is deleted"
        )
        .into());
    }
    if uses_jobs(args) && args.run_memory_limit.bytes() > 0 {
        return Err(
            "--run-memory-limit is for --executor=process: with Jobs, limit the memory of runs with a ResourceQuota or by the nodes"
                .into(),
        );
    }
    if !uses_jobs(args) && args.runner_memory_request != MemoryRequest::default() {
        return Err(
            "--runner-memory-request is for --executor=job: with processes, limit the memory of runs with --run-memory-limit"
                .into(),
        );
    }
    if !uses_jobs(args) && !args.destroy_service_account.is_empty() {
        return Err(
            "--destroy-service-account is for --executor=job: processes use no pods under a ServiceAccount"
                .into(),
        );
    }
    if args.run_silence < MIN_RUN_SILENCE {
        let least = MIN_RUN_SILENCE.as_secs();
        return Err(
            format!("--run-silence must be at least {least}s: runs send a heartbeat every 10s").into(),
        );
    }
    Ok(())
}

pub(super) fn warn_about_flags_without_effect(args: &Args) {
    let flags = args.transport.non_default();
    if !flags.is_empty() {
        tracing::warn!(
            flags = flags.join(" "),
            "these flags of tofu-controller have no effect"
        );
    }
}

/// Returns whether this process is in a pod: there its end is the end of its runs, so they get time to finish. Elsewhere runs
/// continue, and the next controller finds them.
pub(super) fn is_in_pod(args: &Args) -> bool {
    args.kubeconfig.is_none() && std::env::var_os("KUBECONFIG").is_none()
}

pub(super) fn uses_jobs(args: &Args) -> bool {
    args.executor(is_in_pod(args)) == ExecutorKind::Job
}

/// Returns the options of the executor whose runners are processes.
pub(super) fn process_options(args: &Args) -> Result<ProcessOptions, ProgramError> {
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
    let default = || args.work_root.join("providers");
    let providers = args.provider_cache_dir.clone().unwrap_or_else(default);
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
        tools: tools_dir(args)?,
        environment,
        credentials: None,
        pod: pod(args),
        artifact_host: args.source_controller_localhost.clone(),
    })
}

/// Returns the options of the executor whose runners are Jobs.
pub(super) fn job_options(args: &Args) -> JobOptions {
    let host = args.source_controller_localhost.iter();
    let host = host.map(|host| format!("--source-controller-localhost={host}"));
    let tools = args
        .tools_dir
        .as_deref()
        .unwrap_or_else(|| Path::new(IMAGE_TOOLS));
    let all = [
        format!("--http-retry={}", args.http_retry),
        format!("--tools-dir={}", tools.display()),
    ];
    JobOptions {
        image: args.runner_image.clone(),
        arguments: all.into_iter().chain(host).collect(),
        environment: pod_environment(std::env::vars()),
        ttl: args.runner_job_ttl,
        memory_request: args.runner_memory_request,
    }
}

/// Returns the pod of this process, from the downward API. Without a uid, the deletion of the pod proves nothing about its runs.
fn pod(args: &Args) -> Option<PodRef> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (name, uid) = (variable("POD_NAME"), variable("POD_UID"));
    if !is_in_pod(args) && uid.is_none() {
        return None;
    }
    Some(PodRef {
        namespace: args.common.scope.runtime_namespace.clone(),
        name: name.or_else(|| variable("HOSTNAME")).unwrap_or_default(),
        uid: uid.unwrap_or_default(),
    })
}

/// Returns the absolute directory of installed CLI versions: runners have another working directory.
fn tools_dir(args: &Args) -> std::io::Result<Option<PathBuf>> {
    args.tools_dir.as_ref().map(std::path::absolute).transpose()
}

/// Returns the value of a flag that names a ServiceAccount.
fn account(name: &str) -> Option<String> {
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

fn interval(duration: Duration) -> Interval {
    Interval::from_secs(u32::try_from(duration.as_secs()).unwrap_or(u32::MAX))
}

/// Returns the Secret of `--plan-encryption-secret`. Without a namespace plans would not be sealed, so this is an error.
fn plan_encryption(args: &Args) -> Result<Option<ObjectName>, ProgramError> {
    let (text, own) = (&args.plan_encryption_secret, &args.common.scope.runtime_namespace);
    if text.is_empty() {
        return Ok(None);
    }
    match key_secret(text, own) {
        Some(secret) => Ok(Some(secret)),
        None => Err(
            "--plan-encryption-secret names no Secret: set namespace/name, or set RUNTIME_NAMESPACE".into(),
        ),
    }
}

/// Returns the limits of concurrent runs. The last limit of a label counts.
fn limits(args: &Args) -> RunLimits {
    let labels = args.concurrent_per_label.iter();
    RunLimits {
        runs: args.common.concurrency.concurrent,
        per_namespace: args.concurrent_per_namespace,
        per_label: labels.map(|limit| (limit.key.clone(), limit.runs)).collect(),
        memory: args.run_memory_limit,
    }
}

/// Returns the options of the controller.
pub(super) fn options(
    args: &Args,
    instance: &Instance<'_, CONCURRENT>,
    recorder: Recorder,
    ready: Readiness,
) -> Result<Options, ProgramError> {
    Ok(Options {
        settings: instance.watch_settings("terraform", CONCURRENT_RECONCILES, recorder),
        tracer: instance.tracer(&args.tracing)?,
        scratch: args.work_root.join("scratch"),
        tools: tools_dir(args)?,
        limits: limits(args),
        cross_namespace: CrossNamespace::from_flags(
            args.allow_cross_namespace_refs,
            args.no_cross_namespace_refs,
        ),
        ignore_account: args.ignore_service_account_name || uses_jobs(args) || !is_in_pod(args),
        default_account: account(&args.default_service_account),
        destroy_account: account(&args.destroy_service_account),
        run_deadline: interval(args.run_deadline),
        destroy_files_limit: args.destroy_files_limit,
        state_copies: StateCopies {
            count: args.state_copies,
            limit: args.state_copy_limit,
            keys: Vec::new(),
        },
        run_silence: args.run_silence,
        plan_encryption: plan_encryption(args)?,
        break_glass_limit: args
            .allow_break_the_glass
            .then(|| interval(args.break_the_glass_deadline)),
        http_retry: args.http_retry,
        cli_location: if uses_jobs(args) || is_in_pod(args) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_runtime::args;

    #[test]
    fn the_job_executor_requires_an_image_and_keeps_its_jobs() {
        let check = |flags: &[&str]| {
            let all = ["tf-controller", "--executor=job"].iter().chain(flags);
            let args = args::parse::<Args>(all.map(Into::into), |_| None).unwrap();
            check_flags(&args).map_err(|error| error.to_string())
        };
        assert_eq!(check(&["--runner-image=runner:1"]), Ok(()));
        let error = check(&[]).unwrap_err();
        assert!(error.contains("--runner-image"), "{error}");
        let error = check(&["--runner-image=runner:1", "--runner-job-ttl=59s"]).unwrap_err();
        assert!(error.contains("at least 60s"), "{error}");
        let error = check(&["--runner-image=runner:1", "--run-memory-limit=8Gi"]).unwrap_err();
        assert!(error.contains("--executor=process"), "{error}");
    }

    #[test]
    fn flags_of_jobs_are_rejected_with_processes() {
        for flag in [
            "--runner-memory-request=256Mi",
            "--runner-memory-request=none",
            "--destroy-service-account=destroyer",
        ] {
            let check = |executor: &str| {
                let all = ["tf-controller", executor, "--runner-image=runner:1", flag];
                let args = args::parse::<Args>(all.map(Into::into), |_| None).unwrap();
                check_flags(&args).map_err(|error| error.to_string())
            };
            let error = check("--executor=process").unwrap_err();
            assert!(error.contains("is for --executor=job"), "{error}");
            assert_eq!(check("--executor=job"), Ok(()));
        }
    }

    #[test]
    fn the_last_limit_of_a_label_counts() {
        let flags = [
            "tf-controller",
            "--concurrent-per-label=account=3,team=1",
            "--concurrent-per-label=account=5",
        ];
        let args = args::parse::<Args>(flags.map(Into::into), |_| None).unwrap();
        let labels = [("account".to_owned(), 5), ("team".to_owned(), 1)];
        assert_eq!(limits(&args).per_label, labels.into());
        assert_eq!(limits(&args).runs, CONCURRENT);
    }

    #[test]
    fn a_runner_in_a_pod_gets_the_directory_of_its_image() {
        let arguments = |flags: &[&str]| {
            let all = ["tf-controller", "--executor=job"].iter().chain(flags);
            let args = args::parse::<Args>(all.map(Into::into), |_| None).unwrap();
            job_options(&args).arguments
        };
        assert_eq!(arguments(&[]), ["--http-retry=9", "--tools-dir=/opt/tools"]);
        assert_eq!(
            arguments(&[
                "--tools-dir=/clis",
                "--http-retry=1",
                "--source-controller-localhost=h:1"
            ]),
            [
                "--http-retry=1",
                "--tools-dir=/clis",
                "--source-controller-localhost=h:1"
            ]
        );
    }
}
