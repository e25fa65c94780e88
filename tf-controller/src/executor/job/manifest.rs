//! The Job of a run, from the spec of its stack. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, EmptyDirVolumeSource, PodSecurityContext, PodSpec, PodTemplateSpec,
    SeccompProfile, SecurityContext, Volume, VolumeMount,
};
use kube::api::ObjectMeta;
use kube::{Resource as _, ResourceExt as _};
use sluice_api::annotation::{RUN_UID, TERRAFORM_LABEL};
use sluice_api::run::TerraformRun;
use sluice_api::terraform::{RunnerPodMetadata, RunnerPodSpec, TerraformSpec, label_value};
use sluice_tf_core::bundle::MIN_CLI_GRACE_SECONDS;
use sluice_tf_core::disruption::RUNNER_CONTAINER;

use super::JobOptions;
use super::resources::{memory_request, memory_variables, resources};
use super::variables::{environment, pod_fields};
use crate::executor::Launch;

/// The label with the name of a pod's Job, which is the name of its run. The API server sets it.
pub(super) const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";
/// The time that the runner has after the CLI's grace period to store the state and to report.
const REPORT_GRACE: Duration = Duration::from_mins(1);
/// The time that a pod on its node has until its runner starts: for its image, its volumes and its init containers.
const START_ALLOWANCE: Duration = Duration::from_mins(10);
/// The user of tofu-controller's runner image.
const USER: i64 = 65532;
/// The directory of the files that the CLI keeps for its user.
pub(super) const HOME: &str = "/home/runner";
/// The labels of Jobs and pods of runs, besides the name of the stack.
const LABELS: [(&str, &str); 2] = [
    ("app.kubernetes.io/name", "tf-runner"),
    ("app.kubernetes.io/managed-by", "sluice"),
];
/// Ask the cluster autoscaler and Karpenter to leave the node alone while the run is active.
const KEEP_NODE: [(&str, &str); 2] = [
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
    ("karpenter.sh/do-not-disrupt", "true"),
];

/// Returns the Job of a run.
pub(super) fn job(launch: &Launch<'_>, options: &JobOptions) -> Job {
    let (run, spec) = (launch.run, launch.spec);
    let template = spec.runner_pod_template.clone().unwrap_or_default();
    // The runner ends the run at its deadline, and its pod has one for a runner that cannot. A run may wait for a node as long as that:
    // an apply is not cut short because it had to wait.
    let lifetime = lifetime(run, spec);
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
            active_deadline_seconds: Some(seconds(run.spec.deadline.to_duration() + lifetime)),
            backoff_limit: Some(0),
            ttl_seconds_after_finished: i32::try_from(options.ttl.as_secs()).ok(),
            template: PodTemplateSpec {
                metadata: Some(pod_metadata(run, labels, template.metadata.unwrap_or_default())),
                spec: Some(pod(launch, template.spec.unwrap_or_default(), options)),
            },
            ..JobSpec::default()
        }),
        status: None,
    }
}

fn pod_metadata(
    run: &TerraformRun,
    labels: BTreeMap<String, String>,
    template: RunnerPodMetadata,
) -> ObjectMeta {
    let mut annotations: BTreeMap<_, _> = KEEP_NODE
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    annotations.extend(template.annotations);
    annotations.insert(RUN_UID.to_owned(), run.uid().unwrap_or_default());
    // The stack replaces none of ours: network policies and the controller select the pods of runs by them.
    let mut all = template.labels;
    all.extend(labels);
    ObjectMeta {
        labels: Some(all),
        annotations: Some(annotations),
        ..ObjectMeta::default()
    }
}

fn pod(launch: &Launch<'_>, template: RunnerPodSpec, options: &JobOptions) -> PodSpec {
    let directory = |name: &str| Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    };
    let container = container(launch, &template, options);
    let pod_security = container.security_context.as_ref().and_then(volume_access);
    // Images of runs are for Linux, and a cluster may have other nodes.
    let linux = ("kubernetes.io/os".to_owned(), "linux".to_owned());
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
        active_deadline_seconds: Some(seconds(lifetime(launch.run, launch.spec))),
        affinity,
        // The runner claims and reports its run with the token, whatever the ServiceAccount says about its mount.
        automount_service_account_token: Some(true),
        containers: vec![container],
        host_aliases: Some(host_aliases),
        init_containers: Some(init_containers),
        node_selector: Some([linux].into_iter().chain(node_selector).collect()),
        priority_class_name: Some(priority_class_name).filter(|name| !name.is_empty()),
        restart_policy: Some("Never".to_owned()),
        security_context: pod_security,
        service_account_name: Some(launch.account.to_owned()).filter(|name| !name.is_empty()),
        termination_grace_period_seconds: Some(seconds(cli_grace(launch.spec) + REPORT_GRACE)),
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

