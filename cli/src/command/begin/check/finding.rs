//! What a check found. The rules are pure: they get what was read, and the time.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use serde::Serialize;
use sluice_api::definition::missing_fields;
use sluice_api::run::TerraformRun;

use crate::command::begin::components::Component;
use crate::output::{Tone, counted};

/// The oldest minor version of Kubernetes 1 that is supported, as `kubeVersion` of the chart has it.
const OLDEST_MINOR: u32 = 29;
/// Clocks that differ by more make the expiry of Leases and heartbeats wrong.
const MAX_SKEW: SignedDuration = SignedDuration::from_secs(5);
/// Fields that are named before the rest is counted.
const NAMED_FIELDS: usize = 5;
/// Fields that only inform users. The definition of Flux, which stays beside Flux, lacks them.
const INFORMATIONAL_FIELDS: [&str; 1] = ["status.contentConfigChecksum"];
/// How definitions get all fields.
const DEFINITIONS_ADVICE: &str = "apply the definitions of this version: the setup of your overlay, crds of the chart, or sluice \
    install --registry REGISTRY";

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Outcome {
    /// All is well.
    Passed,
    /// It works, and may surprise.
    Warning,
    /// It does not work.
    Failed,
    /// It could not be checked, or does not exist here.
    Skipped,
}

impl Outcome {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "Passed",
            Self::Warning => "Warning",
            Self::Failed => "Failed",
            Self::Skipped => "Skipped",
        }
    }

    pub(super) const fn tone(self) -> Tone {
        match self {
            Self::Passed => Tone::Good,
            Self::Warning => Tone::Attention,
            Self::Failed => Tone::Bad,
            Self::Skipped => Tone::Muted,
        }
    }
}

/// A check and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// What was checked.
    pub(super) check: String,
    /// The result.
    pub(super) result: Outcome,
    /// What was found.
    pub(super) detail: String,
    /// The next command to type; empty: none is needed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) next: String,
}

impl Finding {
    pub(super) fn new(check: impl Into<String>, result: Outcome, detail: impl Into<String>) -> Self {
        Self {
            check: check.into(),
            result,
            detail: detail.into(),
            next: String::new(),
        }
    }

    pub(super) fn next(mut self, command: impl Into<String>) -> Self {
        self.next = command.into();
        self
    }
}

/// Judges the version of the API server by its numbers; a minor version may end in `+`.
#[must_use]
pub(super) fn of_version(major: &str, minor: &str, text: &str) -> Finding {
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    let result = match (major, digits.parse::<u32>()) {
        ("1", Ok(minor)) if minor < OLDEST_MINOR => Outcome::Failed,
        ("1", Ok(_)) => Outcome::Passed,
        _ => Outcome::Warning,
    };
    let finding = Finding::new("Kubernetes", result, text);
    match result {
        Outcome::Passed => finding,
        _ => finding.next(format!("use Kubernetes 1.{OLDEST_MINOR} or newer")),
    }
}

/// Judges the clocks: `served` is the time of the API server, between the two local times of its request.
#[must_use]
pub(super) fn of_clocks(before: Timestamp, served: Option<Timestamp>, after: Timestamp) -> Finding {
    let Some(served) = served else {
        return Finding::new("clocks", Outcome::Skipped, "the API server does not say its time");
    };
    // The header has whole seconds, so the time of the server is up to a second later.
    let (earliest, latest) = (served.duration_since(after), served.duration_since(before));
    let skew = if earliest > SignedDuration::ZERO {
        earliest
    } else if latest < SignedDuration::from_secs(-1) {
        latest
    } else {
        SignedDuration::ZERO
    };
    let detail = format!("the API server differs by {} s from this machine", skew.as_secs());
    if skew.abs() > MAX_SKEW {
        return Finding::new("clocks", Outcome::Warning, detail).next("set the clocks with NTP");
    }
    Finding::new("clocks", Outcome::Passed, detail)
}

/// Compares a definition of the API with ours.
#[must_use]
pub(super) fn of_definition(
    required: &CustomResourceDefinition,
    installed: Option<&CustomResourceDefinition>,
) -> Finding {
    let check = format!("definition of {}", required.spec.names.kind);
    let Some(installed) = installed else {
        return Finding::new(check, Outcome::Failed, "not installed").next(DEFINITIONS_ADVICE);
    };
    let (informational, missing): (Vec<String>, Vec<String>) = missing_fields(required, installed)
        .into_iter()
        .partition(|path| INFORMATIONAL_FIELDS.contains(&path.as_str()));
    if missing.is_empty() {
        let detail = if informational.is_empty() {
            "has all fields".to_owned()
        } else {
            format!(
                "has all fields but {}, which only informs",
                informational.join(", ")
            )
        };
        return Finding::new(check, Outcome::Passed, detail);
    }
    let named = missing.iter().take(NAMED_FIELDS).cloned().collect::<Vec<_>>();
    let rest = missing.len().saturating_sub(NAMED_FIELDS);
    let more = if rest == 0 {
        String::new()
    } else {
        format!(" and {rest} more")
    };
    let detail = format!("lacks {}{more}", named.join(", "));
    Finding::new(check, Outcome::Failed, detail).next(DEFINITIONS_ADVICE)
}

