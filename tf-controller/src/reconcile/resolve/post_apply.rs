//! The work after an apply, for the bundle.

use sluice_api::terraform::{self, HealthCheckKind as Kind, Terraform};
use sluice_tf_core::bundle::{
    Aftermath,
    aftermath::{HealthCheck, HealthCheckKind},
};

/// Returns what a run of this stack does after its apply.
pub(super) fn post_apply(stack: &Terraform) -> Aftermath {
    let has_inventory = stack
        .status
        .as_ref()
        .is_some_and(|status| status.inventory.is_some());
    Aftermath {
        inventory: stack.spec.enable_inventory,
        inventory_due: !has_inventory,
        health_checks: stack.spec.health_checks.iter().map(check).collect(),
        health_due: false,
    }
}

fn check(check: &terraform::HealthCheck) -> HealthCheck {
    let (kind, target) = match check.kind {
        Kind::Tcp => (HealthCheckKind::Tcp, &check.address),
        Kind::Http => (HealthCheckKind::Http, &check.url),
    };
    HealthCheck {
        name: check.name.clone(),
        kind,
        target: target.clone(),
        timeout_millis: u64::try_from(check.timeout.to_duration().as_millis()).unwrap_or(u64::MAX),
    }
}
