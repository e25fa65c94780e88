//! The `OpenAPI` v2 document. kubectl requests it if the v3 document of a kind has no patch operation or there is no such kind:
//! a Role in a manifest must not block the other objects.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The media type that kubectl requests.
pub(crate) const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

const TITLE: &str = "Kubernetes";
const VERSION: &str = "v1.34.0";

/// Returns the document with the schemas of all v3 documents.
pub(crate) fn document(documents: &BTreeMap<String, Value>) -> Value {
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

/// Returns the document without schemas in protobuf (`openapi_v2.Document` of gnostic): kubectl then skips its own validation,
/// and the server still validates.
pub(crate) fn protobuf() -> Vec<u8> {
    let info = [field(1, TITLE.as_bytes()), field(2, VERSION.as_bytes())].concat();
    [field(1, b"2.0"), field(2, &info), field(8, b""), field(9, b"")].concat()
}

/// Encodes a field of less than 128 bytes.
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
