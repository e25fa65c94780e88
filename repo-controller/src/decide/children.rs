//! The objects that a `Repo` owns: a GitRepository and a Terraform object of its name.
//!
//! Of their fields the controller keeps those that follow from the spec of the `Repo`. Others have values that it sets at the
//! creation ([`source_object`], [`stack_object`]) or the defaults of their kinds, and users may change them.

use std::collections::BTreeMap;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, ObjectMeta};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use sluice_api::annotation::{REPO_SECRET, REQUESTED_AT};
use sluice_api::repo::{ApprovalMode, Repo};
use sluice_api::source::{GitRepository, expand_ssh_short_form};
use sluice_api::terraform::Terraform;
use sluice_runtime::status::difference;

use super::row::present_revision;
use super::{ChildWrite, Observed, backend, pending_request};

/// The label of these objects. An object without an owner that has it becomes one of them.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const MANAGER: &str = "repo-controller";
/// The selector of these objects.
pub(crate) const MANAGED_BY_SELECTOR: &str = "app.kubernetes.io/managed-by=repo-controller";
/// How often the branch is read, as in 2019.
const POLL_INTERVAL: &str = "30s";
/// The interval of reconciliations without a change, which do nothing: drift detection is off.
const STACK_INTERVAL: &str = "1h";

/// Who an object of the name of a `Repo` belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ownership {
    /// To this very `Repo`.
    Own,
    /// It has no owner; its label hands it over.
    Released,
    /// To another owner.
    Foreign,
}

fn ownership(repo: &Repo, object: &impl ResourceExt) -> Ownership {
    let owners = object.owner_references();
    let Some(controller) = owners.iter().find(|owner| owner.controller == Some(true)) else {
        let is_labelled = object
            .labels()
            .get(MANAGED_BY)
            .is_some_and(|name| name == MANAGER);
        return if is_labelled {
            Ownership::Released
        } else {
            Ownership::Foreign
        };
    };
    if repo.uid().is_some_and(|uid| uid == controller.uid) {
        Ownership::Own
    } else {
        Ownership::Foreign
    }
}

/// Returns the message about objects of the `Repo`'s name that belong to another owner.
pub(super) fn name_conflict(repo: &Repo, observed: &Observed) -> Option<String> {
    let is_foreign = |ownership| ownership == Ownership::Foreign;
    let source = observed.source.as_ref();
    let source = source.filter(|source| is_foreign(ownership(repo, *source)));
    let stack = observed.stack.as_ref();
    let stack = stack.filter(|stack| is_foreign(ownership(repo, *stack)));
    let kinds = source.map(|_| "GitRepository").into_iter();
    let kinds: Vec<&str> = kinds.chain(stack.map(|_| "Terraform")).collect();
    let name = repo.name_any();
    (!kinds.is_empty()).then(|| {
        format!(
            "{} {name:?} already exists and is not managed by Repo. Create the Repo under another name; or, if no other object \
             owns it, label it {MANAGED_BY}={MANAGER} to hand it over",
            kinds.join(" and ")
        )
    })
}

/// Returns the fields of the GitRepository that follow from the `Repo`. A Secret that only the GitRepository names is the user's; one
/// that the `Repo` named, and names no more, must not be sent to another host.
fn source_fields(repo: &Repo, source: Option<&GitRepository>) -> Value {
    let mut fields = content_fields(repo);
    if let Some(secret) = &repo.spec.secret_ref {
        fields["secretRef"] = json!(secret);
    } else if source.is_some_and(has_secret_of_repo) {
        fields["secretRef"] = Value::Null;
    }
    fields
}

/// Whether the GitRepository still names the Secret that a `Repo` named.
fn has_secret_of_repo(source: &GitRepository) -> bool {
    let written = source.annotations().get(REPO_SECRET);
    let current = source.spec.secret_ref.as_ref().map(|secret| &secret.name);
    written.is_some() && written == current
}

/// Returns the annotations of the GitRepository, as the fields of a merge patch.
fn source_annotations(repo: &Repo, source: Option<&GitRepository>) -> BTreeMap<&'static str, Value> {
    let desired = repo.spec.secret_ref.as_ref().map(|secret| &secret.name);
    let current = source.and_then(|source| source.annotations().get(REPO_SECRET));
    let change = (desired != current).then(|| (REPO_SECRET, json!(desired)));
    change.into_iter().collect()
}

/// Returns those of these fields that determine the content of an artifact. The kind has no short form of ssh, the one of 2019 had.
fn content_fields(repo: &Repo) -> Value {
    let url = expand_ssh_short_form(&repo.spec.url);
    json!({ "url": url, "ref": { "branch": repo.spec.branch } })
}

