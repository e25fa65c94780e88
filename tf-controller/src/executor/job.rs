//! Runs as Jobs of Kubernetes: one pod for each run, in the namespace of its stack and under the stack's account.
//!
//! The Job has the name of the run and belongs to it, so it goes with it. It never retries: the controller decides what follows a
//! failed run. The pod reads the bundle of the run from its Secrets, and its end is a fact that the API knows.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _};
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource, ObjectFieldSelector, Pod, PodSpec,
    PodTemplateSpec, SeccompProfile, SecurityContext, Volume, VolumeMount,
};
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::run::TerraformRun;
use sluice_api::terraform::{RunnerPodMetadata, RunnerPodSpec, TerraformSpec, label_value};
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::shutdown::Token;
use tokio::sync::mpsc;

use super::{Executor, ExecutorError, IsGone, Launch, Liveness, RunRef};

/// The time that the runner has after the CLI's grace period to store the state and to report.
const REPORT_GRACE: Duration = Duration::from_secs(60);
/// The user of tofu-controller's runner image.
const USER: i64 = 65532;
/// The directory of the files that the CLI keeps for its user.
const HOME: &str = "/home/runner";
/// The labels of Jobs and pods of runs.
const LABELS: [(&str, &str); 2] = [
    ("app.kubernetes.io/name", "tf-runner"),
    ("app.kubernetes.io/managed-by", "sluice"),
];
/// Ask the cluster autoscaler and Karpenter to leave the node alone while the run is active.
const KEEP_NODE: [(&str, &str); 2] = [
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
    ("karpenter.sh/do-not-disrupt", "true"),
];

/// The options of runner Jobs.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// The image of stacks without an image of their own.
    pub image: String,
    /// Leading arguments of the runner.
    pub arguments: Vec<String>,
    /// Variables that the controller passes on, such as proxies.
    pub environment: BTreeMap<String, String>,
    /// How long a finished Job stays with the log of its pod.
    pub ttl: Duration,
}

/// Runs as Jobs.
pub struct JobExecutor {
    client: Client,
    options: JobOptions,
}

impl JobExecutor {
    /// Watches the Jobs of runs in a namespace, or in all, until `stop`. The receiver yields each run whose Job ends or is
    /// deleted.
    #[must_use]
    pub fn new(
        client: Client,
        namespace: Option<&str>,
        options: JobOptions,
        stop: Token,
    ) -> (Self, mpsc::UnboundedReceiver<RunRef>) {
        let jobs: Api<Job> = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let (ended, receiver) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            tokio::select! {
                () = report_ended(jobs, ended) => {}
                () = stop.cancelled() => {}
            }
        });
        (Self { client, options }, receiver)
    }

    async fn create(&self, launch: Launch<'_>) -> Result<(), ExecutorError> {
        let run = launch.run;
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &run.namespace().unwrap_or_default());
        let rejected = |text: String| ExecutorError::Rejected {
            run: run.name_any(),
            text,
        };
        let desired = job(run, launch.spec, &self.options);
        match jobs.create(&PostParams::default(), &desired).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let found = jobs.get_opt(&run.name_any()).await?;
                match found.filter(|found| found.owner_references() != desired.owner_references()) {
                    Some(_) => Err(rejected(
                        "a Job of that name exists and does not belong to the run; delete it".to_owned(),
                    )),
                    None => Ok(()),
                }
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 413 | 422) => {
                Err(rejected(status.message.clone()))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn observe(&self, run: &RunRef) -> Result<Liveness, ExecutorError> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &run.namespace);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &run.namespace);
        // The Job first: its pods are there before it has ended.
        let job = jobs.get_opt(&run.name).await?;
        let of_run = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={}", run.name));
        let pods = pods.list(&of_run).await?.items;
        Ok(liveness(job.as_ref(), &pods))
    }
}

/// Returns whether the pod of a run is alive. Pure. A pod that is being deleted is alive until the kubelet has confirmed its end.
fn liveness(job: Option<&Job>, pods: &[Pod]) -> Liveness {
    let has_ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    if !pods.iter().all(has_ended) {
        return Liveness::Alive;
    }
    match job {
        Some(job) if !is_finished(job) && pods.is_empty() => Liveness::Alive,
        _ => Liveness::Gone,
    }
}

fn is_finished(job: &Job) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| {
        matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
    })
}

