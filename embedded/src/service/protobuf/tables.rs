//! The fields of the kinds that clients write, by number: `generated.proto` of k8s.io/api and k8s.io/apimachinery.

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Text,
    Texts,
    Flag,
    Number,
    /// meta/v1 `Time`.
    Moment,
    /// meta/v1 `MicroTime`.
    MicroMoment,
    Message(&'static [Field]),
    Messages(&'static [Field]),
    /// map<string, string>
    TextMap,
    /// map<string, bytes>
    ByteMap,
    /// Not kept by this server.
    Ignored,
}

/// Number, name and form of a field.
pub(super) type Field = (u64, &'static str, Form);

const OWNER: &[Field] = &[
    (1, "kind", Form::Text),
    (3, "name", Form::Text),
    (4, "uid", Form::Text),
    (5, "apiVersion", Form::Text),
    (6, "controller", Form::Flag),
    (7, "blockOwnerDeletion", Form::Flag),
];
const METADATA: &[Field] = &[
    (1, "name", Form::Text),
    (2, "generateName", Form::Text),
    (3, "namespace", Form::Text),
    (4, "selfLink", Form::Ignored),
    (5, "uid", Form::Text),
    (6, "resourceVersion", Form::Text),
    (7, "generation", Form::Number),
    (8, "creationTimestamp", Form::Moment),
    (9, "deletionTimestamp", Form::Moment),
    (10, "deletionGracePeriodSeconds", Form::Number),
    (11, "labels", Form::TextMap),
    (12, "annotations", Form::TextMap),
    (13, "ownerReferences", Form::Messages(OWNER)),
    (14, "finalizers", Form::Texts),
    (17, "managedFields", Form::Ignored),
];
pub(super) const SECRET: &[Field] = &[
    (1, "metadata", Form::Message(METADATA)),
    (2, "data", Form::ByteMap),
    (3, "type", Form::Text),
    (4, "stringData", Form::TextMap),
    (5, "immutable", Form::Flag),
];
pub(super) const CONFIG_MAP: &[Field] = &[
    (1, "metadata", Form::Message(METADATA)),
    (2, "data", Form::TextMap),
    (3, "binaryData", Form::ByteMap),
    (4, "immutable", Form::Flag),
];
pub(super) const NAMESPACE: &[Field] = &[
    (1, "metadata", Form::Message(METADATA)),
    (2, "spec", Form::Message(&[(1, "finalizers", Form::Texts)])),
    (3, "status", Form::Message(&[(1, "phase", Form::Text)])),
];
const REFERENCE: &[Field] = &[
    (1, "kind", Form::Text),
    (2, "namespace", Form::Text),
    (3, "name", Form::Text),
    (4, "uid", Form::Text),
    (5, "apiVersion", Form::Text),
    (6, "resourceVersion", Form::Text),
    (7, "fieldPath", Form::Text),
];
pub(super) const LEASE: &[Field] = &[
    (1, "metadata", Form::Message(METADATA)),
    (
        2,
        "spec",
        Form::Message(&[
            (1, "holderIdentity", Form::Text),
            (2, "leaseDurationSeconds", Form::Number),
            (3, "acquireTime", Form::MicroMoment),
            (4, "renewTime", Form::MicroMoment),
            (5, "leaseTransitions", Form::Number),
            (6, "strategy", Form::Text),
            (7, "preferredHolder", Form::Text),
        ]),
    ),
];
pub(super) const SERVICE_ACCOUNT: &[Field] = &[
    (1, "metadata", Form::Message(METADATA)),
    (2, "secrets", Form::Messages(REFERENCE)),
    (3, "imagePullSecrets", Form::Messages(&[(1, "name", Form::Text)])),
    (4, "automountServiceAccountToken", Form::Flag),
];
pub(super) const DELETE_OPTIONS: &[Field] = &[
    (1, "gracePeriodSeconds", Form::Number),
    (
        2,
        "preconditions",
        Form::Message(&[(1, "uid", Form::Text), (2, "resourceVersion", Form::Text)]),
    ),
    (3, "orphanDependents", Form::Flag),
    (4, "propagationPolicy", Form::Text),
    (5, "dryRun", Form::Texts),
];
pub(super) const UNKNOWN: &[Field] = &[
    (
        1,
        "typeMeta",
        Form::Message(&[(1, "apiVersion", Form::Text), (2, "kind", Form::Text)]),
    ),
    (2, "raw", Form::Ignored),
    (3, "contentEncoding", Form::Text),
    (4, "contentType", Form::Text),
];