fn container(launch: &Launch<'_>, template: &RunnerPodSpec, options: &JobOptions) -> Container {
    let run = launch.run;
    let mount = |name: &str, path: &str| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    };
    let image = Some(&template.image).filter(|image| !image.is_empty());
    let image = image.unwrap_or(&options.image);
    // A volume of the stack may replace them: a directory that outlives the pod keeps a state that could not be stored.
    let is_replaced = |own: &VolumeMount| {
        let mut mounts = template.volume_mounts.iter();
        mounts.any(|mount| mount.mount_path.trim_end_matches('/') == own.mount_path)
    };
    let mut mounts = vec![mount("temp", "/tmp"), mount("home", HOME)];
    mounts.retain(|own| !is_replaced(own));
    let setting = options.memory_request;
    let request = memory_request(template.resources.as_ref(), launch.memory, setting);
    let identity = [
        "--namespace",
        &run.namespace().unwrap_or_default(),
        "--run",
        &run.name_any(),
    ];
    Container {
        name: RUNNER_CONTAINER.to_owned(),
        image: Some(image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(vec!["tf-runner".to_owned()]),
        args: Some(
            identity
                .into_iter()
                .map(str::to_owned)
                .chain(options.arguments.iter().cloned())
                .collect(),
        ),
        env: Some(
            pod_fields(template)
                .chain(environment(run, image, options))
                .chain(memory_variables(request, setting))
                .collect(),
        ),
        resources: resources(template.resources.as_ref(), request),
        // The reason of a runner that ends before it can report.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
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

/// Lets the user of the runner write to volumes that belong to root when they are created, such as a claim at `/tmp`, and read Secrets that
/// are mounted for their owner and group. A stack with a security context without a user gets none: its cluster sets the user, as OpenShift
/// does, and the group of volumes with it.
fn volume_access(container: &SecurityContext) -> Option<PodSecurityContext> {
    let group = container.run_as_group.or(container.run_as_user)?;
    Some(PodSecurityContext {
        fs_group: Some(group),
        // A volume that has the group already is not walked.
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        ..PodSecurityContext::default()
    })
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

/// Returns how long the pod of a run may last on its node.
fn lifetime(run: &TerraformRun, spec: &TerraformSpec) -> Duration {
    START_ALLOWANCE + run.spec.deadline.to_duration() + cli_grace(spec) + REPORT_GRACE
}

/// Returns the time between the interrupt of the CLI and its kill, as the runner takes it.
fn cli_grace(spec: &TerraformSpec) -> Duration {
    let requested = u64::try_from(spec.runner_termination_grace_period_seconds).unwrap_or_default();
    Duration::from_secs(requested.max(MIN_CLI_GRACE_SECONDS))
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::memory::{MeasuredMemory, MemoryRequest};

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
        job_with(fields, MeasuredMemory::default(), MemoryRequest::Measured)
    }

    fn job_with(fields: &Value, memory: MeasuredMemory, memory_request: MemoryRequest) -> Job {
        let mut spec = json!({ "interval": "1m", "sourceRef": { "kind": "GitRepository", "name": "code" } });
        spec.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let options = JobOptions {
            image: "runner:1".into(),
            arguments: vec!["--http-retry=9".into()],
            environment: [("HTTPS_PROXY".to_owned(), "http://proxy:3128".to_owned())].into(),
            ttl: Duration::from_hours(1),
            memory_request,
        };
        let spec: TerraformSpec = serde_json::from_value(spec).unwrap();
        let launch = Launch {
            run: &run(),
            account: &spec.service_account_name,
            spec: &spec,
            memory,
            bundle: None,
        };
        job(&launch, &options)
    }

    #[test]
    fn a_measured_stack_requests_its_memory() {
        let memory = MeasuredMemory {
            peak: Some(400 << 20),
            is_whole: true,
            limit: Some(8 << 30),
            default_request: Some(0),
        };
        let job = serde_json::to_value(job_with(&json!({}), memory, MemoryRequest::Measured)).unwrap();
        let container = &job["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["resources"]["requests"]["memory"], "532Mi");
    }

    #[test]
    fn a_stack_that_was_not_measured_has_the_requests_of_its_template() {
        let job = serde_json::to_value(job_of(&json!({}))).unwrap();
        let container = &job["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container.get("resources"), None);
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
        container {"args":["--namespace","team","--run","net-0123456789-7","--http-retry=9"],"command":["tf-runner"],"env":[{"name":"POD_NAME","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"POD_NAMESPACE","valueFrom":{"fieldRef":{"fieldPath":"metadata.namespace"}}},{"name":"POD_UID","valueFrom":{"fieldRef":{"fieldPath":"metadata.uid"}}},{"name":"JOB_NAME","value":"net-0123456789-7"},{"name":"RUN_UID","value":"r"},{"name":"RUNNER_POD_IMAGE","value":"runner:1"},{"name":"HOME","value":"/home/runner"},{"name":"HTTPS_PROXY","value":"http://proxy:3128"},{"name":"POD_MEMORY_LIMIT","valueFrom":{"resourceFieldRef":{"resource":"limits.memory"}}},{"name":"POD_DEFAULT_MEMORY_REQUEST","valueFrom":{"resourceFieldRef":{"resource":"requests.memory"}}}],"image":"runner:1","imagePullPolicy":"IfNotPresent","name":"tf-runner","securityContext":null,"terminationMessagePolicy":"FallbackToLogsOnError","volumeMounts":[{"mountPath":"/tmp","name":"temp"},{"mountPath":"/home/runner","name":"home"}]}
        pod {"activeDeadlineSeconds":4320,"automountServiceAccountToken":true,"containers":[null],"hostAliases":[],"initContainers":[],"nodeSelector":{"kubernetes.io/os":"linux"},"restartPolicy":"Never","securityContext":{"fsGroup":65532,"fsGroupChangePolicy":"OnRootMismatch"},"serviceAccountName":"tf-runner","terminationGracePeriodSeconds":120,"tolerations":[],"volumes":[{"emptyDir":{},"name":"temp"},{"emptyDir":{},"name":"home"}]}
        template {"annotations":{"cluster-autoscaler.kubernetes.io/safe-to-evict":"false","infra.sluice.dev/run-uid":"r","karpenter.sh/do-not-disrupt":"true"},"labels":{"app.kubernetes.io/managed-by":"sluice","app.kubernetes.io/name":"tf-runner","infra.sluice.dev/terraform":"net"}}
        job {"activeDeadlineSeconds":7920,"backoffLimit":0,"template":{"metadata":null,"spec":null},"ttlSecondsAfterFinished":3600}
        metadata {"labels":{"app.kubernetes.io/managed-by":"sluice","app.kubernetes.io/name":"tf-runner","infra.sluice.dev/terraform":"net"},"name":"net-0123456789-7","namespace":"team","ownerReferences":[{"apiVersion":"infra.sluice.dev/v1alpha1","controller":true,"kind":"TerraformRun","name":"net-0123456789-7","uid":"r"}]}
        "#);
    }

    #[test]
    fn a_volume_of_the_stack_replaces_the_directory_of_its_pod() {
        let fields = json!({ "runnerPodTemplate": { "spec": {
            "volumes": [{ "name": "work", "persistentVolumeClaim": { "claimName": "net" } }],
            "volumeMounts": [{ "name": "work", "mountPath": "/tmp/" }],
        } } });
        let job = serde_json::to_value(job_of(&fields)).unwrap();
        let expected = json!([{ "name": "home", "mountPath": "/home/runner" }, { "name": "work", "mountPath": "/tmp/" }]);
        assert_eq!(
            job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"],
            expected
        );
    }

    #[test]
    fn a_security_context_without_a_user_leaves_the_groups_of_volumes_to_the_cluster() {
        let fields = json!({ "runnerPodTemplate": { "spec": { "securityContext": { "readOnlyRootFilesystem": true } } } });
        let job = serde_json::to_value(job_of(&fields)).unwrap();
        assert_eq!(job["spec"]["template"]["spec"].get("securityContext"), None);
    }

    #[test]
    fn the_pod_template_of_a_stack_applies_as_a_whole() {
        let job = job_of(&json!({
            "serviceAccountName": "deployer", "runnerTerminationGracePeriodSeconds": 120,
            "runnerPodTemplate": {
                "metadata": { "labels": { "team": "net", "app.kubernetes.io/name": "other",
                    "infra.sluice.dev/terraform": "other" }, "annotations": { "karpenter.sh/do-not-disrupt": "false" } },
                "spec": {
                    "image": "own:2", "affinity": { "nodeAffinity": {} }, "nodeSelector": { "disk": "ssd" }, "priorityClassName": "high",
                    "tolerations": [{ "key": "runs", "operator": "Exists" }],
                    "hostAliases": [{ "ip": "10.0.0.1", "hostnames": ["git.internal"] }],
                    "env": [{ "name": "IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
                        { "name": "TOKEN", "value": "in the bundle" }],
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
            // The controller and network policies find the pods of runs by them.
            ("/metadata/labels/infra.sluice.dev~1terraform", json!("net")),
            ("/metadata/labels/app.kubernetes.io~1name", json!("tf-runner")),
            ("/spec/containers/0/env/0/name", json!("IP")),
            ("/spec/containers/0/env/1/name", json!("POD_NAME")),
            ("/spec/containers/0/env/6/value", json!("own:2")),
            (
                "/metadata/annotations/karpenter.sh~1do-not-disrupt",
                json!("false"),
            ),
            ("/spec/serviceAccountName", json!("deployer")),
            ("/spec/terminationGracePeriodSeconds", json!(180)),
            (
                "/spec/nodeSelector",
                json!({ "disk": "ssd", "kubernetes.io/os": "linux" }),
            ),
            ("/spec/securityContext/fsGroup", json!(7)),
            ("/spec/affinity/nodeAffinity", json!({})),
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
}
