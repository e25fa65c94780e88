//! What a run does once the apply is over: the inventory, the health checks. No plan depends on any of it.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::canonical;

/// What follows an apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Aftermath {
    /// Whether the state's resources are listed after an apply.
    #[serde(default)]
    pub inventory: bool,
    /// Whether they are listed when there was nothing to apply, too: none are known yet.
    #[serde(default)]
    pub inventory_due: bool,
    /// The checks that are made after an apply, in order.
    #[serde(default)]
    pub health_checks: Vec<HealthCheck>,
    /// Whether they are made when there was nothing to apply, too: they failed, or were never made.
    #[serde(default)]
    pub health_due: bool,
}

/// One health check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthCheck {
    /// Its name.
    pub name: String,
    /// How it asks.
    pub kind: HealthCheckKind,
    /// Host and port, or a URL; a template over the outputs.
    pub target: String,
    /// Bound on the check, in milliseconds.
    pub timeout_millis: u64,
}

/// How a health check asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthCheckKind {
    /// A TCP connection.
    Tcp,
    /// An HTTP GET.
    Http,
}

impl Aftermath {
    /// Names the list of checks: another list has another digest. Empty where there are none.
    #[must_use]
    pub fn checks_digest(&self) -> String {
        if self.health_checks.is_empty() {
            return String::new();
        }
        let checks = serde_json::to_value(&self.health_checks)
            .unwrap_or_else(|_| unreachable!("checks have nothing that JSON has not"));
        hex::encode(&Sha256::digest(canonical::json(&checks).as_bytes())[..8])
    }
}
