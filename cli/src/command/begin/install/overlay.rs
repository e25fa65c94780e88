//! The objects of an installation: the overlays of `config/overlays`, as `make manifests` renders them, and their setup. Pure.

use serde::Deserialize as _;
use serde_json::Value;

use crate::CliError;

/// The registry in the manifests, whose name never resolves (RFC 6761).
const REGISTRY: &str = "sluice.invalid/";
/// The namespace of the overlays without Flux.
const NAMESPACE: &str = include_str!("../../../../../config/namespace/namespace.yaml");

/// The overlays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Overlay {
    /// Both controllers, in a cluster without Flux.
    Standalone,
    /// The tf-controller beside Flux.
    WithFlux,
    /// Both controllers, in place of Flux's source-controller.
    ReplaceFlux,
    /// Both controllers, for the objects of one namespace.
    SingleNamespace,
    /// Both controllers, for tenants who do not trust each other.
    MultiTenant,
    /// Both controllers, for nodes that may fail.
    Ha,
}

impl Overlay {
    /// Returns the name of the directory.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::WithFlux => "with-flux",
            Self::ReplaceFlux => "replace-flux",
            Self::SingleNamespace => "single-namespace",
            Self::MultiTenant => "multi-tenant",
            Self::Ha => "ha",
        }
    }

    /// Returns the namespace of the controllers.
    pub(super) const fn namespace(self) -> &'static str {
        match self {
            Self::WithFlux | Self::ReplaceFlux => "flux-system",
            Self::Standalone | Self::SingleNamespace | Self::MultiTenant | Self::Ha => "sluice-system",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Standalone => include_str!("../../../../manifests/standalone.yaml"),
            Self::WithFlux => include_str!("../../../../manifests/with-flux.yaml"),
            Self::ReplaceFlux => include_str!("../../../../manifests/replace-flux.yaml"),
            Self::SingleNamespace => include_str!("../../../../manifests/single-namespace.yaml"),
            Self::MultiTenant => include_str!("../../../../manifests/multi-tenant.yaml"),
            Self::Ha => include_str!("../../../../manifests/ha.yaml"),
        }
    }

    /// Returns what the removal of an installation leaves: the namespace, which may have other objects, and the definitions, whose
    /// deletion deletes all objects.
    ///
    /// # Errors
    /// A manifest of this program is not valid: a bug.
    pub(super) fn setup(self) -> Result<Vec<Value>, CliError> {
        let mut objects = match self {
            Self::WithFlux | Self::ReplaceFlux => Vec::new(),
            Self::Standalone | Self::SingleNamespace | Self::MultiTenant | Self::Ha => documents(NAMESPACE)?,
        };
        for definition in sluice_api::crds() {
            // Beside Flux the definition of sources is Flux's.
            if self == Self::WithFlux && definition.spec.group == "source.toolkit.fluxcd.io" {
                continue;
            }
            let object = serde_json::to_value(definition);
            objects.push(object.map_err(|error| CliError::Format(error.to_string()))?);
        }
        Ok(objects)
    }

    /// Returns controllers, roles and network policies.
    ///
    /// # Errors
    /// A manifest of this program is not valid: a bug.
    pub(super) fn objects(self) -> Result<Vec<Value>, CliError> {
        documents(self.text())
    }
}

fn documents(text: &str) -> Result<Vec<Value>, CliError> {
    let mut objects = Vec::new();
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let object = Value::deserialize(document).map_err(|error| CliError::Format(error.to_string()))?;
        if !object.is_null() {
            objects.push(object);
        }
    }
    Ok(objects)
}

