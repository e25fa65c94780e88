//! The CustomResourceDefinitions, generated from the types. They accept whatever upstream's schema accepts, contain no
//! nullable fields, and are small enough for `kubectl apply`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSON, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::repo::Repo;
use crate::run::{PlanApproval, TerraformRun};
use crate::source::GitRepository;
use crate::terraform::{Terraform, v1alpha1};

/// Returns the definitions of the kinds that every installation has, with all their versions.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let repository = finalize(GitRepository::crd(), Some(-1));
    let terraform = with_v1alpha1(finalize(Terraform::crd(), Some(-1)));
    let run = finalize(TerraformRun::crd(), None);
    let approval = finalize(PlanApproval::crd(), None);
    vec![repository, terraform, run, approval]
}

/// Returns the definitions of the kinds that only an optional controller serves.
#[must_use]
pub fn optional_crds() -> Vec<CustomResourceDefinition> {
    let mut repo = finalize(Repo::crd(), None);
    // The definition of 2019 is stored with `true`, which forbids the defaults of ours. A server-side apply changes only fields that
    // it names.
    repo.spec.preserve_unknown_fields = Some(false);
    vec![repo]
}

/// Post-processes a derived definition.
fn finalize(mut crd: CustomResourceDefinition, observed: Option<i64>) -> CustomResourceDefinition {
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    for version in &mut crd.spec.versions {
        let Some(root) = root(version) else { continue };
        remove_nullable(root);
        root_fields(root);
        if let Some(conditions) = at(root, "status.conditions") {
            condition_rules(conditions);
        }
        for path in ["spec.runnerPodTemplate.spec", "spec.vars"] {
            for field in at(root, path)
                .and_then(|schema| schema.properties.as_mut())
                .into_iter()
                .flatten()
            {
                strip_descriptions(field.1, true);
            }
            if let Some(items) = at(root, path).and_then(items) {
                for field in items.properties.iter_mut().flatten() {
                    strip_descriptions(field.1, true);
                }
            }
        }
        if let (Some(status), Some(generation)) = (at(root, "status"), observed) {
            status.default = Some(JSON(serde_json::json!({ "observedGeneration": generation })));
        }
    }
    crd
}

/// Adds the served, deprecated version v1alpha1.
fn with_v1alpha1(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let older: Vec<_> = crd.spec.versions.iter().cloned().map(to_v1alpha1).collect();
    crd.spec.versions.splice(0..0, older);
    crd
}

/// Derives v1alpha1 from v1alpha2 by removing the fields that v1alpha1 does not have.
fn to_v1alpha1(mut version: CustomResourceDefinitionVersion) -> CustomResourceDefinitionVersion {
    v1alpha1::VERSION.clone_into(&mut version.name);
    version.storage = false;
    version.deprecated = Some(true);
    version.deprecation_warning = Some(v1alpha1::DEPRECATION.to_owned());
    if let Some(root) = root(&mut version) {
        for path in v1alpha1::ABSENT_FIELDS {
            remove(root, path);
        }
        if let Some(spec) = at(root, "spec") {
            // The rules refer to fields that this version does not have.
            spec.x_kubernetes_validations = None;
        }
        if let Some(status) = at(root, "status") {
            status.default = None;
        }
    }
    version
}

/// Returns the schema of a version.
fn root(version: &mut CustomResourceDefinitionVersion) -> Option<&mut JSONSchemaProps> {
    version.schema.as_mut()?.open_api_v3_schema.as_mut()
}

/// Returns the schema at a dotted path of object fields.
fn at<'a>(root: &'a mut JSONSchemaProps, path: &str) -> Option<&'a mut JSONSchemaProps> {
    path.split('.')
        .try_fold(root, |schema, name| schema.properties.as_mut()?.get_mut(name))
}

/// Returns the schema of a list's items.
fn items(schema: &mut JSONSchemaProps) -> Option<&mut JSONSchemaProps> {
    match schema.items.as_mut()? {
        JSONSchemaPropsOrArray::Schema(items) => Some(items),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

/// Removes the field at a dotted path.
fn remove(root: &mut JSONSchemaProps, path: &str) {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    let parent = if parent.is_empty() {
        Some(root)
    } else {
        at(root, parent)
    };
    if let Some(schema) = parent {
        if let Some(properties) = &mut schema.properties {
            properties.remove(name);
        }
        if let Some(required) = &mut schema.required {
            required.retain(|field| field != name);
        }
    }
}

/// Applies a change to every schema directly below this one.
fn for_each_child(schema: &mut JSONSchemaProps, change: &mut dyn FnMut(&mut JSONSchemaProps)) {
    schema
        .properties
        .iter_mut()
        .flatten()
        .for_each(|(_, field)| change(field));
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => change(items),
        Some(JSONSchemaPropsOrArray::Schemas(list)) => list.iter_mut().for_each(&mut *change),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        change(values);
    }
}

/// Removes `nullable`, which the derive adds and upstream's generator does not.
fn remove_nullable(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for_each_child(schema, &mut remove_nullable);
}

/// Removes descriptions: those of nested pod fields alone exceed the size limit of `kubectl apply`.
fn strip_descriptions(schema: &mut JSONSchemaProps, keep_own: bool) {
    if !keep_own {
        schema.description = None;
    }
    for_each_child(schema, &mut |child| strip_descriptions(child, false));
}

/// Adds the root fields of every object, as `kubectl explain` shows them.
fn root_fields(root: &mut JSONSchemaProps) {
    let field = |type_: &str, description: Option<&str>| JSONSchemaProps {
        type_: Some(type_.to_owned()),
        description: description.map(str::to_owned),
        ..JSONSchemaProps::default()
    };
    let fields = root.properties.get_or_insert_default();
    fields.insert(
        "apiVersion".into(),
        field(
            "string",
            Some("Group and version of the schema that this object follows."),
        ),
    );
    fields.insert("kind".into(), field("string", Some("Kind of the object.")));
    fields.insert("metadata".into(), field("object", None));
}

/// Adds the validation rules of the Kubernetes API conventions for conditions, as upstream's generator writes them.
fn condition_rules(conditions: &mut JSONSchemaProps) {
    let Some(condition) = items(conditions) else {
        return;
    };
    let mut rule = |name: &str, change: &dyn Fn(&mut JSONSchemaProps)| {
        if let Some(field) = condition
            .properties
            .as_mut()
            .and_then(|fields| fields.get_mut(name))
        {
            change(field);
        }
    };
    rule("message", &|field| field.max_length = Some(32768));
    rule("observedGeneration", &|field| field.minimum = Some(0.0));
    rule("reason", &|field| {
        field.min_length = Some(1);
        field.max_length = Some(1024);
        field.pattern = Some("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$".into());
    });
    rule("status", &|field| {
        field.enum_ = Some(
            ["True", "False", "Unknown"]
                .map(|status| JSON(status.into()))
                .to_vec(),
        );
    });
    rule("type", &|field| {
        field.max_length = Some(316);
        field.pattern = Some(
            concat!(
                r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
                r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
            )
            .into(),
        );
    });
}
