//! Field paths in kube-apiserver's format: `spec.vars[0].name`, `spec.files[key]`.

/// Returns the path of a field.
pub(crate) fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Returns the path of a list entry.
pub(crate) fn index(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

/// Returns the path of a map entry.
pub(crate) fn key(path: &str, key: &str) -> String {
    format!("{path}[{key}]")
}
