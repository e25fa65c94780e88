//! A model of tofu-controller: its next action for an object when it starts, limited to stacks that are neither deleted nor forced,
//! within their interval.

use std::collections::BTreeSet;
use std::io::Read as _;

use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;

/// Fields of Sluice that tofu-controller's definition lacks.
pub(crate) const OWN_FIELDS: [&str; 8] = [
    "spec.approval",
    "spec.autoApply",
    "spec.deletionPolicy",
    "spec.ignoreDrift",
    "spec.runDeadline",
    "spec.tool",
    "status.drift",
    "status.pendingReconcileRequest",
];
/// The conditions of tofu-controller.
const CONDITIONS: [&str; 8] = [
    "Apply",
    "HealthCheck",
    "Output",
    "Plan",
    "Ready",
    "Reconciling",
    "Stalled",
    "StateLocked",
];

/// The next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextAction {
    /// Wait for the interval.
    Nothing,
    /// Wait for approval.
    Approval,
    /// Plan for drift detection.
    DriftCheck,
    /// Create a plan.
    Plan,
    /// Apply the stored plan with this id.
    ApplyStored(String),
}

/// Returns the next action for this object if its source has this revision.
pub(crate) fn next_action(object: &Value, revision: &str) -> NextAction {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let number = |at: &str| object.pointer(at).and_then(Value::as_i64).unwrap_or_default();
    let (approve, pending) = (text("/spec/approvePlan"), text("/status/plan/pending"));
    let approved = match approve {
        "" => false,
        "auto" => !pending.is_empty(),
        id => pending.starts_with(id),
    };
    let attempted = text("/status/lastAttemptedRevision");
    let (generation, observed) = (
        number("/metadata/generation"),
        number("/status/observedGeneration"),
    );
    let requested = text("/metadata/annotations/reconcile.fluxcd.io~1requestedAt");
    let must_reconcile = (!requested.is_empty() && requested != text("/status/lastHandledReconcileAt"))
        || text("/status/lastPlanAt").is_empty()
        || (observed != 0 && observed != generation)
        || !pending.is_empty()
        || approved
        || attempted != revision
        || (number("/status/reconciliationFailures") > 0)
        || text("/status/lastSuccessfulReconcileAt").is_empty();
    if !must_reconcile {
        return NextAction::Nothing;
    }
    let planned = number("/status/lastPlannedGeneration");
    let outdated = attempted != revision || (planned != 0 && planned != generation);
    if !pending.is_empty() && approved {
        return NextAction::ApplyStored(pending.to_owned());
    }
    if !pending.is_empty() && !outdated && approve != "auto" {
        return NextAction::Approval;
    }
    let in_sync = observed == generation
        && attempted == revision
        && text("/status/lastPlannedRevision") == revision
        && pending.is_empty();
    if in_sync {
        NextAction::DriftCheck
    } else {
        NextAction::Plan
    }
}

/// Returns the plan from the Secrets found by labels, each of which must have this id.
pub(crate) fn stored_plan(secrets: &[Secret], id: &str) -> Vec<u8> {
    assert!(!secrets.is_empty(), "no plan secrets found");
    let annotation = |secret: &Secret, key: &str| {
        let annotations = secret.metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get(key))
            .cloned()
            .unwrap_or_default()
    };
    let mut chunks: Vec<_> = secrets.iter().collect();
    chunks.sort_by_key(|secret| {
        annotation(secret, "infra.contrib.fluxcd.io/plan-chunk")
            .parse()
            .unwrap_or(0_u32)
    });
    let mut packed = Vec::new();
    for chunk in chunks {
        assert_eq!(annotation(chunk, "savedPlan"), id);
        packed.extend_from_slice(&chunk.data.as_ref().unwrap()["tfplan"].0);
    }
    let mut plan = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut plan).unwrap();
    plan
}

/// Asserts that nothing in the object blocks tofu-controller.
pub(crate) fn assert_compatible(object: &Value) {
    let list = |at: &str| {
        object
            .pointer(at)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    for finalizer in list("/metadata/finalizers") {
        let name = finalizer.as_str().unwrap();
        let known = name == "finalizers.tf.contrib.fluxcd.io" || name.starts_with("tf.dependency.of.");
        assert!(known, "{name} would block deletion for ever");
    }
    for condition in list("/status/conditions") {
        let kind = condition["type"].as_str().unwrap();
        assert!(CONDITIONS.contains(&kind), "{kind} would never be removed");
    }
    for field in OWN_FIELDS {
        let at = format!("/{}", field.replace('.', "/"));
        assert_eq!(object.pointer(&at), None, "{field}");
    }
    let keys = |at: &str| object.pointer(at).and_then(Value::as_object).cloned();
    for at in ["/metadata/labels", "/metadata/annotations"] {
        let ours: Vec<_> = keys(at)
            .unwrap_or_default()
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        assert!(!ours.iter().any(|key| key.contains("sluice")), "{ours:?}");
    }
}

/// Returns the field paths of a version of a definition.
fn fields(definition: &Value, version: &str) -> BTreeSet<String> {
    fn walk(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            walk(field, &path, found);
            found.insert(path);
        }
        for below in ["items", "additionalProperties"] {
            if schema[below].is_object() {
                walk(&schema[below], path, found);
            }
        }
    }
    let mut found = BTreeSet::new();
    let versions = definition["spec"]["versions"].as_array().unwrap();
    let version = versions.iter().find(|one| one["name"] == version).unwrap();
    walk(&version["schema"]["openAPIV3Schema"], "", &mut found);
    found
}

/// Compares our definition with that of the release. Pod templates differ with the version of Kubernetes.
#[test]
fn the_two_definitions_differ_only_in_our_fields_and_in_pod_templates() {
    let ours = include_str!("../../../../config/crd/bases/infra.contrib.fluxcd.io_terraforms.yaml");
    let (ours, theirs) = (
        serde_yaml_ng::from_str(ours).unwrap(),
        sluice_harness::tofu_controller::definition().unwrap(),
    );
    for version in ["v1alpha1", "v1alpha2"] {
        let (ours, theirs) = (fields(&ours, version), fields(&theirs, version));
        assert!(theirs.len() > 700, "{}", theirs.len());
        let pods = |field: &&String| field.starts_with(".spec.runnerPodTemplate.spec.volumes.");
        let missing: Vec<_> = theirs.difference(&ours).filter(|field| !pods(field)).collect();
        assert!(missing.is_empty(), "{version}: {missing:?}");
        let own: BTreeSet<_> = ours.difference(&theirs).filter(|field| !pods(field)).collect();
        // For nested fields, only the outer field.
        let own: BTreeSet<_> = own
            .into_iter()
            .map(|field| field.splitn(4, '.').skip(1).take(2).collect::<Vec<_>>().join("."))
            .collect();
        let expected: BTreeSet<_> = OWN_FIELDS.iter().map(|field| (*field).to_owned()).collect();
        let expected = if version == "v1alpha1" {
            BTreeSet::new()
        } else {
            expected
        };
        assert_eq!(own, expected, "{version}");
    }
}
