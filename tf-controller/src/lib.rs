//! The apply controller: artifact revisions become plans and applies.
