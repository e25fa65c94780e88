//! The variables of a runner's container: those of the stack that take their values from the pod, and the runner's own. Pure.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector};
use kube::ResourceExt as _;
use sluice_api::run::TerraformRun;
use sluice_api::terraform::RunnerPodSpec;
use sluice_tf_core::run_input::RUN_UID;

use super::JobOptions;
use super::manifest::HOME;

/// Returns the stack's variables that take their values from the pod. The others are in the bundle.
pub(super) fn pod_fields(template: &RunnerPodSpec) -> impl Iterator<Item = EnvVar> {
    let is_of_pod = |variable: &&EnvVar| {
        let from = variable.value_from.as_ref();
        from.is_some_and(|from| from.field_ref.is_some() || from.resource_field_ref.is_some())
    };
    template.env.iter().filter(is_of_pod).cloned()
}

/// Returns the runner's own variables, which replace a stack's of the same name.
pub(super) fn environment(run: &TerraformRun, image: &str, options: &JobOptions) -> Vec<EnvVar> {
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
    .chain(
        [
            ("JOB_NAME", run.name_any().as_str()),
            // A later run may have the name of this one: the runner claims no other.
            (RUN_UID, run.uid().unwrap_or_default().as_str()),
            // For errors about what the image does not have.
            ("RUNNER_POD_IMAGE", image),
            ("HOME", HOME),
        ]
        .into_iter()
        .chain(passed)
        .map(value),
    )
    .collect()
}
