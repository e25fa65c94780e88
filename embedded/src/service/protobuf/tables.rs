//! Fields by number of the kinds that clients send: `generated.proto` of k8s.io/api and k8s.io/apimachinery.

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum FieldType {
    String,
    Strings,
    Bool,
    Integer,
    /// meta/v1 `Time`.
    Time,
    /// meta/v1 `MicroTime`.
    MicroTime,
    Message(&'static [Field]),
    Messages(&'static [Field]),
    /// map<string, string>
    StringMap,
    /// map<string, bytes>
    BytesMap,
    /// Not stored by this server.
    Ignored,
}

/// Integer, name and type of a field.
pub(super) type Field = (u64, &'static str, FieldType);

const OWNER_REFERENCE: &[Field] = &[
    (1, "kind", FieldType::String),
    (3, "name", FieldType::String),
    (4, "uid", FieldType::String),
    (5, "apiVersion", FieldType::String),
    (6, "controller", FieldType::Bool),
    (7, "blockOwnerDeletion", FieldType::Bool),
];
const OBJECT_META: &[Field] = &[
    (1, "name", FieldType::String),
    (2, "generateName", FieldType::String),
    (3, "namespace", FieldType::String),
    (4, "selfLink", FieldType::Ignored),
    (5, "uid", FieldType::String),
    (6, "resourceVersion", FieldType::String),
    (7, "generation", FieldType::Integer),
    (8, "creationTimestamp", FieldType::Time),
    (9, "deletionTimestamp", FieldType::Time),
    (10, "deletionGracePeriodSeconds", FieldType::Integer),
    (11, "labels", FieldType::StringMap),
    (12, "annotations", FieldType::StringMap),
    (13, "ownerReferences", FieldType::Messages(OWNER_REFERENCE)),
    (14, "finalizers", FieldType::Strings),
    (17, "managedFields", FieldType::Ignored),
];
pub(super) const SECRET: &[Field] = &[
    (1, "metadata", FieldType::Message(OBJECT_META)),
    (2, "data", FieldType::BytesMap),
    (3, "type", FieldType::String),
    (4, "stringData", FieldType::StringMap),
    (5, "immutable", FieldType::Bool),
];
pub(super) const CONFIG_MAP: &[Field] = &[
    (1, "metadata", FieldType::Message(OBJECT_META)),
    (2, "data", FieldType::StringMap),
    (3, "binaryData", FieldType::BytesMap),
    (4, "immutable", FieldType::Bool),
];
pub(super) const NAMESPACE: &[Field] = &[
    (1, "metadata", FieldType::Message(OBJECT_META)),
    (
        2,
        "spec",
        FieldType::Message(&[(1, "finalizers", FieldType::Strings)]),
    ),
    (
        3,
        "status",
        FieldType::Message(&[(1, "phase", FieldType::String)]),
    ),
];
const OBJECT_REFERENCE: &[Field] = &[
    (1, "kind", FieldType::String),
    (2, "namespace", FieldType::String),
    (3, "name", FieldType::String),
    (4, "uid", FieldType::String),
    (5, "apiVersion", FieldType::String),
    (6, "resourceVersion", FieldType::String),
    (7, "fieldPath", FieldType::String),
];
pub(super) const LEASE: &[Field] = &[
    (1, "metadata", FieldType::Message(OBJECT_META)),
    (
        2,
        "spec",
        FieldType::Message(&[
            (1, "holderIdentity", FieldType::String),
            (2, "leaseDurationSeconds", FieldType::Integer),
            (3, "acquireTime", FieldType::MicroTime),
            (4, "renewTime", FieldType::MicroTime),
            (5, "leaseTransitions", FieldType::Integer),
            (6, "strategy", FieldType::String),
            (7, "preferredHolder", FieldType::String),
        ]),
    ),
];
pub(super) const SERVICE_ACCOUNT: &[Field] = &[
    (1, "metadata", FieldType::Message(OBJECT_META)),
    (2, "secrets", FieldType::Messages(OBJECT_REFERENCE)),
    (
        3,
        "imagePullSecrets",
        FieldType::Messages(&[(1, "name", FieldType::String)]),
    ),
    (4, "automountServiceAccountToken", FieldType::Bool),
];
pub(super) const DELETE_OPTIONS: &[Field] = &[
    (1, "gracePeriodSeconds", FieldType::Integer),
    (
        2,
        "preconditions",
        FieldType::Message(&[
            (1, "uid", FieldType::String),
            (2, "resourceVersion", FieldType::String),
        ]),
    ),
    (3, "orphanDependents", FieldType::Bool),
    (4, "propagationPolicy", FieldType::String),
    (5, "dryRun", FieldType::Strings),
];
pub(super) const UNKNOWN: &[Field] = &[
    (
        1,
        "typeMeta",
        FieldType::Message(&[
            (1, "apiVersion", FieldType::String),
            (2, "kind", FieldType::String),
        ]),
    ),
    (2, "raw", FieldType::Ignored),
    (3, "contentEncoding", FieldType::String),
    (4, "contentType", FieldType::String),
];
