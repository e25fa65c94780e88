//! tofu-controller's rules for an object that it finds: what it begins when it starts, as far as they concern a stack that is
//! neither deleted nor forced, within its interval.

use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use std::{collections::BTreeSet, io::Read as _};

/// The fields of Sluice that tofu-controller's definition does not have.
pub(crate) const NOT_ITS: [&str; 7] = [
    "spec.autoApply",
    "spec.deletionPolicy",
    "spec.ignoreDrift",
    "spec.runDeadline",
    "spec.tool",
    "status.drift",
    "status.owedReconcileAt",
];
/// The conditions that it owns.
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

/// What it does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It waits for the interval.
    Nothing,
    /// It waits for a person.
    Approval,
    /// A plan that looks for drift.
    DriftCheck,
    /// A new plan.
    Plan,
    /// The plan that is stored under this id.
    ApplyStored(String),
}

/// What it does with this object, when its source has this revision.
pub(crate) fn next(object: &Value, revision: &str) -> Next {
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
    let called = (!requested.is_empty() && requested != text("/status/lastHandledReconcileAt"))
        || text("/status/lastPlanAt").is_empty()
        || (observed != 0 && observed != generation)
        || !pending.is_empty()
        || approved
        || attempted != revision
        || (number("/status/reconciliationFailures") > 0)
        || text("/status/lastSuccessfulReconcileAt").is_empty();
    if !called {
        return Next::Nothing;
    }
    let planned = number("/status/lastPlannedGeneration");
    let void = attempted != revision || (planned != 0 && planned != generation);
    if !pending.is_empty() && approved {
        return Next::ApplyStored(pending.to_owned());
    }
    if !pending.is_empty() && !void && approve != "auto" {
        return Next::Approval;
    }
    let steady = observed == generation
        && attempted == revision
        && text("/status/lastPlannedRevision") == revision
        && pending.is_empty();
    if steady { Next::DriftCheck } else { Next::Plan }
}

/// The plan file out of the Secrets that it finds by its labels, of which each has to name this id.
pub(crate) fn stored_plan(secrets: &[Secret], id: &str) -> Vec<u8> {
    assert!(!secrets.is_empty(), "no plan secrets found");
    let mark = |secret: &Secret, key: &str| {
        let marks = secret.metadata.annotations.as_ref();
        marks.and_then(|all| all.get(key)).cloned().unwrap_or_default()
    };
    let mut chunks: Vec<_> = secrets.iter().collect();
    chunks.sort_by_key(|secret| {
        mark(secret, "infra.contrib.fluxcd.io/plan-chunk")
            .parse()
            .unwrap_or(0_u32)
    });
    let mut packed = Vec::new();
    for chunk in chunks {
        assert_eq!(mark(chunk, "savedPlan"), id);
        packed.extend_from_slice(&chunk.data.as_ref().unwrap()["tfplan"].0);
    }
    let mut plan = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut plan).unwrap();
    plan
}

/// Nothing in the object is in its way.
pub(crate) fn assert_is_at_home(object: &Value) {
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
        assert!(known, "{name} would keep the object for ever");
    }
    for condition in list("/status/conditions") {
        let kind = condition["type"].as_str().unwrap();
        assert!(CONDITIONS.contains(&kind), "nobody would take away {kind}");
    }
    for field in NOT_ITS {
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

/// The fields of a version of a definition, by their paths.
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

/// What is compared is the definition of the release. Pods are described by the version of Kubernetes that each was made with.
#[test]
fn the_two_definitions_differ_in_our_fields_and_in_what_pods_are() {
    let ours = include_str!("../../../../config/crd/bases/infra.contrib.fluxcd.io_terraforms.yaml");
    let (ours, theirs) = (serde_yaml_ng::from_str(ours).unwrap(), super::left::definition());
    for version in ["v1alpha1", "v1alpha2"] {
        let (ours, theirs) = (fields(&ours, version), fields(&theirs, version));
        assert!(theirs.len() > 700, "{}", theirs.len());
        let pods = |field: &&String| field.starts_with(".spec.runnerPodTemplate.spec.volumes.");
        let missing: Vec<_> = theirs.difference(&ours).filter(|field| !pods(field)).collect();
        assert!(missing.is_empty(), "{version}: {missing:?}");
        let own: BTreeSet<_> = ours.difference(&theirs).filter(|field| !pods(field)).collect();
        // Of a field with fields of its own, the field.
        let own: BTreeSet<_> = own
            .into_iter()
            .map(|field| field.splitn(4, '.').skip(1).take(2).collect::<Vec<_>>().join("."))
            .collect();
        let wanted: BTreeSet<_> = NOT_ITS.iter().map(|field| (*field).to_owned()).collect();
        let wanted = if version == "v1alpha1" {
            BTreeSet::new()
        } else {
            wanted
        };
        assert_eq!(own, wanted, "{version}");
    }
}