async fn report_ended(jobs: Api<Job>, ended: mpsc::UnboundedSender<RunRef>) {
    let labels = LABELS.map(|(name, value)| format!("{name}={value}")).join(",");
    let events = watcher(jobs, watcher::Config::default().labels(&labels)).default_backoff();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let job = match event {
            Ok(Event::Apply(job) | Event::InitApply(job)) if is_finished(&job) => job,
            Ok(Event::Delete(job)) => job,
            Ok(_) => continue,
            Err(error) => {
                tracing::warn!(%error, "the watch of Jobs was interrupted and is restarted");
                continue;
            }
        };
        let run = RunRef {
            namespace: job.namespace().unwrap_or_default(),
            name: job.name_any(),
        };
        drop(ended.send(run)); // without receiver, the controller is stopping
    }
}

/// Returns the Job of a run. Pure.
fn job(run: &TerraformRun, spec: &TerraformSpec, options: &JobOptions) -> Job {
    let template = spec.runner_pod_template.clone().unwrap_or_default();
    let grace = cli_grace(spec) + REPORT_GRACE;
    let labels: BTreeMap<String, String> = LABELS
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into_iter()
        .chain([(TERRAFORM_LABEL.to_owned(), label_value(&run.spec.terraform.name))])
        .collect();
    Job {
        metadata: ObjectMeta {
            name: Some(run.name_any()),
            namespace: run.namespace(),
            labels: Some(labels.clone()),
            owner_references: run.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            // The runner ends the run at its deadline; the Job ends a runner that cannot.
            active_deadline_seconds: Some(seconds(run.spec.deadline.to_duration() + grace)),
            backoff_limit: Some(0),
            ttl_seconds_after_finished: i32::try_from(options.ttl.as_secs()).ok(),
            template: PodTemplateSpec {
                metadata: Some(pod_metadata(labels, template.metadata.unwrap_or_default())),
                spec: Some(pod(run, spec, template.spec.unwrap_or_default(), options)),
            },
            ..JobSpec::default()
        }),
        status: None,
    }
}

fn pod_metadata(mut labels: BTreeMap<String, String>, template: RunnerPodMetadata) -> ObjectMeta {
    let mut annotations: BTreeMap<_, _> = KEEP_NODE
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    labels.extend(template.labels);
    annotations.extend(template.annotations);
    ObjectMeta {
        labels: Some(labels),
        annotations: Some(annotations),
        ..ObjectMeta::default()
    }
}

fn pod(run: &TerraformRun, spec: &TerraformSpec, template: RunnerPodSpec, options: &JobOptions) -> PodSpec {
    let directory = |name: &str| Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    };
    let container = container(run, &template, options);
    let RunnerPodSpec {
        affinity,
        host_aliases,
        init_containers,
        node_selector,
        priority_class_name,
        tolerations,
        volumes,
        ..
    } = template;
    PodSpec {
        affinity,
        containers: vec![container],
        host_aliases: Some(host_aliases),
        init_containers: Some(init_containers),
        node_selector: Some(node_selector),
        priority_class_name: Some(priority_class_name).filter(|name| !name.is_empty()),
        restart_policy: Some("Never".to_owned()),
        service_account_name: Some(spec.service_account_name.clone()).filter(|name| !name.is_empty()),
        termination_grace_period_seconds: Some(seconds(cli_grace(spec) + REPORT_GRACE)),
        tolerations: Some(tolerations),
        volumes: Some(
            [directory("temp"), directory("home")]
                .into_iter()
                .chain(volumes)
                .collect(),
        ),
        ..PodSpec::default()
    }
}

fn container(run: &TerraformRun, template: &RunnerPodSpec, options: &JobOptions) -> Container {
    let mount = |name: &str, path: &str| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    };
    let image = Some(&template.image).filter(|image| !image.is_empty());
    let mounts = [mount("temp", "/tmp"), mount("home", HOME)];
    let identity = [
        "--namespace",
        &run.namespace().unwrap_or_default(),
        "--run",
        &run.name_any(),
    ];
    Container {
        name: "tf-runner".to_owned(),
        image: Some(image.unwrap_or(&options.image).clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(vec!["tf-runner".to_owned()]),
        args: Some(
            identity
                .into_iter()
                .map(str::to_owned)
                .chain(options.arguments.iter().cloned())
                .collect(),
        ),
        env: Some(environment(options)),
        resources: template.resources.clone(),
        security_context: template.security_context.clone().or_else(|| Some(restricted())),
        volume_mounts: Some(
            mounts
                .into_iter()
                .chain(template.volume_mounts.iter().cloned())
                .collect(),
        ),
        ..Container::default()
    }
}

/// Returns the runner's own variables. Those of the stack are in the bundle.
fn environment(options: &JobOptions) -> Vec<EnvVar> {
    let field = |name: &str, path: &str| EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: path.to_owned(),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    };
    let value = |(name, value): (&str, &str)| EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        ..EnvVar::default()
    };
    let passed = options
        .environment
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    [
        field("POD_NAME", "metadata.name"),
        field("POD_NAMESPACE", "metadata.namespace"),
        field("POD_UID", "metadata.uid"),
    ]
    .into_iter()
    .chain([("HOME", HOME)].into_iter().chain(passed).map(value))
    .collect()
}

