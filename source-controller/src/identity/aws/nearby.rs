//! Keys from an agent beside the container: EKS Pod Identity and ECS name its address in the environment.

use std::net::IpAddr;
use std::path::PathBuf;

use http::{Method, header};
use sluice_runtime::redact::Secret;
use url::{Host, Url};

use super::super::account::token_file;
use super::super::answer::{self, Keys};
use super::super::call::{Call, endpoint};
use super::super::environment::Environment;
use super::super::error::TokenError;
use super::super::reach::Reach;
use super::super::who::Who;

const FULL: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
const RELATIVE: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
const TOKEN_FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
/// Where a relative address leads.
const ECS: &str = "http://169.254.170.2";
/// Who may be shown the authorization without TLS, beside the machine itself: the agents of ECS and EKS.
const AGENTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];

/// The agent, and how it is told who asks.
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
    /// The agent that the environment names, if it names one.
    ///
    /// # Errors
    /// Its address is none, or not one that may see the authorization.
    pub(super) fn of(environment: &Environment) -> Result<Option<Self>, TokenError> {
        let relative = environment.get(RELATIVE).map(|path| format!("{ECS}{path}"));
        let full = environment.get(FULL).map(str::to_owned);
        let Some(address) = relative.or(full) else {
            return Ok(None);
        };
        let url = endpoint(FULL, &address)?;
        if url.scheme() == "http" && !is_near(&url) {
            return Err(TokenError::Endpoint {
                name: FULL,
                why: "without https only this machine and the agents of EKS and ECS are asked".to_owned(),
            });
        }
        let file = environment.get(TOKEN_FILE).map(PathBuf::from);
        let token = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN");
        let authorization = file
            .map(Authorization::File)
            .or_else(|| token.map(|token| Authorization::Token(Secret::from(token.to_owned()))));
        Ok(Some(Self { url, authorization }))
    }

    /// Adds to an identity which agent this is.
    pub(super) fn tell(&self, who: Who) -> Who {
        let who = who.and(self.url.as_str());
        match &self.authorization {
            None => who,
            Some(Authorization::File(path)) => who.and("file").and(path.as_os_str().as_encoded_bytes()),
            Some(Authorization::Token(token)) => who.and("token").and(token.expose()),
        }
    }

    /// New keys.
    pub(super) async fn keys(&self, reach: &Reach) -> Result<Keys, TokenError> {
        let call = Call::new(Method::GET, self.url.clone(), "give the keys of the pod's role");
        let call = match &self.authorization {
            None => call,
            Some(Authorization::File(path)) => {
                let token = token_file(TOKEN_FILE, path).await?;
                call.secret(header::AUTHORIZATION, "", &token)
            }
            Some(Authorization::Token(token)) => call.secret(header::AUTHORIZATION, "", token),
        };
        let answer = call.succeed_nearby(&reach.nearby).await?;
        answer.read(answer::metadata_keys)
    }
}

fn is_near(url: &Url) -> bool {
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
    fn the_authorization_is_shown_to_the_agents_only() {
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
            assert_eq!(Container::of(&environment).is_ok(), accepted, "{address}");
        }
        let relative: Environment = [(RELATIVE, "/v2/credentials/1")].into_iter().collect();
        let found = Container::of(&relative).unwrap().unwrap();
        assert_eq!(found.url.as_str(), "http://169.254.170.2/v2/credentials/1");
    }
}
