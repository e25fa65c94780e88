//! Microsoft Entra tokens for Azure DevOps, by workload identity federation, client secret or managed identity.

use std::collections::BTreeMap;

use http::{HeaderName, Method};
use sluice_runtime::redact::Secret;
use url::Url;

use super::account::{ServiceAccountRef, SubjectToken};
use super::cache::Fingerprint;
use super::environment::Environment;
use super::error::TokenError;
use super::request::{ExchangeContext, ProviderRequest, endpoint, join_path};
use super::response::{self, AccessToken};

/// Application id of Azure DevOps.
const DEVOPS: &str = "499b84ac-1321-427f-aa17-267ca6975798";
/// Audience of ServiceAccount tokens.
const AUDIENCE: &str = "api://AzureADTokenExchange";
/// Assertion type of federated tokens.
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// Entra authority of the public cloud.
const DEFAULT_URL: &str = "https://login.microsoftonline.com/";
/// Endpoint of the instance metadata service.
const METADATA: &str = "http://169.254.169.254";
const METADATA_VARIABLE: &str = "AZURE_POD_IDENTITY_AUTHORITY_HOST";
const CLIENT_ANNOTATION: &str = "azure.workload.identity/client-id";
const TENANT_ANNOTATION: &str = "azure.workload.identity/tenant-id";
/// The requested operation, for error messages.
const WHAT: &str = "issue a token for Azure DevOps";

/// A source of Entra tokens.
#[derive(Clone, Debug)]
pub(super) enum Azure {
    /// An application in a tenant, at its token endpoint.
    Application {
        authority: Url,
        tenant: String,
        client: String,
        credential: ClientCredential,
    },
    /// The identity of the machine, or a user-assigned identity.
    Managed { endpoint: Url, client: Option<String> },
}

/// The credential of an application.
#[derive(Clone, Debug)]
pub(super) enum ClientCredential {
    /// A client secret.
    Secret(Secret<String>),
    /// A federated token of a trusted issuer.
    Federated(SubjectToken),
}

impl Azure {
    /// Selects the controller's own identity from the environment.
    ///
    /// # Errors
    /// A variable contains an invalid endpoint.
    pub(super) fn from_environment(environment: &Environment) -> Result<Self, TokenError> {
        let client = environment.get("AZURE_CLIENT_ID").map(str::to_owned);
        let tenant = environment.get("AZURE_TENANT_ID").map(str::to_owned);
        let credential = environment
            .get("AZURE_CLIENT_SECRET")
            .map(|secret| ClientCredential::Secret(Secret::from(secret.to_owned())))
            .or_else(|| {
                let path = environment.get("AZURE_FEDERATED_TOKEN_FILE")?.into();
                let variable = "AZURE_FEDERATED_TOKEN_FILE";
                Some(ClientCredential::Federated(SubjectToken::File { variable, path }))
            });
        if let (Some(client), Some(tenant), Some(credential)) = (client.clone(), tenant, credential) {
            return Ok(Self::Application {
                authority: authority(environment)?,
                tenant,
                client,
                credential,
            });
        }
        Ok(Self::Managed {
            endpoint: endpoint(
                METADATA_VARIABLE,
                environment.get(METADATA_VARIABLE).unwrap_or(METADATA),
            )?,
            client,
        })
    }

    /// Selects the identity in a ServiceAccount's annotations.
    ///
    /// # Errors
    /// An annotation is missing, or a variable contains an invalid endpoint.
    pub(super) fn from_account(
        environment: &Environment,
        account: ServiceAccountRef,
        annotations: &BTreeMap<String, String>,
    ) -> Result<Self, TokenError> {
        let annotation = |name: &str| annotations.get(name).filter(|value| !value.is_empty()).cloned();
        let client = annotation(CLIENT_ANNOTATION)
            .ok_or_else(|| account.error(format!("missing annotation {CLIENT_ANNOTATION}")))?;
        let tenant = annotation(TENANT_ANNOTATION)
            .or_else(|| environment.get("AZURE_TENANT_ID").map(str::to_owned))
            .ok_or_else(|| {
                let why = format!("missing annotation {TENANT_ANNOTATION}, and AZURE_TENANT_ID is not set");
                account.error(why)
            })?;
        Ok(Self::Application {
            authority: authority(environment)?,
            tenant,
            client,
            credential: ClientCredential::Federated(SubjectToken::ServiceAccountRef {
                account,
                audience: AUDIENCE,
            }),
        })
    }

