//! Statuses and events of typical passes.