/// Judges the controllers: whether they are available, have the version of this program, and do not work on the same objects.
#[must_use]
pub(super) fn of_components(components: &[Component], client: &str) -> Vec<Finding> {
    let mut findings: Vec<Finding> = components
        .iter()
        .filter_map(|component| of_component(component, client))
        .collect();
    let runs = |name: &str| {
        let mut found = components.iter().filter(|component| component.name == name);
        found.any(|component| component.wanted.unwrap_or_default() > 0)
    };
    if runs("tofu-controller") && runs("tf-controller") {
        let detail = "tofu-controller and tf-controller both reconcile the Terraform objects";
        findings.push(Finding::new("controllers", Outcome::Failed, detail).next("sluice migrate"));
    }
    if findings.is_empty() {
        let detail = "no controller has a Deployment here, as with `sluice up`";
        findings.push(Finding::new("controllers", Outcome::Skipped, detail));
    }
    findings
}

/// A component without replicas is not a program: it is the image of runs.
fn of_component(component: &Component, client: &str) -> Option<Finding> {
    let (available, wanted) = (component.available?, component.wanted?);
    let Component {
        name,
        namespace,
        version,
        ..
    } = component;
    let check = format!("deployment {namespace}/{name}");
    let detail = format!("{version}, {available} of {wanted} available");
    let is_ours = matches!(name.as_str(), "tf-controller" | "repo-controller");
    Some(if available < wanted {
        Finding::new(check, Outcome::Failed, detail)
            .next(format!("kubectl -n {namespace} describe deployment {name}"))
    } else if wanted == 0 {
        Finding::new(check, Outcome::Warning, format!("{version}, scaled to 0"))
    } else if is_ours && version != client {
        Finding::new(
            check,
            Outcome::Warning,
            format!("{detail}; this program is {client}"),
        )
        .next("upgrade the controllers, or use the program of their version")
    } else {
        Finding::new(check, Outcome::Passed, detail)
    })
}

/// Judges a Lease of leader election: whether its holder renews it.
#[must_use]
pub(super) fn of_lease(lease: &Lease, now: Timestamp) -> Finding {
    let check = format!(
        "lease {}/{}",
        lease.namespace().unwrap_or_default(),
        lease.name_any()
    );
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.unwrap_or_default();
    let length = SignedDuration::from_secs(i64::from(spec.lease_duration_seconds.unwrap_or_default()));
    let is_renewed = spec
        .renew_time
        .is_some_and(|renewed| now.duration_since(renewed.0) <= length);
    if holder.is_empty() {
        Finding::new(check, Outcome::Warning, "it has no holder")
    } else if is_renewed {
        Finding::new(check, Outcome::Passed, format!("held by {holder}"))
    } else {
        Finding::new(check, Outcome::Warning, format!("{holder} does not renew it"))
    }
}

