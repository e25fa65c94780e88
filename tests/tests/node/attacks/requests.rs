//! The requests of the attacks and of the controllers, in the audit log of their node.

use sluice_tests::audit::{Permission, Request, requests};

use super::{ACCOUNT, OTHER, TENANT, Targets, Tenants};
use crate::install::NAMESPACE;

impl Tenants {
    /// Checks that the API server saw and refused the requests for the Secrets of the other tenant, and that the roles of the overlay refuse
    /// the controllers nothing.
    pub(super) fn check_audit_log(&self, targets: &Targets) {
        let requests = requests(&self.installation.node.audit_log().unwrap()).unwrap();
        let account = format!("{TENANT}:{ACCOUNT}");
        let get = Permission::new("/secrets", "get");
        for name in &targets.secrets {
            let object = format!("{OTHER}/{name}");
            let mut sent = requests.iter().filter(|request| {
                request.account == account && request.object == object && request.permission == get
            });
            assert!(sent.any(|request| request.is_refused), "no request for {object}");
        }
        for controller in ["source-controller", "tf-controller"] {
            check_controller(&requests, &format!("{NAMESPACE}:{controller}"));
        }
    }
}

/// Checks that no request of a controller is refused. An attack in its name is one of the pod of the run.
fn check_controller(requests: &[Request], account: &str) {
    let own = requests
        .iter()
        .filter(|request| request.sender == account && request.account == account);
    let (refused, accepted): (Vec<_>, Vec<_>) = own.partition(|request| request.is_refused);
    assert!(!accepted.is_empty(), "{account} has sent no request");
    assert!(refused.is_empty(), "the roles lack permissions: {refused:#?}");
}
