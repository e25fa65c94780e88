//! Content negotiation: encoding and shape of responses. Pure.

use crate::status_error::StatusError;

/// The encoding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
}

/// The representation of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The objects themselves.
    Full,
    /// As rows of a meta.k8s.io/v1 Table.
    Table,
    /// As meta.k8s.io/v1 PartialObjectMetadata.
    Metadata,
}

/// The negotiated format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseFormat {
    /// Encoding.
    pub(crate) encoding: Encoding,
    /// Shape.
    pub(crate) shape: Shape,
}

impl ResponseFormat {
    /// Returns the first supported entry of an `Accept` header.
    pub(crate) fn parse(accept: &str) -> Result<Self, StatusError> {
        let accept = if accept.trim().is_empty() { "*/*" } else { accept };
        let format = accept.split(',').find_map(parse_entry);
        format.ok_or_else(StatusError::not_acceptable)
    }
}

fn parse_entry(text: &str) -> Option<ResponseFormat> {
    let mut parts = text.split(';').map(str::trim);
    let encoding = match parts.next()? {
        "application/json" | "*/*" | "application/*" => Encoding::Json,
        "application/yaml" | "application/x-yaml" | "text/yaml" => Encoding::Yaml,
        _ => return None,
    };
    let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
    let parameter = |name: &str| {
        let found = parameters.iter().find(|(key, _)| *key == name);
        found.map_or("", |(_, value)| *value)
    };
    let meta = parameter("g") == "meta.k8s.io" && parameter("v") == "v1";
    let shape = match parameter("as") {
        "" => Shape::Full,
        "Table" if meta => Shape::Table,
        "PartialObjectMetadata" | "PartialObjectMetadataList" if meta => Shape::Metadata,
        _ => return None,
    };
    Some(ResponseFormat { encoding, shape })
}

/// Whether an `Accept` header asks for aggregated discovery: its first supported entry decides. Of the versions only v2 is served, as
/// in kube-apiserver since 1.33.
pub(crate) fn accepts_aggregated_discovery(accept: &str) -> bool {
    let decides = accept.split(',').find_map(|entry| {
        if is_aggregated_discovery(entry) {
            return Some(true);
        }
        let format = parse_entry(entry)?;
        (format.shape == Shape::Full).then_some(false)
    });
    decides.unwrap_or(false)
}

fn is_aggregated_discovery(entry: &str) -> bool {
    let parts: Vec<&str> = entry.split(';').map(str::trim).collect();
    ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"]
        .iter()
        .all(|parameter| parts.contains(parameter))
        && parts.first() == Some(&"application/json")
}

/// Returns the media type of a `Content-Type` header, without parameters.
pub(crate) fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or("").trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregated_discovery_is_asked_for_by_the_first_supported_entry() {
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let v2beta1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        for (accept, expected) in [
            (format!("{v2},{v2beta1},application/json"), true),
            (format!("{v2beta1}, {v2}"), true),
            (
                "application/json; as=APIGroupDiscoveryList; v=v2; g=apidiscovery.k8s.io".into(),
                true,
            ),
            (format!("application/json,{v2}"), false),
            (format!("{v2beta1},application/json"), false),
            ("*/*".into(), false),
            (String::new(), false),
        ] {
            assert_eq!(accepts_aggregated_discovery(&accept), expected, "{accept}");
        }
    }

    #[test]
    fn the_first_supported_entry_wins() {
        let parse = |accept| ResponseFormat::parse(accept).map(|format| (format.encoding, format.shape));
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(parse(table), Ok((Encoding::Json, Shape::Table)));
        assert_eq!(
            parse("application/json;as=Table;v=v9;g=meta.k8s.io,application/json"),
            Ok((Encoding::Json, Shape::Full))
        );
        assert_eq!(
            parse("application/vnd.kubernetes.protobuf,application/json"),
            Ok((Encoding::Json, Shape::Full))
        );
        assert_eq!(parse("*/*"), Ok((Encoding::Json, Shape::Full)));
        assert_eq!(parse(""), Ok((Encoding::Json, Shape::Full)));
        assert_eq!(parse("application/yaml"), Ok((Encoding::Yaml, Shape::Full)));
        assert_eq!(
            parse("application/vnd.kubernetes.protobuf").unwrap_err().code(),
            406
        );
    }
}