/// Returns the fields of the Terraform object that follow from the `Repo`, except `approvePlan`. A variable file that does not exist
/// fails the plan.
fn stack_fields(repo: &Repo, stack: Option<&Terraform>) -> Value {
    let workspace = &repo.spec.workspace;
    let is_named = !workspace.is_empty();
    let mut fields = json!({
        "sourceRef": { "kind": "GitRepository", "name": repo.name_any() },
        "tfVarsFiles": is_named.then(|| [format!("{workspace}.tfvars")]),
        "workspace": workspace_name(repo),
    });
    if let Some(backend) = backend::field(repo, stack) {
        fields["backendConfig"] = backend;
    }
    fields
}

fn workspace_name(repo: &Repo) -> &str {
    let workspace = &repo.spec.workspace;
    if workspace.is_empty() {
        "default"
    } else {
        workspace
    }
}

/// Whether the Terraform object has another workspace than the `Repo` names.
pub(super) fn workspace_differs(repo: &Repo, stack: &Terraform) -> bool {
    stack.spec.workspace_name() != workspace_name(repo)
}

/// Whether an existing stack must not apply without an approval yet. URL and workspace are fields of two objects: until the artifact is
/// that of the present URL, a new workspace would get the resources of the old repository.
fn withholds_auto(repo: &Repo, observed: &Observed) -> bool {
    let source = observed.source.as_ref();
    let is_read = source.is_some_and(|source| present_revision(repo, source).is_some());
    let stack = observed.stack.as_ref();
    !is_read && stack.is_some_and(|stack| stack.spec.approve_plan != "auto" || workspace_differs(repo, stack))
}

/// Returns `approvePlan` as a user set it in the Terraform object. It is empty for `auto`, which the Repo sets.
fn approval_of_user(stack: Option<&Terraform>) -> String {
    let current = stack.map(|stack| stack.spec.approve_plan.as_str());
    current
        .filter(|value| *value != "auto")
        .unwrap_or_default()
        .to_owned()
}

/// Returns `approvePlan` of the Terraform object. An approval is copied while its plan waits. Any other value that a user set there
/// stays, except `auto`, which would apply without an approval.
pub(super) fn approve_plan(repo: &Repo, stack: Option<&Terraform>) -> String {
    if repo.spec.approval == ApprovalMode::Auto {
        return "auto".to_owned();
    }
    let approved = &repo.spec.approve_plan;
    if !approved.is_empty() && stack.and_then(pending_plan) == Some(approved) {
        return approved.clone();
    }
    approval_of_user(stack)
}

/// Returns the id of the plan that waits for an approval.
pub(super) fn pending_plan(stack: &Terraform) -> Option<&String> {
    let plan = stack.status.as_ref()?.plan.as_ref()?;
    Some(&plan.pending).filter(|id| !id.is_empty())
}

/// Whether the GitRepository reads another URL or branch than the `Repo` names.
pub(super) fn source_differs(repo: &Repo, source: &GitRepository) -> bool {
    changed_fields(&source.spec, &content_fields(repo)).is_some()
}

/// Whether the Terraform object has another source, workspace or variable file than follows from the `Repo`. An approval does not
/// count: it changes what happens to a plan, not the plan.
pub(super) fn stack_differs(repo: &Repo, stack: &Terraform) -> bool {
    changed_fields(&stack.spec, &stack_fields(repo, Some(stack))).is_some()
}

/// Returns the merge patch of these fields, or `None` if the spec has them.
fn changed_fields(spec: &impl Serialize, desired: &Value) -> Option<Value> {
    let spec = serde_json::to_value(spec).unwrap_or_default();
    let current: serde_json::Map<String, Value> = desired
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(field, _)| Some((field.clone(), spec.get(field)?.clone())))
        .collect();
    difference(&Value::Object(current), desired)
}

/// Returns the write of the GitRepository.
pub(super) fn write_source(repo: &Repo, source: Option<&GitRepository>) -> Option<ChildWrite> {
    let fields = source_fields(repo, source);
    let annotations = source_annotations(repo, source);
    match source {
        None => Some(ChildWrite::Create(Box::new(source_object(
            repo,
            fields,
            &annotations,
        )))),
        Some(source) => patch(repo, source, changed_fields(&source.spec, &fields), &annotations),
    }
}