/// The security context of tofu-controller's runner: the profile `restricted` admits it.
fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            ..Capabilities::default()
        }),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(true),
        run_as_user: Some(USER),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            ..SeccompProfile::default()
        }),
        ..SecurityContext::default()
    }
}

/// Returns the time between the interrupt of the CLI and its kill.
fn cli_grace(spec: &TerraformSpec) -> Duration {
    Duration::from_secs(u64::try_from(spec.runner_termination_grace_period_seconds).unwrap_or_default())
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

impl Executor for JobExecutor {
    /// The pod reads it from Secrets: the environment and the arguments of a pod are readable by more users.
    fn passes_bundles(&self) -> bool {
        false
    }

    fn start<'a>(&'a self, launch: Launch<'a>) -> BoxFuture<'a, Result<(), ExecutorError>> {
        self.create(launch).boxed()
    }

    fn liveness(&self, run: RunRef, _lock_domain: String) -> BoxFuture<'_, Result<Liveness, ExecutorError>> {
        async move { self.observe(&run).await }.boxed()
    }

    /// The garbage collector deletes the Job with its run.
    fn forget(&self, _run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn list_runs(&self) -> BoxFuture<'_, Result<Vec<RunRef>, ExecutorError>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    fn forget_stack(&self, _stack: ObjectKey, _is_gone: IsGone) {}

    fn list_stacks(&self) -> BoxFuture<'_, Result<Vec<ObjectKey>, ExecutorError>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn run() -> TerraformRun {
        serde_json::from_value(json!({
            "metadata": { "name": "net-0123456789-7", "namespace": "team", "uid": "r" },
            "spec": { "action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Revision",
                "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
                "terraform": { "name": "net", "uid": "u", "generation": 1 } },
        }))
        .unwrap()
    }

    fn job_of(fields: &Value) -> Job {
        let mut spec = json!({ "interval": "1m", "sourceRef": { "kind": "GitRepository", "name": "code" } });
        spec.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let options = JobOptions {
            image: "runner:1".into(),
            arguments: vec!["--http-retry=9".into()],
            environment: [("HTTPS_PROXY".to_owned(), "http://proxy:3128".to_owned())].into(),
            ttl: Duration::from_secs(3600),
        };
        job(&run(), &serde_json::from_value(spec).unwrap(), &options)
    }

    #[test]
    fn a_job_has_one_pod_under_the_account_of_its_stack() {
        let mut job = serde_json::to_value(job_of(&json!({}))).unwrap();
        let mut take = |path: &str| job.pointer_mut(path).map(Value::take).unwrap();
        let parts = [
            (
                "security",
                take("/spec/template/spec/containers/0/securityContext"),
            ),
            ("container", take("/spec/template/spec/containers/0")),
            ("pod", take("/spec/template/spec")),
            ("template", take("/spec/template/metadata")),
            ("job", take("/spec")),
            ("metadata", take("/metadata")),
        ];
        let parts = parts.map(|(name, value)| format!("{name} {value}"));
        insta::assert_snapshot!(parts.join("\n"), @r#"
        security {"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"readOnlyRootFilesystem":true,"runAsNonRoot":true,"runAsUser":65532,"seccompProfile":{"type":"RuntimeDefault"}}
        container {"args":["--namespace","team","--run","net-0123456789-7","--http-retry=9"],"command":["tf-runner"],"env":[{"name":"POD_NAME","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"POD_NAMESPACE","valueFrom":{"fieldRef":{"fieldPath":"metadata.namespace"}}},{"name":"POD_UID","valueFrom":{"fieldRef":{"fieldPath":"metadata.uid"}}},{"name":"HOME","value":"/home/runner"},{"name":"HTTPS_PROXY","value":"http://proxy:3128"}],"image":"runner:1","imagePullPolicy":"IfNotPresent","name":"tf-runner","securityContext":null,"volumeMounts":[{"mountPath":"/tmp","name":"temp"},{"mountPath":"/home/runner","name":"home"}]}
        pod {"containers":[null],"hostAliases":[],"initContainers":[],"nodeSelector":{},"restartPolicy":"Never","serviceAccountName":"tf-runner","terminationGracePeriodSeconds":90,"tolerations":[],"volumes":[{"emptyDir":{},"name":"temp"},{"emptyDir":{},"name":"home"}]}
        template {"annotations":{"cluster-autoscaler.kubernetes.io/safe-to-evict":"false","karpenter.sh/do-not-disrupt":"true"},"labels":{"app.kubernetes.io/managed-by":"sluice","app.kubernetes.io/name":"tf-runner","infra.sluice.dev/terraform":"net"}}
        job {"activeDeadlineSeconds":3690,"backoffLimit":0,"template":{"metadata":null,"spec":null},"ttlSecondsAfterFinished":3600}
        metadata {"labels":{"app.kubernetes.io/managed-by":"sluice","app.kubernetes.io/name":"tf-runner","infra.sluice.dev/terraform":"net"},"name":"net-0123456789-7","namespace":"team","ownerReferences":[{"apiVersion":"infra.sluice.dev/v1alpha1","controller":true,"kind":"TerraformRun","name":"net-0123456789-7","uid":"r"}]}
        "#);
    }

    #[test]
    fn the_pod_template_of_a_stack_applies_as_a_whole() {
        let job = job_of(&json!({
            "serviceAccountName": "deployer", "runnerTerminationGracePeriodSeconds": 120,
            "runnerPodTemplate": {
                "metadata": { "labels": { "team": "net" }, "annotations": { "karpenter.sh/do-not-disrupt": "false" } },
                "spec": {
                    "image": "own:2", "nodeSelector": { "disk": "ssd" }, "priorityClassName": "high",
                    "tolerations": [{ "key": "runs", "operator": "Exists" }],
                    "hostAliases": [{ "ip": "10.0.0.1", "hostnames": ["git.internal"] }],
                    "initContainers": [{ "name": "warm", "image": "warm:1" }],
                    "resources": { "limits": { "memory": "1Gi" } },
                    "securityContext": { "runAsUser": 7 },
                    "volumes": [{ "name": "ca", "configMap": { "name": "ca" } }],
                    "volumeMounts": [{ "name": "ca", "mountPath": "/ca" }],
                },
            },
        }));
        let pod = serde_json::to_value(job.spec.unwrap().template).unwrap();
        let expected = [
            ("/metadata/labels/team", json!("net")),
            (
                "/metadata/annotations/karpenter.sh~1do-not-disrupt",
                json!("false"),
            ),
            ("/metadata/labels/app.kubernetes.io~1name", json!("tf-runner")),
            ("/spec/serviceAccountName", json!("deployer")),
            ("/spec/terminationGracePeriodSeconds", json!(180)),
            ("/spec/nodeSelector", json!({ "disk": "ssd" })),
            ("/spec/priorityClassName", json!("high")),
            ("/spec/tolerations/0/key", json!("runs")),
            ("/spec/hostAliases/0/ip", json!("10.0.0.1")),
            ("/spec/initContainers/0/image", json!("warm:1")),
            ("/spec/volumes/2/configMap/name", json!("ca")),
            ("/spec/containers/0/image", json!("own:2")),
            ("/spec/containers/0/resources/limits/memory", json!("1Gi")),
            ("/spec/containers/0/securityContext", json!({ "runAsUser": 7 })),
            ("/spec/containers/0/volumeMounts/2/mountPath", json!("/ca")),
        ];
        for (path, value) in expected {
            assert_eq!(pod.pointer(path), Some(&value), "{path} of {pod:#}");
        }
    }

    #[test]
    fn a_run_is_gone_only_when_its_pod_has_ended() {
        let job = |conditions: Value| -> Job {
            serde_json::from_value(json!({ "metadata": {}, "status": { "conditions": conditions } })).unwrap()
        };
        let pod = |phase: &str| -> Pod {
            serde_json::from_value(json!({ "metadata": {}, "status": { "phase": phase } })).unwrap()
        };
        let (new, ended) = (
            job(json!([])),
            job(json!([{ "type": "Failed", "status": "True" }])),
        );
        let cases = [
            ("created a moment ago", Some(&new), vec![], Liveness::Alive),
            ("not scheduled", Some(&new), vec![pod("Pending")], Liveness::Alive),
            ("at work", Some(&new), vec![pod("Running")], Liveness::Alive),
            (
                "its node does not answer",
                Some(&new),
                vec![pod("Unknown")],
                Liveness::Alive,
            ),
            (
                "Job deleted, pod still ends",
                None,
                vec![pod("Running")],
                Liveness::Alive,
            ),
            (
                "failed, pod still ends",
                Some(&ended),
                vec![pod("Running")],
                Liveness::Alive,
            ),
            (
                "pod has ended, Job not yet",
                Some(&new),
                vec![pod("Failed")],
                Liveness::Gone,
            ),
            ("failed", Some(&ended), vec![pod("Failed")], Liveness::Gone),
            ("failed, pod collected", Some(&ended), vec![], Liveness::Gone),
            ("both deleted", None, vec![], Liveness::Gone),
        ];
        for (case, job, pods, expected) in cases {
            assert_eq!(liveness(job, &pods), expected, "{case}");
        }
    }
}
