//! The known differences of each case with their reasons. The suite fails if responses have other differences, or if a listed
//! difference no longer exists.

use crate::normalize::{ABSENT, Difference};

const PARSER: &str =
    "by design: the JSON parser words its own errors; status, reason and what is quoted are the same";
const MEDIA: &str = "by design: media types that are not served (protobuf) are not offered";
const EARLY: &str = "by design: a refused body is not searched further for unknown fields to warn about";

/// A case with known differences.
#[derive(Debug)]
pub(crate) struct KnownDifferences {
    /// The name of the case.
    pub(crate) case: &'static str,
    /// The reason.
    pub(crate) reason: &'static str,
    /// Path, the real server's value, the embedded API's value. A path begins with the number of the step. `*` in a value stands for
    /// any text.
    pub(crate) differences: &'static [Values],
}

impl KnownDifferences {
    /// Returns unlisted differences, and listed ones that do not exist.
    pub(crate) fn check(&self, found: &[Difference]) -> Vec<String> {
        let is_found = |listed: &Values, found: &Difference| {
            let (path, real, embedded) = listed;
            *path == found.path && fits(real, &found.real) && fits(embedded, &found.embedded)
        };
        let listed = self.differences.iter();
        let unlisted = found
            .iter()
            .filter(|found| !self.differences.iter().any(|listed| is_found(listed, found)));
        let missing = listed.filter(|listed| !found.iter().any(|found| is_found(listed, found)));
        unlisted
            .map(Difference::to_string)
            .chain(missing.map(|listed| format!("   listed and not found: {listed:?}")))
            .collect()
    }
}

/// Whether a text matches the pattern, in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((front, rest)) => text.strip_prefix(front).is_some_and(|text| {
            let starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            starts.into_iter().any(|at| fits(rest, &text[at..]))
        }),
    }
}

/// Path, the real server's value, the embedded API's value.
type Values = (&'static str, &'static str, &'static str);

const fn known(case: &'static str, reason: &'static str, differences: &'static [Values]) -> KnownDifferences {
    KnownDifferences {
        case,
        reason,
        differences,
    }
}

/// The values of messages that differ between a common start and end.
macro_rules! message {
    ($path:literal, $start:literal, $real:literal, $embedded:literal, $end:literal) => {
        &[(
            $path,
            concat!($start, $real, $end),
            concat!($start, $embedded, $end),
        )]
    };
}

/// As `message!`, for a body that cannot be parsed; both messages end with a quotation of it.
macro_rules! unparsable {
    ($real:literal, $embedded:literal, $body:literal) => {
        message! { "0.body.message",
        "the object provided is unrecognized (must be of type Widget): couldn't get version/kind; json parse error: ",
        $real, $embedded, $body }
    };
}

/// The messages about an unsupported content type: the real server supports one type more.
macro_rules! body_types {
    ($path:literal, $start:literal) => {
        message! { $path, $start, ": application/json, application/yaml, application/vnd.kubernetes.protobuf", ": application/json, application/yaml", "" }
    };
}

/// All cases with known differences.
pub(crate) const KNOWN: &[KnownDifferences] = &[
    KnownDifferences {
        case: "review: who am I",
        reason: "by design: a credential has no id",
        differences: &[(
            "0.body.status.userInfo.extra",
            "{\"authentication.kubernetes.io/credential-id\":[\"X509SHA256=*\"]}",
            ABSENT,
        )],
    },
    KnownDifferences {
        case: "token: of an account, and whose it is",
        reason: "by design: a credential has no id",
        differences: &[(
            "2.body.status.user.extra",
            "{\"authentication.kubernetes.io/credential-id\":[\"JTI=*\"]}",
            ABSENT,
        )],
    },
    known(
        "merge patch: not JSON",
        PARSER,
        message! { "1.body.message", "error decoding patch: ",
        "invalid character 'n' looking for beginning of object key string", "key must be a string at line 1 column 3", "" },
    ),
    known(
        "400: body is not JSON",
        PARSER,
        unparsable! {
        "invalid character 'n' looking for beginning of object key string", "key must be a string at line 1 column 3", " ({ nonsense)" },
    ),
    known(
        "400: empty body",
        PARSER,
        unparsable! {
        "unexpected end of JSON input", "EOF while parsing a value at line 1 column 0", " (<empty>)" },
    ),
    known(
        "400: body is a list",
        PARSER,
        unparsable! {
        "json: cannot unmarshal array into Go value of type struct {*}", "json: cannot unmarshal into Go value of type struct", " (5b5d)" },
    ),
    known(
        "secret: no object",
        PARSER,
        message! { "0.body.message", "Secret in version \"v1\" cannot be handled as a Secret: ",
        "json: cannot unmarshal string into Go struct field Secret.data of type map[string][]uint8",
        "invalid type: string \"text\", expected a map", "" },
    ),
    known(
        "config map: number for text",
        PARSER,
        message! { "0.body.message", "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: ",
        "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        "invalid type: integer `1`, expected a string", "" },
    ),
    known(
        "415: create as text",
        MEDIA,
        body_types! { "0.body.message",
        "the body of the request was in an unknown format - accepted media types include" },
    ),
    known(
        "415: replace as a form",
        MEDIA,
        body_types! { "1.body.message",
        "the body of the request was in an unknown format - accepted media types include" },
    ),
    known(
        "406: a response as a page",
        MEDIA,
        body_types! { "0.body.message", "only the following media types are accepted" },
    ),
    known(
        "400: another version",
        EARLY,
        &[(
            "0.headers.warning",
            "[\"299 - \\\"unknown field \\\\\\\"spec\\\\\\\"\\\"\"]",
            ABSENT,
        )],
    ),
    known(
        "422: object for a list",
        EARLY,
        &[(
            "0.headers.warning",
            "[\"299 - \\\"unknown field \\\\\\\"spec.tags.a\\\\\\\"\\\"\"]",
            ABSENT,
        )],
    ),
    KnownDifferences {
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
fn a_difference_is_identified_by_its_path_and_both_values() {
    let known = KnownDifferences {
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
        "the other difference no longer exists"
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