/// Returns the write of the Terraform object.
pub(super) fn write_stack(repo: &Repo, observed: &Observed) -> Option<ChildWrite> {
    let stack = observed.stack.as_ref();
    let mut fields = stack_fields(repo, stack);
    let approval = if withholds_auto(repo, observed) {
        approval_of_user(stack)
    } else {
        approve_plan(repo, stack)
    };
    fields["approvePlan"] = json!(Some(approval).filter(|value| !value.is_empty()));
    match stack {
        None => Some(ChildWrite::Create(Box::new(stack_object(repo, fields)))),
        Some(stack) => patch(
            repo,
            stack,
            changed_fields(&stack.spec, &fields),
            &BTreeMap::new(),
        ),
    }
}

/// Returns the write that ends automatic applies, and nothing else: it is due even if no other object can be written. `None`: the
/// object is not the `Repo`'s own, or its plans wait for an approval already.
pub(super) fn withdraw_auto(repo: &Repo, stack: Option<&Terraform>) -> Option<ChildWrite> {
    let stack = stack.filter(|stack| ownership(repo, *stack) == Ownership::Own)?;
    let is_due = repo.spec.approval == ApprovalMode::Manual && stack.spec.approve_plan == "auto";
    is_due.then(|| {
        let metadata = json!({ "resourceVersion": stack.resource_version() });
        ChildWrite::Patch(json!({ "metadata": metadata, "spec": { "approvePlan": null } }))
    })
}

fn source_object(repo: &Repo, mut spec: Value, annotations: &BTreeMap<&'static str, Value>) -> DynamicObject {
    spec["interval"] = json!(POLL_INTERVAL);
    let mut object = child::<GitRepository>(repo, spec);
    for (name, value) in annotations {
        let text = value.as_str().unwrap_or_default().to_owned();
        object.annotations_mut().insert((*name).to_owned(), text);
    }
    object
}

/// One run per commit, as in 2019: no drift detection, and no retry of a failed run. A deletion destroys nothing by default.
fn stack_object(repo: &Repo, mut spec: Value) -> DynamicObject {
    spec["interval"] = json!(STACK_INTERVAL);
    spec["disableDriftDetection"] = json!(true);
    spec["remediation"] = json!({ "retries": 0 });
    child::<Terraform>(repo, spec)
}

/// Returns a new object that this `Repo` owns.
fn child<K>(repo: &Repo, spec: Value) -> DynamicObject
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let spec = without_nulls(spec);
    let mut object = DynamicObject::new(&repo.name_any(), &ApiResource::erase::<K>(&()));
    object.metadata = ObjectMeta {
        annotations: pending_request(repo).map(|token| [(REQUESTED_AT.to_owned(), token.to_owned())].into()),
        labels: Some([(MANAGED_BY.to_owned(), MANAGER.to_owned())].into()),
        name: Some(repo.name_any()),
        namespace: repo.namespace(),
        owner_references: owner(repo).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    object.data(json!({ "spec": spec }))
}

fn without_nulls(mut spec: Value) -> Value {
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    spec
}

/// Returns the owner reference. A deletion of the `Repo` does not wait for the object, so the controller needs no permission on
/// the finalizers of its owner.
fn owner(repo: &Repo) -> Option<OwnerReference> {
    repo.controller_owner_ref(&()).map(|owner| OwnerReference {
        block_owner_deletion: None,
        ..owner
    })
}

/// Returns the patch of an existing object: fields of its spec, owner, label, annotations and reconcile request.
fn patch(
    repo: &Repo,
    object: &impl ResourceExt,
    spec: Option<Value>,
    annotations: &BTreeMap<&'static str, Value>,
) -> Option<ChildWrite> {
    let mut body = json!({ "metadata": {} });
    let metadata = &mut body["metadata"];
    if object.labels().get(MANAGED_BY).is_none_or(|name| name != MANAGER) {
        metadata["labels"] = json!({ MANAGED_BY: MANAGER });
    }
    if ownership(repo, object) != Ownership::Own {
        let owners = object.owner_references().iter().cloned().chain(owner(repo));
        metadata["ownerReferences"] = json!(owners.collect::<Vec<_>>());
    }
    let request = pending_request(repo);
    let current = object.annotations().get(REQUESTED_AT).map(String::as_str);
    let mut annotations = annotations.clone();
    if let Some(token) = request.filter(|token| Some(*token) != current) {
        annotations.insert(REQUESTED_AT, json!(token));
    }
    if !annotations.is_empty() {
        metadata["annotations"] = json!(annotations);
    }
    let is_unchanged = metadata.as_object().is_some_and(serde_json::Map::is_empty);
    if is_unchanged && spec.is_none() {
        return None;
    }
    metadata["resourceVersion"] = json!(object.resource_version());
    if let Some(spec) = spec {
        body["spec"] = spec;
    }
    Some(ChildWrite::Patch(body))
}
