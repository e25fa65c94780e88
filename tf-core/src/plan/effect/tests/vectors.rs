//! The golden vectors that `docs/reference/plan-id.md` gives to other implementations.

use super::*;
use crate::plan::document;

const VECTORS: &str = include_str!("../../../../../docs/reference/plan-id-vectors.json");

#[test]
fn each_vector_has_its_text_and_its_digest() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for vector in vectors.as_array().unwrap() {
        let (name, origin) = (&vector["name"], &vector["origin"]);
        let text = |member: &str| origin[member].as_str().unwrap();
        let key = hex::decode(text("key")).unwrap();
        let origin = Origin {
            inputs: text("inputs"),
            modules: text("modules"),
            lock: text("lock").as_bytes(),
            last_apply: text("last_apply"),
            made: origin["made"] == true,
            key: &key,
        };
        // As text, because a reader of JSON rounds numbers.
        let plan = match vector["shown"].as_str() {
            Some(shown) => crate::plan::shown::document(shown),
            None => document::parse(vector["plan"].as_str().unwrap().as_bytes()),
        };
        let plan = plan.unwrap();
        let effect = Effect::new(&plan, &origin);
        assert_eq!(vector["canonical"], effect.canonical(), "{name}");
        assert_eq!(vector["digest"], effect.digest().as_str(), "{name}");
        assert!(
            seen.insert(effect.digest().to_string()),
            "{name} says nothing new"
        );
    }
    assert_eq!(seen.len(), 45, "none is lost");
}
