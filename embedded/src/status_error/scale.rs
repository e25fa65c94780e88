//! Errors of the `scale` subresource.

use serde_json::json;

use super::StatusError;

impl StatusError {
    /// 500 with kube-apiserver's plain message for a field of an object that its Scale cannot show.
    pub(crate) fn unreadable_scale(detail: String) -> Self {
        Self::new(500, "", detail)
    }

    /// 500 for an object without the field at this path, the number of replicas.
    pub(crate) fn no_replicas(path: &str) -> Self {
        let reason = format!("the spec replicas field {path:?} does not exist");
        Self {
            details: json!({"causes": [{"message": reason}]}),
            ..Self::new(500, "InternalError", format!("Internal error occurred: {reason}"))
        }
    }
}
