//! Keys from a container credentials agent: EKS Pod Identity and ECS set its URL in the environment.

use std::net::IpAddr;
use std::path::PathBuf;

use http::{Method, header};
use sluice_runtime::redact::Secret;
use url::{Host, Url};

use super::super::account::token_file;
use super::super::cache::Fingerprint;
use super::super::environment::Environment;
use super::super::error::TokenError;
use super::super::request::{ExchangeContext, ProviderRequest, endpoint};
use super::super::response::{self, AwsKeys};

const FULL: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
const RELATIVE: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
const TOKEN_FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
/// Base of relative URIs.
const ECS: &str = "http://169.254.170.2";
/// Hosts that may receive the authorization token without TLS, besides loopback: the agents of ECS and EKS.
const AGENTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];

/// The agent's URL and authorization.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    url: Url,
    authorization: Option<Authorization>,
}

#[derive(Clone, Debug)]
enum Authorization {
    File(PathBuf),
    Token(Secret<String>),
}

impl Container {
    /// Reads the agent from the environment, if it is configured.
    ///
    /// # Errors
    /// The URL is invalid, or may not receive the authorization token.
    pub(super) fn from_environment(environment: &Environment) -> Result<Option<Self>, TokenError> {
        let relative = environment.get(RELATIVE).map(|path| format!("{ECS}{path}"));
        let full = environment.get(FULL).map(str::to_owned);
        let Some(address) = relative.or(full) else {
            return Ok(None);
        };
        let url = endpoint(FULL, &address)?;
        if url.scheme() == "http" && !is_local(&url) {
            return Err(TokenError::Endpoint {
                name: FULL,
                why: "http is only allowed for this machine and the agents of EKS and ECS".to_owned(),
            });
        }
        let file = environment.get(TOKEN_FILE).map(PathBuf::from);
        let token = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN");
        let authorization = file
            .map(Authorization::File)
            .or_else(|| token.map(|token| Authorization::Token(Secret::from(token.to_owned()))));
        Ok(Some(Self { url, authorization }))
    }

    /// Adds the agent to a fingerprint.
    pub(super) fn add_to(&self, fingerprint: Fingerprint) -> Fingerprint {
        let fingerprint = fingerprint.with(self.url.as_str());
        match &self.authorization {
            None => fingerprint,
            Some(Authorization::File(path)) => {
                fingerprint.with("file").with(path.as_os_str().as_encoded_bytes())
            }
            Some(Authorization::Token(token)) => fingerprint.with("token").with(token.expose()),
        }
    }

    /// Requests new keys.
    pub(super) async fn keys(&self, context: &ExchangeContext) -> Result<AwsKeys, TokenError> {
        let request =
            ProviderRequest::new(Method::GET, self.url.clone(), "return the keys of the pod's role");
        let request = match &self.authorization {
            None => request,
            Some(Authorization::File(path)) => {
                let token = token_file(TOKEN_FILE, path).await?;
                request.secret(header::AUTHORIZATION, "", &token)
            }
            Some(Authorization::Token(token)) => request.secret(header::AUTHORIZATION, "", token),
        };
        let response = request.send_local(&context.local_pool).await?;
        response.read(response::metadata_keys)
    }
}

fn is_local(url: &Url) -> bool {
    let address = match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address),
        Some(Host::Ipv6(address)) => IpAddr::V6(address),
        Some(Host::Domain(name)) => return name == "localhost",
        None => return false,
    };
    address.is_loopback() || AGENTS.contains(&address.to_string().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authorization_is_only_sent_to_local_agents() {
        for (address, accepted) in [
            ("http://169.254.170.23/v1/credentials", true),
            ("http://[fd00:ec2::23]/v1/credentials", true),
            ("http://127.0.0.1:8080/x", true),
            ("http://localhost/x", true),
            ("https://keys.example/x", true),
            ("http://keys.example/x", false),
            ("http://169.254.169.254/x", false),
            ("ftp://127.0.0.1/", false),
        ] {
            let environment: Environment = [(FULL, address)].into_iter().collect();
            assert_eq!(
                Container::from_environment(&environment).is_ok(),
                accepted,
                "{address}"
            );
        }
        let relative: Environment = [(RELATIVE, "/v2/credentials/1")].into_iter().collect();
        let found = Container::from_environment(&relative).unwrap().unwrap();
        assert_eq!(found.url.as_str(), "http://169.254.170.2/v2/credentials/1");
    }
}