    /// Returns the fingerprint of the identity: everything that determines the permissions of its token.
    pub(super) fn fingerprint(&self) -> [u8; 32] {
        let fingerprint = Fingerprint::new("azure");
        match self {
            Self::Application {
                authority,
                tenant,
                client,
                credential,
            } => {
                let fingerprint = fingerprint
                    .with("application")
                    .with(authority.as_str())
                    .with(tenant)
                    .with(client);
                match credential {
                    ClientCredential::Secret(secret) => fingerprint.with("secret").with(secret.expose()),
                    ClientCredential::Federated(credential) => credential.add_to(fingerprint),
                }
            }
            Self::Managed { endpoint, client } => {
                let client = client.as_deref().unwrap_or_default();
                fingerprint.with("managed").with(endpoint.as_str()).with(client)
            }
        }
        .digest()
    }

    /// Requests a new token.
    ///
    /// # Errors
    /// The credential is missing, or Entra refuses, does not respond, or sends an invalid response.
    pub(super) async fn token(&self, context: &ExchangeContext) -> Result<AccessToken, TokenError> {
        let response = match self {
            Self::Application {
                authority,
                tenant,
                client,
                credential,
            } => {
                let url = join_path(authority, [tenant.as_str(), "oauth2", "v2.0", "token"]);
                let scope = format!("{DEVOPS}/.default");
                let mut form = vec![
                    ("grant_type", "client_credentials"),
                    ("client_id", client),
                    ("scope", &scope),
                ];
                let secret = match credential {
                    ClientCredential::Secret(secret) => secret.clone(),
                    ClientCredential::Federated(credential) => {
                        form.push(("client_assertion_type", ASSERTION_TYPE));
                        credential.token(&context.kube).await?
                    }
                };
                form.push(match credential {
                    ClientCredential::Secret(_) => ("client_secret", secret.expose()),
                    ClientCredential::Federated(_) => ("client_assertion", secret.expose()),
                });
                let request = ProviderRequest::new(Method::POST, url, WHAT).form(&form, &secret);
                request.send(&context.pool).await?
            }
            Self::Managed { endpoint, client } => {
                let mut url = join_path(endpoint, ["metadata", "identity", "oauth2", "token"]);
                url.query_pairs_mut()
                    .append_pair("api-version", "2018-02-01")
                    .append_pair("resource", DEVOPS)
                    .extend_pairs(client.iter().map(|client| ("client_id", client)));
                ProviderRequest::new(Method::GET, url, WHAT)
                    .header(HeaderName::from_static("metadata"), "true")
                    .send_local(&context.local_pool)
                    .await
                    .map_err(map_unreachable)?
            }
        };
        response.read(|body| response::entra_token(body, context.now))
    }
}

fn authority(environment: &Environment) -> Result<Url, TokenError> {
    const NAME: &str = "AZURE_AUTHORITY_HOST";
    endpoint(NAME, environment.get(NAME).unwrap_or(DEFAULT_URL))
}

/// Without a metadata service there is no machine identity: report the missing configuration instead.
fn map_unreachable(error: TokenError) -> TokenError {
    match error {
        TokenError::Connection { .. } | TokenError::NoAnswer { .. } => TokenError::NoIdentity {
            provider: "azure",
            why: format!(
                "AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_FEDERATED_TOKEN_FILE are not all set, and the metadata service \
                 returns no token: {error}"
            ),
        },
        other => other,
    }
}
