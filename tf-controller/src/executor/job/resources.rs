//! The memory of a runner's container: what it requests, and what its run learns about it. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ResourceFieldSelector, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use sluice_tf_core::run_input::{DEFAULT_MEMORY_REQUEST, MEMORY_LIMIT};

use crate::memory::{MeasuredMemory, MemoryQuantity, MemoryRequest};

/// The name of memory in requests and limits.
const MEMORY: &str = "memory";

/// Returns the memory request that the controller sets. A template with a limit of memory has a request, too: Kubernetes makes it
/// equal to the limit, and a smaller one could take the pod out of the class Guaranteed.
pub(super) fn memory_request(
    template: Option<&ResourceRequirements>,
    measured: MeasuredMemory,
    setting: MemoryRequest,
) -> Option<MemoryQuantity> {
    let has_memory =
        |amounts: Option<&BTreeMap<String, Quantity>>| amounts.is_some_and(|all| all.contains_key(MEMORY));
    let sets_memory = |template: &ResourceRequirements| {
        has_memory(template.requests.as_ref()) || has_memory(template.limits.as_ref())
    };
    if template.is_some_and(sets_memory) {
        return None;
    }
    match setting {
        MemoryRequest::Measured => measured.request(),
        MemoryRequest::Fixed(fixed) => Some(fixed),
        MemoryRequest::Disabled => None,
    }
}

/// Returns the resources of the template, with this memory request.
pub(super) fn resources(
    template: Option<&ResourceRequirements>,
    request: Option<MemoryQuantity>,
) -> Option<ResourceRequirements> {
    let Some(request) = request else {
        return template.cloned();
    };
    let mut resources = template.cloned().unwrap_or_default();
    let requests = resources.requests.get_or_insert_default();
    requests.insert(MEMORY.to_owned(), Quantity(request.to_string()));
    Some(resources)
}

/// Returns the variables with what the container may use (its memory limit, or without one the allocatable memory of its node), and
/// with its memory request if the controller sets none. A measured request is only set where that is 0; beside a fixed one it is
/// not known.
pub(super) fn memory_variables(
    request: Option<MemoryQuantity>,
    setting: MemoryRequest,
) -> impl Iterator<Item = EnvVar> {
    let field = |name: &str, resource: &str| EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            resource_field_ref: Some(ResourceFieldSelector {
                resource: resource.to_owned(),
                ..ResourceFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    };
    let default_request = match (request, setting) {
        (None, _) => Some(field(DEFAULT_MEMORY_REQUEST, "requests.memory")),
        (Some(_), MemoryRequest::Measured) => Some(EnvVar {
            name: DEFAULT_MEMORY_REQUEST.to_owned(),
            value: Some("0".to_owned()),
            ..EnvVar::default()
        }),
        (Some(_), MemoryRequest::Fixed(_) | MemoryRequest::Disabled) => None,
    };
    [field(MEMORY_LIMIT, "limits.memory")]
        .into_iter()
        .chain(default_request)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns the resources and the variables of a container with this template whose runs peaked at 400 MiB.
    fn container(template: &Value, default_request: u64, setting: &str) -> (Value, Vec<EnvVar>) {
        let template: Option<ResourceRequirements> = serde_json::from_value(template.clone()).unwrap();
        let measured = MeasuredMemory {
            peak: Some(400 << 20),
            is_whole: true,
            limit: Some(8 << 30),
            default_request: Some(default_request),
        };
        let setting = setting.parse().unwrap();
        let request = memory_request(template.as_ref(), measured, setting);
        let resources = resources(template.as_ref(), request);
        (
            serde_json::to_value(resources).unwrap(),
            memory_variables(request, setting).collect(),
        )
    }

    #[test]
    fn the_memory_request_follows_from_the_measured_peak() {
        let found =
            |template: &Value, default_request, setting| container(template, default_request, setting).0;
        let request = |amount: &str| json!({ "requests": { "memory": amount } });
        assert_eq!(found(&Value::Null, 0, "measured"), request("532Mi"));
        assert_eq!(found(&Value::Null, 0, "256Mi"), request("256Mi"));
        assert_eq!(found(&Value::Null, 0, "none"), Value::Null);
        // What is not memory stays beside it.
        let processor = json!({ "limits": { "cpu": "1" }, "requests": { "cpu": "1" } });
        let with_memory = json!({ "limits": { "cpu": "1" }, "requests": { "cpu": "1", "memory": "532Mi" } });
        assert_eq!(found(&processor, 0, "measured"), with_memory);
        // A LimitRange gives the pods of this namespace a request: only the flag replaces it.
        assert_eq!(found(&Value::Null, 1 << 30, "measured"), Value::Null);
        assert_eq!(found(&Value::Null, 1 << 30, "256Mi"), request("256Mi"));
    }

    #[test]
    fn a_template_with_memory_stays_as_it_is() {
        for template in [
            json!({ "requests": { "memory": "1Gi" } }),
            json!({ "limits": { "memory": "512Mi" } }),
            // Guaranteed: Kubernetes makes the requests equal to the limits.
            json!({ "limits": { "cpu": "1", "memory": "2Gi" } }),
            json!({ "limits": { "cpu": "1", "memory": "2Gi" }, "requests": { "cpu": "1" } }),
        ] {
            for setting in ["measured", "256Mi", "none"] {
                assert_eq!(container(&template, 0, setting).0, template, "{setting}");
            }
        }
    }

    #[test]
    fn a_run_learns_what_its_pod_requests_without_the_controller() {
        let variables = |template: &Value, setting| {
            let variables = container(template, 0, setting).1;
            serde_json::to_value(variables).unwrap()
        };
        let field = |name: &str, resource: &str| json!({ "name": name, "valueFrom": { "resourceFieldRef": { "resource": resource } } });
        let limit = field("POD_MEMORY_LIMIT", "limits.memory");
        let request = field("POD_DEFAULT_MEMORY_REQUEST", "requests.memory");
        let zero = json!({ "name": "POD_DEFAULT_MEMORY_REQUEST", "value": "0" });
        assert_eq!(variables(&Value::Null, "none"), json!([limit, request]));
        assert_eq!(variables(&Value::Null, "measured"), json!([limit, zero]));
        assert_eq!(variables(&Value::Null, "256Mi"), json!([limit]), "not known");
        let limited = json!({ "limits": { "memory": "1Gi" } });
        for setting in ["measured", "256Mi", "none"] {
            assert_eq!(variables(&limited, setting), json!([limit, request]), "{setting}");
        }
    }
}
