//! Microsoft Entra: a token for Azure DevOps, by workload identity federation, a client secret or a managed identity.

use std::collections::BTreeMap;

use http::{HeaderName, Method};
use sluice_runtime::redact::Secret;
use url::Url;

use super::account::{Account, Proof};
use super::answer::{self, Grant};
use super::call::{Call, below, endpoint};
use super::environment::Environment;
use super::error::TokenError;
use super::reach::Reach;
use super::who::Who;

/// Azure DevOps, as Entra knows it.
const DEVOPS: &str = "499b84ac-1321-427f-aa17-267ca6975798";
/// Whom a ServiceAccount's token is for.
const AUDIENCE: &str = "api://AzureADTokenExchange";
/// Says in a request that a token of another issuer stands for the client.
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// Entra of the public cloud.
const PUBLIC: &str = "https://login.microsoftonline.com/";
/// Where managed identities are asked for, on each machine.
const METADATA: &str = "http://169.254.169.254";
const METADATA_VARIABLE: &str = "AZURE_POD_IDENTITY_AUTHORITY_HOST";
const CLIENT_ANNOTATION: &str = "azure.workload.identity/client-id";
const TENANT_ANNOTATION: &str = "azure.workload.identity/tenant-id";
/// What is asked for, as errors say it.
const WHAT: &str = "give a token for Azure DevOps";

/// How a token of Entra is had.
#[derive(Clone, Debug)]
pub(super) enum Azure {
    /// As an application of a tenant, at its token endpoint.
    Application {
        authority: Url,
        tenant: String,
        client: String,
        proof: ClientProof,
    },
    /// As the identity of the machine, or one of those assigned to it.
    Managed { endpoint: Url, client: Option<String> },
}

/// How an application proves itself.
#[derive(Clone, Debug)]
pub(super) enum ClientProof {
    /// A secret that it shares with Entra.
    Secret(Secret<String>),
    /// A token of an issuer that Entra trusts.
    Federated(Proof),
}

impl Azure {
    /// The controller's own identity, from what the environment says.
    ///
    /// # Errors
    /// A variable names an endpoint that is none.
    pub(super) fn of_controller(environment: &Environment) -> Result<Self, TokenError> {
        let client = environment.get("AZURE_CLIENT_ID").map(str::to_owned);
        let tenant = environment.get("AZURE_TENANT_ID").map(str::to_owned);
        let proof = environment
            .get("AZURE_CLIENT_SECRET")
            .map(|secret| ClientProof::Secret(Secret::from(secret.to_owned())))
            .or_else(|| {
                let path = environment.get("AZURE_FEDERATED_TOKEN_FILE")?.into();
                let variable = "AZURE_FEDERATED_TOKEN_FILE";
                Some(ClientProof::Federated(Proof::File { variable, path }))
            });
        if let (Some(client), Some(tenant), Some(proof)) = (client.clone(), tenant, proof) {
            return Ok(Self::Application {
                authority: authority(environment)?,
                tenant,
                client,
                proof,
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

    /// The identity that a ServiceAccount's annotations name.
    ///
    /// # Errors
    /// They name none, or a variable names an endpoint that is none.
    pub(super) fn of_account(
        environment: &Environment,
        account: Account,
        annotations: &BTreeMap<String, String>,
    ) -> Result<Self, TokenError> {
        let noted = |name: &str| annotations.get(name).filter(|value| !value.is_empty()).cloned();
        let client = noted(CLIENT_ANNOTATION)
            .ok_or_else(|| account.lacks(format!("it has no annotation {CLIENT_ANNOTATION}")))?;
        let tenant = noted(TENANT_ANNOTATION)
            .or_else(|| environment.get("AZURE_TENANT_ID").map(str::to_owned))
            .ok_or_else(|| {
                let why = format!("it has no annotation {TENANT_ANNOTATION}, and AZURE_TENANT_ID is not set");
                account.lacks(why)
            })?;
        Ok(Self::Application {
            authority: authority(environment)?,
            tenant,
            client,
            proof: ClientProof::Federated(Proof::Account {
                account,
                audience: AUDIENCE,
            }),
        })
    }

    /// Who this is: everything that decides what a token may do.
    pub(super) fn who(&self) -> [u8; 32] {
        let who = Who::new("azure");
        match self {
            Self::Application {
                authority,
                tenant,
                client,
                proof,
            } => {
                let who = who
                    .and("application")
                    .and(authority.as_str())
                    .and(tenant)
                    .and(client);
                match proof {
                    ClientProof::Secret(secret) => who.and("secret").and(secret.expose()),
                    ClientProof::Federated(proof) => proof.tell(who),
                }
            }
            Self::Managed { endpoint, client } => {
                let client = client.as_deref().unwrap_or_default();
                who.and("managed").and(endpoint.as_str()).and(client)
            }
        }
        .digest()
    }

    /// A new token.
    ///
    /// # Errors
    /// There is no proof, or Entra refuses, does not answer, or answers something else.
    pub(super) async fn token(&self, reach: &Reach) -> Result<Grant, TokenError> {
        let answer = match self {
            Self::Application {
                authority,
                tenant,
                client,
                proof,
            } => {
                let url = below(authority, [tenant.as_str(), "oauth2", "v2.0", "token"]);
                let scope = format!("{DEVOPS}/.default");
                let mut form = vec![
                    ("grant_type", "client_credentials"),
                    ("client_id", client),
                    ("scope", &scope),
                ];
                let hidden = match proof {
                    ClientProof::Secret(secret) => secret.clone(),
                    ClientProof::Federated(proof) => {
                        form.push(("client_assertion_type", ASSERTION_TYPE));
                        proof.token(&reach.kube).await?
                    }
                };
                form.push(match proof {
                    ClientProof::Secret(_) => ("client_secret", hidden.expose()),
                    ClientProof::Federated(_) => ("client_assertion", hidden.expose()),
                });
                let call = Call::new(Method::POST, url, WHAT).form(&form, &hidden);
                call.succeed(&reach.pool).await?
            }
            Self::Managed { endpoint, client } => {
                let mut url = below(endpoint, ["metadata", "identity", "oauth2", "token"]);
                url.query_pairs_mut()
                    .append_pair("api-version", "2018-02-01")
                    .append_pair("resource", DEVOPS)
                    .extend_pairs(client.iter().map(|client| ("client_id", client)));
                Call::new(Method::GET, url, WHAT)
                    .header(HeaderName::from_static("metadata"), "true")
                    .succeed_nearby(&reach.nearby)
                    .await
                    .map_err(nobody)?
            }
        };
        answer.read(|body| answer::entra_token(body, reach.now))
    }
}

fn authority(environment: &Environment) -> Result<Url, TokenError> {
    const NAME: &str = "AZURE_AUTHORITY_HOST";
    endpoint(NAME, environment.get(NAME).unwrap_or(PUBLIC))
}

/// Where nothing answers there is no machine identity, and what the user needs to hear is what else would do.
fn nobody(error: TokenError) -> TokenError {
    match error {
        TokenError::Connection { .. } | TokenError::NoAnswer { .. } => TokenError::NoIdentity {
            provider: "azure",
            why: format!(
                "AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_FEDERATED_TOKEN_FILE are not all set, and the metadata service gives none: {error}"
            ),
        },
        other => other,
    }
}
