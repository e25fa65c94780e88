//! The `OpenAPI` v2 document. kubectl asks for it where the v3 document of a kind offers no patch, or has no such kind: a
//! Role in a bundle must not keep the other objects from being applied.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The media type in which kubectl reads the document.
pub const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

const TITLE: &str = "Kubernetes";
const VERSION: &str = "v1.34.0";

/// The document with the schemas of all v3 documents.
#[must_use]
pub fn document(documents: &BTreeMap<String, Value>) -> Value {
    let mut definitions = Map::new();
    for document in documents.values() {
        let schemas = document["components"]["schemas"].as_object();
        for (name, schema) in schemas.into_iter().flatten() {
            let text = schema
                .to_string()
                .replace("#/components/schemas/", "#/definitions/");
            if let Ok(schema) = serde_json::from_str(&text) {
                definitions.insert(name.clone(), schema);
            }
        }
    }
    json!({
        "swagger": "2.0", "info": {"title": TITLE, "version": VERSION}, "paths": {}, "definitions": definitions,
    })
}

/// The document without schemas, in protobuf (`openapi_v2.Document` of gnostic): kubectl skips its own validation of kinds that
/// it does not name, and the server's remains.
#[must_use]
pub fn protobuf() -> Vec<u8> {
    let info = [field(1, TITLE.as_bytes()), field(2, VERSION.as_bytes())].concat();
    [field(1, b"2.0"), field(2, &info), field(8, b""), field(9, b"")].concat()
}

/// A field of bytes, shorter than 128.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap_or(0);
    [&[number << 3 | 2, length], bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_refer_to_definitions() {
        let v3 = json!({"components": {"schemas": {"a": {"$ref": "#/components/schemas/b"}, "b": {}}}});
        let document = document(&BTreeMap::from([("api/v1".to_owned(), v3)]));
        assert_eq!(document["definitions"]["a"]["$ref"], "#/definitions/b");
        assert_eq!(&protobuf()[..5], b"\x0a\x032.0");
    }
}
