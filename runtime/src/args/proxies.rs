//! The proxies that the environment names: variables without a flag, as every program reads them.

use crate::http::{Environment, EnvironmentError};

/// Reads `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, each in capitals or else in small letters.
///
/// # Errors
/// A variable holds something that is no address of a proxy.
pub fn proxies() -> Result<Environment, EnvironmentError> {
    Environment::read(|name| std::env::var(name).ok())
}
