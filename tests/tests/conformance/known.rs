//! What is known to differ, case by case: in which values, and why. The suite fails when answers differ in anything that is not
//! listed here, and also when something that is listed has become the same.

use crate::normal::{ABSENT, Difference};

const PARSER: &str =
    "by design: the JSON parser words its own errors; status, reason and what is quoted are the same";
const MEDIA: &str = "by design: media types that are not served (apply patches, protobuf) are not offered";
const EARLY: &str = "by design: a refused body is not searched further for unknown fields to warn about";

/// A case whose answers are known to differ.
#[derive(Debug)]
pub(crate) struct Known {
    /// The name of the case.
    pub(crate) case: &'static str,
    /// Why they differ.
    pub(crate) reason: &'static str,
    /// In what: path, the real server's value, the embedded API's. The path begins with the number of the step. In values
    /// `*` stands for any text.
    pub(crate) differences: &'static [(&'static str, &'static str, &'static str)],
}

impl Known {
    /// What was found and is not listed, and what is listed and was not found.
    pub(crate) fn check(&self, found: &[Difference]) -> Vec<String> {
        let is_found = |listed: &(&str, &str, &str), found: &Difference| {
            let (path, real, embedded) = listed;
            *path == found.path && fits(real, &found.real) && fits(embedded, &found.embedded)
        };
        let listed = self.differences.iter();
        let unlisted = found
            .iter()
            .filter(|found| !self.differences.iter().any(|listed| is_found(listed, found)));
        let gone = listed.filter(|listed| !found.iter().any(|found| is_found(listed, found)));
        unlisted
            .map(Difference::to_string)
            .chain(gone.map(|listed| format!("   listed and not found: {listed:?}")))
            .collect()
    }
}

/// Whether a text is what the pattern says; `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((front, rest)) => text.strip_prefix(front).is_some_and(|text| {
            let starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            starts.into_iter().any(|at| fits(rest, &text[at..]))
        }),
    }
}

