//! Serialization rules that the API types share: which zero values the JSON omits, and defaults of the schemas.

/// Omits `false`, as Go's `omitempty` does.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if passes a reference"
)]
pub(crate) const fn is_false(value: &bool) -> bool {
    !*value
}

/// Omits zero, as Go's `omitempty` does.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if passes a reference"
)]
pub(crate) const fn is_zero(value: &i64) -> bool {
    *value == 0
}

/// Default of fields that are true when absent.
pub(crate) const fn yes() -> bool {
    true
}

/// Schema of a field that accepts any JSON value.
pub(crate) fn any_json(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}
