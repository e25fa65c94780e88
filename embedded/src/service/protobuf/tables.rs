//! Fields by number of the kinds that clients send: `generated.proto` of k8s.io/api and k8s.io/apimachinery.

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum FieldType {
    String,
    /// Omitted if it is empty, as in Go's JSON: protobuf always contains it.
    OptionalString,
    Strings,
    Bool,
    Integer,
    /// Omitted if it is 0, as in Go's JSON.
    OptionalInteger,
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
pub(super) const OBJECT_META: &[Field] = &[
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
    (1, "kind", FieldType::OptionalString),
    (2, "namespace", FieldType::OptionalString),
    (3, "name", FieldType::OptionalString),
    (4, "uid", FieldType::OptionalString),
    (5, "apiVersion", FieldType::OptionalString),
    (6, "resourceVersion", FieldType::OptionalString),
    (7, "fieldPath", FieldType::OptionalString),
];
const EVENT_SOURCE: &[Field] = &[
    (1, "component", FieldType::OptionalString),
    (2, "host", FieldType::OptionalString),
];
/// The same in both groups.
const EVENT_SERIES: &[Field] = &[
    (1, "count", FieldType::OptionalInteger),
    (2, "lastObservedTime", FieldType::MicroTime),
];
pub(super) const EVENT: &[Field] = &[
    (1, "metadata", FieldType::Message(OBJECT_META)),
    (2, "involvedObject", FieldType::Message(OBJECT_REFERENCE)),
    (3, "reason", FieldType::OptionalString),
    (4, "message", FieldType::OptionalString),
    (5, "source", FieldType::Message(EVENT_SOURCE)),
    (6, "firstTimestamp", FieldType::Time),
    (7, "lastTimestamp", FieldType::Time),
    (8, "count", FieldType::OptionalInteger),
    (9, "type", FieldType::OptionalString),
    (10, "eventTime", FieldType::MicroTime),
    (11, "series", FieldType::Message(EVENT_SERIES)),
    (12, "action", FieldType::OptionalString),
    (13, "related", FieldType::Message(OBJECT_REFERENCE)),
    (14, "reportingComponent", FieldType::String),
    (15, "reportingInstance", FieldType::String),
];
/// An Event of `events.k8s.io/v1`, under the names of the core group, as which it is stored.
pub(super) const EVENT_OF_EVENTS_V1: &[Field] = &[
    (1, "metadata", FieldType::Message(OBJECT_META)),
    (2, "eventTime", FieldType::MicroTime),
    (3, "series", FieldType::Message(EVENT_SERIES)),
    (4, "reportingComponent", FieldType::String),
    (5, "reportingInstance", FieldType::String),
    (6, "action", FieldType::OptionalString),
    (7, "reason", FieldType::OptionalString),
    (8, "involvedObject", FieldType::Message(OBJECT_REFERENCE)),
    (9, "related", FieldType::Message(OBJECT_REFERENCE)),
    (10, "message", FieldType::OptionalString),
    (11, "type", FieldType::OptionalString),
    (12, "source", FieldType::Message(EVENT_SOURCE)),
    (13, "firstTimestamp", FieldType::Time),
    (14, "lastTimestamp", FieldType::Time),
    (15, "count", FieldType::OptionalInteger),
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