/// Counts the CLIs of runs: a stack whose CLI changes may not read its state any more.
#[must_use]
pub(super) fn of_runs(runs: &[TerraformRun]) -> Finding {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let statuses = runs.iter().filter_map(|run| run.status.as_ref());
    for tool in statuses.filter_map(|status| status.tool.as_ref()) {
        *counts
            .entry(format!("{} {}", tool.name, tool.version))
            .or_default() += 1;
    }
    if counts.is_empty() {
        return Finding::new("CLI of runs", Outcome::Skipped, "no run has recorded one");
    }
    let texts: Vec<_> = counts
        .iter()
        .map(|(tool, count)| format!("{tool} ({})", counted(*count, "run")))
        .collect();
    Finding::new("CLI of runs", Outcome::Passed, texts.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn old_versions_of_kubernetes_fail() {
        for (major, minor, result) in [
            ("1", "28", Outcome::Failed),
            ("1", "29+", Outcome::Passed),
            ("1", "34", Outcome::Passed),
            ("1", "", Outcome::Warning),
            ("2", "0", Outcome::Warning),
        ] {
            assert_eq!(of_version(major, minor, "v").result, result, "{major}.{minor}");
        }
    }

    #[test]
    fn clocks_may_differ_by_the_time_of_the_request_and_a_rounded_second() {
        let (before, after) = (time("2026-01-01T00:00:10.9Z"), time("2026-01-01T00:00:12.1Z"));
        for (served, result) in [
            ("2026-01-01T00:00:10Z", Outcome::Passed),
            ("2026-01-01T00:00:12Z", Outcome::Passed),
            ("2026-01-01T00:00:17Z", Outcome::Passed),
            ("2026-01-01T00:00:18Z", Outcome::Warning),
            ("2026-01-01T00:00:05Z", Outcome::Warning),
        ] {
            assert_eq!(
                of_clocks(before, Some(time(served)), after).result,
                result,
                "{served}"
            );
        }
        assert_eq!(of_clocks(before, None, after).result, Outcome::Skipped);
    }

    #[test]
    fn a_definition_that_lacks_fields_is_a_failure() {
        let ours = sluice_api::crds().remove(1);
        assert_eq!(of_definition(&ours, Some(&ours)).result, Outcome::Passed);
        assert_eq!(of_definition(&ours, None).detail, "not installed");
        let mut older = ours.clone();
        older.spec.versions.retain(|version| !version.storage);
        let finding = of_definition(&ours, Some(&older));
        assert_eq!(
            (finding.result, finding.detail.as_str()),
            (Outcome::Failed, "lacks version v1alpha2")
        );
        assert!(
            finding.next.contains("sluice install --registry "),
            "{}",
            finding.next
        );
    }

    #[test]
    fn the_definition_of_flux_is_no_failure() {
        let ours = sluice_api::crds().remove(0);
        let mut flux = serde_json::to_value(&ours).unwrap();
        let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
        let fields = flux.pointer_mut(status).unwrap().as_object_mut().unwrap();
        fields.remove("contentConfigChecksum").unwrap();
        let flux: CustomResourceDefinition = serde_json::from_value(flux).unwrap();
        let finding = of_definition(&ours, Some(&flux));
        assert_eq!(
            (finding.result, finding.detail.as_str()),
            (
                Outcome::Passed,
                "has all fields but status.contentConfigChecksum, which only informs"
            )
        );
    }

    fn component(name: &str, available: i32, wanted: i32) -> Component {
        Component {
            name: name.to_owned(),
            namespace: "flux-system".to_owned(),
            image: format!("r/{name}:1"),
            version: "1".to_owned(),
            available: Some(available),
            wanted: Some(wanted),
        }
    }

    #[test]
    fn two_controllers_of_the_same_objects_are_a_failure() {
        let results = |components: &[Component]| -> Vec<Outcome> {
            of_components(components, "1")
                .iter()
                .map(|finding| finding.result)
                .collect()
        };
        let (ours, theirs) = (
            component("tf-controller", 1, 1),
            component("tofu-controller", 1, 1),
        );
        assert_eq!(results(std::slice::from_ref(&ours)), [Outcome::Passed]);
        assert_eq!(
            results(&[ours.clone(), theirs]),
            [Outcome::Passed, Outcome::Passed, Outcome::Failed]
        );
        assert_eq!(
            results(&[ours, component("tofu-controller", 0, 0)]),
            [Outcome::Passed, Outcome::Warning]
        );
        assert_eq!(results(&[component("tf-controller", 0, 1)]), [Outcome::Failed]);
        assert_eq!(results(&[]), [Outcome::Skipped]);
        let newer = of_components(&[component("tf-controller", 1, 1)], "2");
        assert_eq!(newer[0].detail, "1, 1 of 1 available; this program is 2");
        assert!(
            newer[0].next.starts_with("upgrade the controllers"),
            "{}",
            newer[0].next
        );
    }

    #[test]
    fn a_lease_is_held_as_long_as_it_is_renewed() {
        let lease: Lease = serde_json::from_value(json!({"metadata": {"name": "l", "namespace": "n"},
            "spec": {"holderIdentity": "pod", "leaseDurationSeconds": 35, "renewTime": "2026-01-01T00:00:00.000000Z"}}))
        .unwrap();
        assert_eq!(
            of_lease(&lease, time("2026-01-01T00:00:35Z")).detail,
            "held by pod"
        );
        assert_eq!(
            of_lease(&lease, time("2026-01-01T00:00:36Z")).detail,
            "pod does not renew it"
        );
        assert_eq!(
            of_lease(&Lease::default(), time("2026-01-01T00:00:00Z")).detail,
            "it has no holder"
        );
    }
}
