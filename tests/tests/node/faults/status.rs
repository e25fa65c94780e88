//! The status of the object of a stack.

use serde_json::Value;

/// The status of a stack.
pub(super) struct StackStatus {
    /// The object.
    pub(super) object: Value,
    /// The revision to apply.
    pub(super) revision: String,
}

impl StackStatus {
    /// Returns a text of the object, or an empty one.
    pub(super) fn text(&self, pointer: &str) -> &str {
        self.object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn ready(&self) -> Option<&Value> {
        let conditions = self.object.pointer("/status/conditions")?.as_array()?;
        conditions.iter().find(|condition| condition["type"] == "Ready")
    }

    /// Returns the message of the condition `Ready`, or an empty one.
    pub(super) fn ready_message(&self) -> &str {
        self.ready()
            .and_then(|ready| ready["message"].as_str())
            .unwrap_or_default()
    }

    pub(super) fn is_applied(&self) -> bool {
        let is_ready = self.ready().is_some_and(|ready| ready["status"] == "True");
        let applied = self.text("/status/lastAppliedRevision");
        // A revision after the applied one that changes no resource is only planned.
        let has_no_changes = !applied.is_empty() && self.text("/status/lastPlannedRevision") == self.revision;
        is_ready && (applied == self.revision || has_no_changes)
    }
}
