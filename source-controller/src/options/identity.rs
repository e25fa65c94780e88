//! Flags about identities towards the providers of Git hosts.

use std::time::Duration;

use sluice_runtime::args::duration;

use super::gates::{Gate, Gates};
use crate::identity::{CacheSettings, HostPattern, Rules, TrustedHosts};

/// Identities towards the providers of Git hosts.
#[derive(clap::Args, Clone, Debug)]
pub struct IdentityOptions {
    /// ServiceAccount of objects with a provider that name none; needs the gate `ObjectLevelWorkloadIdentity`.
    #[arg(long, default_value = "")]
    pub default_service_account: String,
    /// Hosts that the controller's own identity is used for with `provider: azure`: names, `*.` and a domain, or `*` for
    /// all. Objects with a ServiceAccount of their own are free.
    #[arg(long, value_delimiter = ',', default_value = TrustedHosts::DEFAULT)]
    pub controller_identity_hosts: Vec<HostPattern>,
    /// Tokens of providers that are kept; 0 keeps none.
    #[arg(long, default_value_t = 100)]
    pub token_cache_max_size: usize,
    /// How long a token is kept at most; more than 1h counts as 1h.
    #[arg(long, default_value = "1h", value_parser = duration)]
    pub token_cache_max_duration: Duration,
}

impl IdentityOptions {
    /// As rules for objects.
    ///
    /// # Errors
    /// A default ServiceAccount is named while its gate is closed.
    pub fn rules(&self, gates: &Gates) -> Result<Rules, String> {
        let object_level = gates.is_open(Gate::ObjectLevelWorkloadIdentity);
        let default_account =
            Some(self.default_service_account.clone()).filter(|account| !account.is_empty());
        if default_account.is_some() && !object_level {
            return Err(
                "--default-service-account needs --feature-gates=ObjectLevelWorkloadIdentity=true".to_owned(),
            );
        }
        Ok(Rules {
            object_level,
            default_account,
            hosts: self.controller_identity_hosts.clone().into(),
        })
    }

    /// As settings of the cache.
    #[must_use]
    pub const fn cache(&self) -> CacheSettings {
        CacheSettings {
            size: self.token_cache_max_size,
            longest: self.token_cache_max_duration,
        }
    }
}
