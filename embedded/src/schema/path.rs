//! Paths as the API server writes them: `spec.vars[0].name`, `spec.files[key]`.

/// A named field below `path`.
pub(super) fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// An entry of a list.
pub(super) fn index(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

/// An entry of a map with free keys.
pub(super) fn key(path: &str, key: &str) -> String {
    format!("{path}[{key}]")
}
