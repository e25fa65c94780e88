//! Why an input of a stack cannot be read.

use kube::core::Status;
use kube::core::response::StatusDetails;
use sluice_api::reference::ObjectName;
use sluice_api::terraform::KeySource;
use sluice_runtime::client::InvalidAccountName;

/// Why an input cannot be read. Never contains a value.
#[derive(Debug, thiserror::Error)]
pub(in crate::reconcile) enum ReadError {
    /// The object is missing, or the API does not answer the controller.
    #[error("cannot read {kind:?} {name} of {field}: {text}")]
    Api {
        /// Kind of the object.
        kind: KeySource,
        /// Its name.
        name: String,
        /// The field that names it.
        field: &'static str,
        /// The HTTP status; 0 without a response.
        code: u16,
        /// The message of the API.
        text: String,
    },
    /// The stack's account may not read the object.
    #[error(
        "ServiceAccount {account} may not get {kind:?} {object} of {field}: in namespace {}, bind it to a role with the verb get on \
         {} {}, or to the role sluice-tf-runner of the overlay multi-tenant, which may read and write all of them",
        .object.namespace,
        resource(*.kind),
        .object.name
    )]
    Refused {
        /// The account.
        account: ObjectName,
        /// Kind of the object.
        kind: KeySource,
        /// The object.
        object: ObjectName,
        /// The field that names it.
        field: &'static str,
    },
    /// The user of a plan outside of a run may not read the object.
    #[error(
        "you may not get {kind:?} {object} of {field}, which the plan needs: the verb get on {} {} in namespace {} permits it",
        resource(*.kind),
        .object.name,
        .object.namespace
    )]
    UserRefused {
        /// Kind of the object.
        kind: KeySource,
        /// The object.
        object: ObjectName,
        /// The field that names it.
        field: &'static str,
    },
    /// The controller may not impersonate the stack's account.
    #[error(
        "tf-controller may not impersonate ServiceAccount {account} to read {field}: in namespace {}, bind the ServiceAccount of \
         tf-controller to a role with the verb impersonate on serviceaccounts, such as sluice-tf-controller-stacks of the \
         overlay multi-tenant",
        .account.namespace
    )]
    NotImpersonated {
        /// The account.
        account: ObjectName,
        /// The field that names an object.
        field: &'static str,
    },
    /// No ServiceAccount can have the name.
    #[error("spec.serviceAccountName: {0}")]
    Account(#[from] InvalidAccountName),
}

impl ReadError {
    /// Returns whether the object does not exist.
    pub(super) const fn is_not_found(&self) -> bool {
        matches!(self, Self::Api { code: 404, .. })
    }

    /// Returns whether `optional` of tofu-controller covers this error: the object is missing, or forbidden to the controller. Other
    /// errors are not covered: the stack would run without these inputs now, and with them a moment later. Nor is a refusal of the
    /// stack's account: an edit of a role would remove inputs.
    pub(super) const fn is_absent(&self) -> bool {
        matches!(self, Self::Api { code: 403 | 404, .. })
    }

    /// Returns whether a role or the name of the account must change.
    pub(in crate::reconcile) const fn is_refused(&self) -> bool {
        !matches!(self, Self::Api { .. })
    }
}

/// Returns the resource of a kind, as in a role.
const fn resource(kind: KeySource) -> &'static str {
    match kind {
        KeySource::Secret => "secrets",
        KeySource::ConfigMap => "configmaps",
    }
}

/// Returns whether the API server refuses the impersonation, and not what the account requests.
pub(super) fn is_impersonation(status: &Status) -> bool {
    let of_account = |details: &StatusDetails| details.kind == "serviceaccounts";
    status.details.as_ref().is_some_and(of_account) || status.message.contains("cannot impersonate")
}
