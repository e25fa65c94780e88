//! The objects and the module of a trial's stack, and the orders of its provider.

use std::time::Duration;

use serde_json::{Value, json};

use super::fault::{Fault, QUOTA_EXCEEDED};
use super::moment::Moment;
use super::stack::Stack;
use crate::tenant::pods_with_provider;

/// How long the provider works in the step of the moment after the release.
const STEP: Duration = Duration::from_secs(6);

/// The Secret and the ConfigMap with variables of the module.
pub(super) const INPUTS: &str = "inputs";
/// The deadline of a run whose CLI hangs.
const SHORT_DEADLINE: &str = "40s";
/// Seconds after which a CLI is killed that ignores its interrupt.
const SHORT_GRACE: u32 = 10;
/// The memory limit of a pod.
const MEMORY_LIMIT: &str = "512Mi";
/// What the provider takes beyond it.
const TAKEN_MEBIBYTES: u32 = 1024;
/// The volume of a run's working directory, whose size the kernel enforces, and the size: a disk that can be full.
const DISK: &str = "disk";
const DISK_SIZE: &str = "128Mi";
/// No drift check and no poll is due during a trial.
const INTERVAL: &str = "24h";

/// The module after the block of the provider.
pub(super) const RESOURCES: &str = r#"
variable "content" {
  default = "one"
}
variable "note" {
  default = ""
}
resource "trial_thing" "first" {
  name    = "first"
  content = var.content
}
resource "trial_thing" "second" {
  name    = "second"
  content = trial_thing.first.id
}
output "first" {
  value = trial_thing.first.random
}
"#;

impl Stack {
    pub(super) fn source(&self) -> Value {
        json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": self.name, "namespace": self.namespace },
            "spec": { "interval": INTERVAL, "url": self.url, "ref": { "branch": "main" } },
        })
    }

    pub(super) fn manifest(&self) -> Value {
        let fault = self.trial.fault;
        let mut spec = json!({
            "interval": INTERVAL, "retryInterval": "3s", "path": "./",
            "approvePlan": if self.trial.is_manual { "" } else { "auto" },
            "sourceRef": { "kind": "GitRepository", "name": self.name },
            "varsFrom": [{ "kind": "Secret", "name": INPUTS }, { "kind": "ConfigMap", "name": INPUTS }],
            "writeOutputsToSecret": { "name": format!("{}-outputs", self.name) },
            "runnerPodTemplate": pods_with_provider(&self.provider),
        });
        match fault {
            _ if fault.needs_deadline() => {
                spec["runDeadline"] = json!(SHORT_DEADLINE);
                spec["runnerTerminationGracePeriodSeconds"] = json!(SHORT_GRACE);
            }
            Fault::ExhaustMemory => {
                let limits = json!({ "limits": { "memory": MEMORY_LIMIT } });
                spec["runnerPodTemplate"]["spec"]["resources"] = limits;
            }
            Fault::FillDisk => {
                let pod = &mut spec["runnerPodTemplate"]["spec"];
                let disk = json!({ "medium": "Memory", "sizeLimit": DISK_SIZE });
                add(pod, "volumes", json!({ "name": DISK, "emptyDir": disk }));
                add(pod, "volumeMounts", json!({ "name": DISK, "mountPath": "/tmp" }));
            }
            _ => {}
        }
        json!({
            "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": { "name": self.name, "namespace": self.namespace },
            "spec": spec,
        })
    }
}

/// Adds an element to a list of a pod template.
fn add(pod: &mut Value, field: &str, element: Value) {
    if let Some(list) = pod[field].as_array_mut() {
        list.push(element);
    }
}

/// Returns what the provider does in the step of the moment, until [`Stack::release`].
pub(super) fn behaviour(fault: Fault, moment: Moment) -> Value {
    let Some(step) = moment.held_step() else {
        return json!({});
    };
    let delay = moment.step().map_or(Duration::ZERO, |_| STEP);
    let order = match fault {
        Fault::CrashProvider => json!({ "crash": true }),
        Fault::FailProvider => json!({ "fail": QUOTA_EXCEEDED }),
        Fault::HangProvider | Fault::IgnoreInterrupt => json!({ "hang": true }),
        Fault::ExhaustMemory => json!({ "memoryMiB": TAKEN_MEBIBYTES }),
        Fault::FillDisk => json!({ "fillDisk": true }),
        // Held until the release, however long that takes.
        _ => json!({ "hold": true, "delayMs": delay.as_millis() }),
    };
    json!({ "steps": { step: order }, "ignoreInterrupts": fault == Fault::IgnoreInterrupt })
}
