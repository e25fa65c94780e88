//! Serialization rules that the API types share: which zero values the JSON omits, defaults of the schemas, and types that
//! are text in the API.

/// Defines an enum from its variants and their texts in the API.
macro_rules! api_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])+ $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$doc])+ $variant,)+
        }

        impl $name {
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the value in the API.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

/// Converts a type from and to its text, for serde.
macro_rules! text_conversions {
    ($name:ident, $error:ident) => {
        impl TryFrom<String> for $name {
            type Error = $error;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    };
}
pub(crate) use {api_enum, text_conversions};

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
