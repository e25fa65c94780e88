//! The requests of the attacks and of the controllers, in the audit log of their node.

use sluice_tests::audit::{Permission, requests};

use super::{ACCOUNT, OTHER, TENANT, Targets, Tenants};
use crate::audit::assert_not_refused;
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
            assert_not_refused(&requests, &format!("{NAMESPACE}:{controller}"));
        }
    }
}
