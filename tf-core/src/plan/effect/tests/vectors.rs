//! The golden vectors that `docs/reference/plan-id.md` gives to other implementations.

use super::*;
use crate::plan::document;

const VECTORS: &str = include_str!("../../../../../docs/reference/plan-id-vectors.json");

#[test]
fn each_vector_has_its_text_and_its_digest() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let mut digests = std::collections::BTreeSet::new();
    for vector in vectors.as_array().unwrap() {
        let (name, inputs) = (&vector["name"], &vector["origin"]);
        let text = |member: &str| inputs[member].as_str().unwrap();
        let key = hex::decode(text("key")).unwrap();
        let inputs = PlanInputs {
            inputs: text("inputs"),
            modules: text("modules"),
            lock: text("lock").as_bytes(),
            last_apply: text("last_apply"),
            has_generated_files: inputs["made"] == true,
            key: &key,
        };
        // As text, because a reader of JSON rounds numbers.
        let plan = match vector["shown"].as_str() {
            Some(shown) => crate::plan::unsaved::document(shown),
            None => document::parse(vector["plan"].as_str().unwrap().as_bytes()),
        };
        let plan = plan.unwrap();
        let effect = Effect::new(&plan, &inputs);
        assert_eq!(vector["canonical"], effect.canonical(), "{name}");
        assert_eq!(vector["digest"], effect.digest().as_str(), "{name}");
        assert!(
            digests.insert(effect.digest().to_string()),
            "{name} says nothing new"
        );
    }
    assert_eq!(digests.len(), 45, "none is lost");
}
