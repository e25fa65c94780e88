//! Fields of roles, reviews, token requests and scales: `generated.proto` of
//! k8s.io/api/{rbac,authorization,authentication,autoscaling}/v1.

use super::tables::{Field, FieldType, OBJECT_META};

const METADATA: Field = (1, "metadata", FieldType::Message(OBJECT_META));
/// The status, which the server writes.
const STATUS: Field = (3, "status", FieldType::Ignored);

const POLICY_RULE: &[Field] = &[
    (1, "verbs", FieldType::Strings),
    (2, "apiGroups", FieldType::Strings),
    (3, "resources", FieldType::Strings),
    (4, "resourceNames", FieldType::Strings),
    (5, "nonResourceURLs", FieldType::Strings),
];
const LABEL_SELECTOR: &[Field] = &[
    (1, "matchLabels", FieldType::StringMap),
    (
        2,
        "matchExpressions",
        FieldType::Messages(&[
            (1, "key", FieldType::String),
            (2, "operator", FieldType::String),
            (3, "values", FieldType::Strings),
        ]),
    ),
];
pub(super) const ROLE: &[Field] = &[METADATA, (2, "rules", FieldType::Messages(POLICY_RULE))];
pub(super) const CLUSTER_ROLE: &[Field] = &[
    METADATA,
    (2, "rules", FieldType::Messages(POLICY_RULE)),
    (
        3,
        "aggregationRule",
        FieldType::Message(&[(1, "clusterRoleSelectors", FieldType::Messages(LABEL_SELECTOR))]),
    ),
];
pub(super) const ROLE_BINDING: &[Field] = &[
    METADATA,
    (
        2,
        "subjects",
        FieldType::Messages(&[
            (1, "kind", FieldType::String),
            (2, "apiGroup", FieldType::String),
            (3, "name", FieldType::String),
            (4, "namespace", FieldType::String),
        ]),
    ),
    (
        3,
        "roleRef",
        FieldType::Message(&[
            (1, "apiGroup", FieldType::String),
            (2, "kind", FieldType::String),
            (3, "name", FieldType::String),
        ]),
    ),
];
pub(super) const SELF_REVIEW: &[Field] = &[METADATA, (2, "status", FieldType::Ignored)];
/// Self reviews use the first two fields of the spec only.
pub(super) const ACCESS_REVIEW: &[Field] = &[
    METADATA,
    (
        2,
        "spec",
        FieldType::Message(&[
            (
                1,
                "resourceAttributes",
                FieldType::Message(&[
                    (1, "namespace", FieldType::String),
                    (2, "verb", FieldType::String),
                    (3, "group", FieldType::String),
                    (4, "version", FieldType::String),
                    (5, "resource", FieldType::String),
                    (6, "subresource", FieldType::String),
                    (7, "name", FieldType::String),
                    // Roles do not depend on selectors.
                    (8, "fieldSelector", FieldType::Ignored),
                    (9, "labelSelector", FieldType::Ignored),
                ]),
            ),
            (
                2,
                "nonResourceAttributes",
                FieldType::Message(&[(1, "path", FieldType::String), (2, "verb", FieldType::String)]),
            ),
            (3, "user", FieldType::String),
            (4, "groups", FieldType::Strings),
            // Roles do not depend on other attributes.
            (5, "extra", FieldType::Ignored),
            (6, "uid", FieldType::String),
        ]),
    ),
    STATUS,
];
pub(super) const RULES_REVIEW: &[Field] = &[
    METADATA,
    (
        2,
        "spec",
        FieldType::Message(&[(1, "namespace", FieldType::String)]),
    ),
    STATUS,
];
pub(super) const TOKEN_REQUEST: &[Field] = &[
    METADATA,
    (
        2,
        "spec",
        FieldType::Message(&[
            (1, "audiences", FieldType::Strings),
            (
                3,
                "boundObjectRef",
                FieldType::Message(&[
                    (1, "kind", FieldType::String),
                    (2, "apiVersion", FieldType::String),
                    (3, "name", FieldType::String),
                    (4, "uid", FieldType::String),
                ]),
            ),
            (4, "expirationSeconds", FieldType::Integer),
        ]),
    ),
    STATUS,
];
pub(super) const TOKEN_REVIEW: &[Field] = &[
    METADATA,
    (
        2,
        "spec",
        FieldType::Message(&[
            (1, "token", FieldType::String),
            (2, "audiences", FieldType::Strings),
        ]),
    ),
    STATUS,
];
pub(super) const SCALE: &[Field] = &[
    METADATA,
    (
        2,
        "spec",
        FieldType::Message(&[(1, "replicas", FieldType::Integer)]),
    ),
    STATUS,
];