/// Every such case.
pub(crate) const KNOWN: &[Known] = &[
    Known {
        case: "list: chunked",
        reason: "by design: lists are not chunked: `limit` is ignored, which the API allows",
        differences: &[
            ("3.body.items[1]", ABSENT, "{*\"name\":\"three\"*}"),
            ("3.body.items[2]", ABSENT, "{*\"name\":\"two\"*}"),
            ("3.body.metadata.continue", "*", ABSENT),
            ("3.body.metadata.remainingItemCount", "2", ABSENT),
        ],
    },
    Known {
        case: "review: who am I",
        reason: "by design: a credential has no id",
        differences: &[(
            "0.body.status.userInfo.extra",
            "{\"authentication.kubernetes.io/credential-id\":[\"X509SHA256=*\"]}",
            ABSENT,
        )],
    },
    Known {
        case: "merge patch: not JSON",
        reason: PARSER,
        differences: &[(
            "1.body.message",
            "error decoding patch: invalid character 'n' looking for beginning of object key string",
            "error decoding patch: key must be a string at line 1 column 3",
        )],
    },
    Known {
        case: "400: body is not JSON",
        reason: PARSER,
        differences: &[(
            "0.body.message",
            "the object provided is unrecognized (must be of type Widget): couldn't get version/kind; json parse error: invalid character 'n' looking for beginning of object key string ({ nonsense)",
            "the object provided is unrecognized (must be of type Widget): couldn't get version/kind; json parse error: key must be a string at line 1 column 3 ({ nonsense)",
        )],
    },
    Known {
        case: "400: empty body",
        reason: PARSER,
        differences: &[(
            "0.body.message",
            "the object provided is unrecognized (must be of type Widget): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
            "the object provided is unrecognized (must be of type Widget): couldn't get version/kind; json parse error: EOF while parsing a value at line 1 column 0 (<empty>)",
        )],
    },
    Known {
        case: "400: body is a list",
        reason: PARSER,
        differences: &[(
            "0.body.message",
            "the object provided is unrecognized (must be of type Widget): couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct {*} (5b5d)",
            "the object provided is unrecognized (must be of type Widget): couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of type struct (5b5d)",
        )],
    },
    Known {
        case: "secret: no object",
        reason: PARSER,
        differences: &[(
            "0.body.message",
            "Secret in version \"v1\" cannot be handled as a Secret: json: cannot unmarshal string into Go struct field Secret.data of type map[string][]uint8",
            "Secret in version \"v1\" cannot be handled as a Secret: invalid type: string \"text\", expected a map",
        )],
    },
    Known {
        case: "config map: number for text",
        reason: PARSER,
        differences: &[(
            "0.body.message",
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: invalid type: integer `1`, expected a string",
        )],
    },
    Known {
        case: "patch: unknown content type",
        reason: MEDIA,
        differences: &[(
            "1.body.message",
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json",
        )],
    },
    Known {
        case: "patch: strategic merge of a custom resource",
        reason: MEDIA,
        differences: &[(
            "1.body.message",
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json",
        )],
    },
    Known {
        case: "415: create as text",
        reason: MEDIA,
        differences: &[(
            "0.body.message",
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml",
        )],
    },
    Known {
        case: "415: replace as a form",
        reason: MEDIA,
        differences: &[(
            "1.body.message",
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml",
        )],
    },
    Known {
        case: "406: an answer as a page",
        reason: MEDIA,
        differences: &[(
            "0.body.message",
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
            "only the following media types are accepted: application/json, application/yaml",
        )],
    },
    Known {
        case: "400: another version",
        reason: EARLY,
        differences: &[(
            "0.headers.warning",
            "[\"299 - \\\"unknown field \\\\\\\"spec\\\\\\\"\\\"\"]",
            ABSENT,
        )],
    },
    Known {
        case: "422: object for a list",
        reason: EARLY,
        differences: &[(
            "0.headers.warning",
            "[\"299 - \\\"unknown field \\\\\\\"spec.tags.a\\\\\\\"\\\"\"]",
            ABSENT,
        )],
    },
    Known {
        case: "410: a version that is too old",
        reason: "not comparable: version 1 is before the real watch cache began, and is still held by a new embedded store",
        differences: &[
            ("6.body[0].type", "ERROR", "ADDED"),
            ("6.body[0].object.apiVersion", "v1", "conformance.sluice.dev/v1"),
            ("6.body[0].object.code", "410", ABSENT),
            ("6.body[0].object.kind", "Status", "Widget"),
            (
                "6.body[0].object.message",
                "too old resource version: 1 (<version>)",
                ABSENT,
            ),
            ("6.body[0].object.reason", "Expired", ABSENT),
            ("6.body[0].object.status", "Failure", ABSENT),
            ("6.body[0].object.metadata.creationTimestamp", ABSENT, "<time>"),
            ("6.body[0].object.metadata.generation", ABSENT, "1"),
            ("6.body[0].object.metadata.labels", ABSENT, "{\"team\":\"x\"}"),
            ("6.body[0].object.metadata.name", ABSENT, "a"),
            ("6.body[0].object.metadata.namespace", ABSENT, "case-*"),
            ("6.body[0].object.metadata.resourceVersion", ABSENT, "<version>"),
            ("6.body[0].object.metadata.uid", ABSENT, "<uid>"),
            ("6.body[0].object.spec", ABSENT, "{\"color\":\"red\",*}"),
        ],
    },
];

#[test]
fn a_difference_is_known_by_its_path_and_both_values() {
    let known = Known {
        case: "a case",
        reason: "by design",
        differences: &[
            ("0.body.message", "real *: 7", "embedded"),
            ("1.body", ABSENT, "*"),
        ],
    };
    let found = |path: &str, real: &str, embedded: &str| Difference {
        path: path.to_owned(),
        real: real.to_owned(),
        embedded: embedded.to_owned(),
    };
    let listed = [
        found("0.body.message", "real words: 7", "embedded"),
        found("1.body", ABSENT, "anything"),
    ];
    assert!(known.check(&listed).is_empty());
    assert_eq!(
        known.check(&listed[..1]).len(),
        1,
        "the other has become the same"
    );
    for other in [
        found("0.body.reason", "real words: 7", "embedded"),
        found("0.body.message", "real words: 8", "embedded"),
        found("0.body.message", "real words: 7", "embedded words"),
    ] {
        let wrong = known.check(&[listed[0].clone(), listed[1].clone(), other]);
        assert_eq!(wrong.len(), 1, "{wrong:?}");
    }
}
