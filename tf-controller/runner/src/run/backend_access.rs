//! The kubeconfig of the CLI's kubernetes backend, where the run was given one of its own: a file beside the stack's directory, named to
//! `init`. A plan remembers where it is, so the place is the same for each run of the stack.

use std::path::{Path, PathBuf};

use super::context::Context;
use super::error::RunError;
use super::prepare::write_private;
use crate::bundle::Bundle;

/// What the backend calls it.
pub(super) const ARGUMENT: &str = "config_path";
/// How a kubernetes backend begins in `backend_override.tf`.
const BACKEND: &str = "backend \"kubernetes\"";

/// Writes it, where the backend that is generated needs it; gives its path.
pub(super) fn write(context: &Context, bundle: &Bundle, root: &Path) -> Result<Option<PathBuf>, RunError> {
    let Some(kubeconfig) = &context.backend_kubeconfig else {
        return Ok(None);
    };
    if !is_for(bundle) {
        return Ok(None);
    }
    let path = place(root);
    write_private(&path, kubeconfig.as_bytes())?;
    Ok(Some(path))
}

/// Whether the backend is one of Kubernetes that does not say itself which API it uses.
fn is_for(bundle: &Bundle) -> bool {
    let text = bundle.backend.as_deref().unwrap_or_default();
    let arguments = &bundle.surroundings.backend_arguments;
    text.contains(BACKEND)
        && !text.contains(ARGUMENT)
        && !arguments
            .keys()
            .any(|name| name.starts_with(ARGUMENT) || name == "host")
}

/// Beside the stack's directory, in a name that no stack has.
fn place(root: &Path) -> PathBuf {
    let base = root.file_name().unwrap_or_default().to_string_lossy();
    root.with_file_name(format!(".{base}.kubeconfig"))
}
