//! Small rules of serialisation that the API types share: which zero values are left out of the JSON, and the
//! defaults that the schemas carry.

/// True for `false`: an optional switch that is off is left out, as Go's `omitempty` does.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if passes a reference"
)]
pub(crate) const fn is_false(value: &bool) -> bool {
    !*value
}

/// True for zero: left out, as Go's `omitempty` does.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if passes a reference"
)]
pub(crate) const fn is_zero(value: &i64) -> bool {
    *value == 0
}

/// The default of switches that are on unless said otherwise.
pub(crate) const fn yes() -> bool {
    true
}

/// The schema of a field that takes any JSON value.
pub(crate) fn any_json(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}
