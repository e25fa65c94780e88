//! What follows an apply: outputs, inventory, health checks.

pub(crate) mod health;
pub(crate) mod inventory;
pub(crate) mod outputs;