/// Names the images: those of the controllers, and that of runs in a variable.
pub(super) fn set_images(value: &mut Value, registry: &str, tag: Option<&str>) {
    match value {
        Value::String(text) => {
            if let Some(image) = text.strip_prefix(REGISTRY) {
                *text = image_of(image, registry.trim_end_matches('/'), tag);
            }
        }
        Value::Array(values) => {
            for value in values {
                set_images(value, registry, tag);
            }
        }
        Value::Object(fields) => {
            for value in fields.values_mut() {
                set_images(value, registry, tag);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn image_of(image: &str, registry: &str, tag: Option<&str>) -> String {
    match (tag, image.split_once(':')) {
        (Some(tag), Some((name, _))) => format!("{registry}/{name}:{tag}"),
        _ => format!("{registry}/{image}"),
    }
}

/// Returns who else than this program has applied an object; empty: it belongs to this program alone.
#[must_use]
pub(super) fn other_appliers<'a>(managers: &'a [Value], own: &str) -> Vec<&'a str> {
    let creators = ["kubectl-client-side-apply", "kubectl-create", "helm"];
    managers
        .iter()
        .filter(|entry| field(entry, "operation") == "Apply" || creators.contains(&field(entry, "manager")))
        .map(|entry| field(entry, "manager"))
        .filter(|manager| *manager != own)
        .collect()
}

/// Returns whether this program has applied an object.
#[must_use]
pub(super) fn is_applied_by(managers: &[Value], own: &str) -> bool {
    managers
        .iter()
        .any(|entry| field(entry, "operation") == "Apply" && field(entry, "manager") == own)
}

fn field<'a>(entry: &'a Value, name: &str) -> &'a str {
    entry[name].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_overlay_has_its_controllers_in_its_namespace() {
        for overlay in Overlay::value_variants() {
            let objects = overlay.objects().unwrap();
            let deployments: Vec<_> = objects
                .iter()
                .filter(|object| object["kind"] == "Deployment")
                .collect();
            let expected = if *overlay == Overlay::WithFlux { 1 } else { 2 };
            assert_eq!(deployments.len(), expected, "{}", overlay.name());
            for deployment in deployments {
                assert_eq!(deployment["metadata"]["namespace"], overlay.namespace());
            }
            let is_setup = |object: &&Value| {
                object["kind"] == "Namespace" || object["kind"] == "CustomResourceDefinition"
            };
            assert_eq!(objects.iter().filter(is_setup).count(), 0, "{}", overlay.name());
            let setup = overlay.setup().unwrap();
            assert!(setup.iter().all(|object| is_setup(&object)), "{}", overlay.name());
        }
    }

    #[test]
    fn beside_flux_the_definition_of_sources_is_not_installed() {
        let names = |overlay: Overlay| -> Vec<String> {
            let setup = overlay.setup().unwrap();
            setup
                .iter()
                .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
                .collect()
        };
        let source = "gitrepositories.source.toolkit.fluxcd.io".to_owned();
        assert!(!names(Overlay::WithFlux).contains(&source));
        assert!(names(Overlay::ReplaceFlux).contains(&source));
        assert_eq!(names(Overlay::Standalone)[0], "sluice-system");
    }

    #[test]
    fn all_images_are_those_of_the_registry() {
        for overlay in Overlay::value_variants() {
            let mut objects = json!(overlay.objects().unwrap());
            set_images(&mut objects, "registry.example.com:5000/sluice/", Some("2.0.0"));
            let text = objects.to_string();
            assert!(!text.contains(".invalid"), "{}", overlay.name());
            for image in ["tf-controller", "tf-runner"] {
                let image = format!("\"registry.example.com:5000/sluice/{image}:2.0.0\"");
                assert!(text.contains(&image), "{}: {image}", overlay.name());
            }
        }
    }

    #[test]
    fn what_others_have_applied_is_theirs() {
        let entry = |operation: &str, manager: &str| json!({"operation": operation, "manager": manager});
        let ours = [
            entry("Apply", "sluice"),
            entry("Update", "kube-controller-manager"),
        ];
        assert_eq!(other_appliers(&ours, "sluice"), Vec::<&str>::new());
        assert!(is_applied_by(&ours, "sluice"));
        let shared = [entry("Apply", "flux"), entry("Apply", "sluice")];
        assert_eq!(other_appliers(&shared, "sluice"), ["flux"]);
        let kubectl = [entry("Update", "kubectl-client-side-apply")];
        assert_eq!(other_appliers(&kubectl, "sluice"), ["kubectl-client-side-apply"]);
        assert!(!is_applied_by(&kubectl, "sluice"));
    }
}
