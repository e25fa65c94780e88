//! The two servers, with the same definitions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize;
use sluice_embedded::{Embedded, Server};
use sluice_harness::cluster::ControlPlane;

use crate::side::Side;

/// Kinds made for the suite: what a schema can say, in the fewest fields.
const DEFINITIONS: &str = include_str!("definitions.yaml");

pub(crate) struct World {
    plane: ControlPlane,
    embedded: Embedded,
}

impl World {
    pub(crate) async fn start() -> Self {
        let plane = ControlPlane::start().await.unwrap();
        plane.apply(DEFINITIONS).await.unwrap();
        plane.start_controllers().unwrap();
        let documents = serde_yaml_ng::Deserializer::from_str(DEFINITIONS);
        let definitions = documents.map(|document| CustomResourceDefinition::deserialize(document).unwrap());
        let embedded = Server::builder().crds(definitions).build().unwrap();
        Self { plane, embedded }
    }

    pub(crate) async fn real(&self) -> Side {
        Side(self.plane.client().await.unwrap())
    }

    pub(crate) fn embedded(&self) -> Side {
        Side(self.embedded.client())
    }
}
