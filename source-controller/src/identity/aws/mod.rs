//! AWS keys: the controller's own, or those of a role that a ServiceAccount may assume.

pub mod codecommit;
mod container;

use std::collections::BTreeMap;

use container::Container;
use http::{HeaderName, Method, header};
use sluice_runtime::redact::Secret;
use url::Url;

use super::account::{ServiceAccountRef, SubjectToken};
use super::cache::Fingerprint;
use super::environment::Environment;
use super::error::TokenError;
use super::request::{ExchangeContext, ProviderRequest, endpoint, join_path};
use super::response::{self, AwsKeys};

/// Audience of ServiceAccount tokens.
const AUDIENCE: &str = "sts.amazonaws.com";
const ROLE_ANNOTATION: &str = "eks.amazonaws.com/role-arn";
/// Endpoint of the instance metadata service.
const METADATA: &str = "http://169.254.169.254";
const TOKEN_FILE: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
const METADATA_VARIABLE: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
/// Maximum length of a role session name.
const MAX_SESSION_NAME: usize = 64;

/// A source of AWS keys.
#[derive(Clone, Debug)]
pub(super) enum Aws {
    /// Static keys from the environment.
    Fixed(AwsKeys),
    /// A role assumed with a workload's token.
    Assumed {
        sts: Url,
        role: String,
        session: String,
        credential: SubjectToken,
    },
    /// A container credentials agent: EKS Pod Identity or ECS.
    Container(Container),
    /// The role of the instance.
    Instance(Url),
}

impl Aws {
    /// Selects the controller's own identity, in the order of the AWS SDKs. `region` is the repository's region.
    ///
    /// # Errors
    /// A variable is invalid, or no source is configured.
    pub(super) fn from_environment(environment: &Environment, region: &str) -> Result<Self, TokenError> {
        if let (Some(id), Some(secret)) = (
            environment.get("AWS_ACCESS_KEY_ID"),
            environment.get("AWS_SECRET_ACCESS_KEY"),
        ) {
            let token = environment.get("AWS_SESSION_TOKEN");
            return Ok(Self::Fixed(AwsKeys {
                access_key_id: id.to_owned(),
                secret_access_key: Secret::from(secret.to_owned()),
                session_token: token.map(|token| Secret::from(token.to_owned())),
                expires: None,
            }));
        }
        if let (Some(role), Some(path)) = (environment.get("AWS_ROLE_ARN"), environment.get(TOKEN_FILE)) {
            let session = environment
                .get("AWS_ROLE_SESSION_NAME")
                .unwrap_or("source-controller");
            let own_region = ["AWS_REGION", "AWS_DEFAULT_REGION"]
                .into_iter()
                .find_map(|name| environment.get(name));
            return Ok(Self::Assumed {
                sts: sts(environment, own_region.unwrap_or(region))?,
                role: role.to_owned(),
                session: session.to_owned(),
                credential: SubjectToken::File {
                    variable: TOKEN_FILE,
                    path: path.into(),
                },
            });
        }
        if let Some(container) = Container::from_environment(environment)? {
            return Ok(Self::Container(container));
        }
        if environment
            .get("AWS_EC2_METADATA_DISABLED")
            .is_some_and(|text| text.eq_ignore_ascii_case("true"))
        {
            return Err(no_identity("the metadata service of the instance is disabled"));
        }
        let address = environment.get(METADATA_VARIABLE).unwrap_or(METADATA);
        Ok(Self::Instance(endpoint(METADATA_VARIABLE, address)?))
    }

    /// Selects the role in a ServiceAccount's annotation.
    ///
    /// # Errors
    /// The annotation is missing or invalid, or a variable contains an invalid endpoint.
    pub(super) fn from_account(
        environment: &Environment,
        account: ServiceAccountRef,
        annotations: &BTreeMap<String, String>,
        region: &str,
    ) -> Result<Self, TokenError> {
        let role = annotations
            .get(ROLE_ANNOTATION)
            .ok_or_else(|| account.error(format!("missing annotation {ROLE_ANNOTATION}")))?;
        if !is_role(role) {
            let why = format!(
                "annotation {ROLE_ANNOTATION} is not a role ARN: expected arn:aws:iam::<account>:role/<name>"
            );
            return Err(account.error(why));
        }
        let session = format!("{}.{}.{region}.fluxcd.io", account.name, account.namespace);
        Ok(Self::Assumed {
            sts: sts(environment, region)?,
            role: role.clone(),
            session: session.chars().take(MAX_SESSION_NAME).collect(),
            credential: SubjectToken::ServiceAccountRef {
                account,
                audience: AUDIENCE,
            },
        })
    }

    /// Returns the fingerprint of the identity: everything that determines the permissions of its keys.
    pub(super) fn fingerprint(&self) -> [u8; 32] {
        let fingerprint = Fingerprint::new("aws");
        match self {
            Self::Fixed(keys) => {
                let token = keys.session_token.as_ref();
                fingerprint
                    .with("fixed")
                    .with(&keys.access_key_id)
                    .with(keys.secret_access_key.expose())
                    .with(token.map_or("", |token| token.expose()))
            }
            Self::Assumed {
                sts,
                role,
                session,
                credential,
            } => credential.add_to(
                fingerprint
                    .with("assumed")
                    .with(sts.as_str())
                    .with(role)
                    .with(session),
            ),
            Self::Container(container) => container.add_to(fingerprint.with("container")),
            Self::Instance(endpoint) => fingerprint.with("instance").with(endpoint.as_str()),
        }
        .digest()
    }

    /// Requests new keys.
    ///
    /// # Errors
    /// The workload token is missing, or the endpoint refuses, does not respond, or sends an invalid response.
    pub(super) async fn keys(&self, context: &ExchangeContext) -> Result<AwsKeys, TokenError> {
        match self {
            Self::Fixed(keys) => Ok(keys.clone()),
            Self::Assumed {
                sts,
                role,
                session,
                credential,
            } => {
                let credential = credential.token(&context.kube).await?;
                let form = [
                    ("Action", "AssumeRoleWithWebIdentity"),
                    ("Version", "2011-06-15"),
                    ("RoleArn", role),
                    ("RoleSessionName", session),
                    ("WebIdentityToken", credential.expose()),
                ];
                let response = ProviderRequest::new(Method::POST, sts.clone(), "assume the role")
                    .header(header::ACCEPT, "text/xml")
                    .form(&form, &credential)
                    .send(&context.pool)
                    .await?;
                response.read(response::assumed_keys)
            }
            Self::Container(container) => container.keys(context).await,
            Self::Instance(endpoint) => instance(endpoint, context).await,
        }
    }
}

/// Requests the keys of the instance's role with `IMDSv2`.
async fn instance(endpoint: &Url, context: &ExchangeContext) -> Result<AwsKeys, TokenError> {
    const WHAT: &str = "return the keys of the instance's role";
    let session = ProviderRequest::new(
        Method::PUT,
        join_path(endpoint, ["latest", "api", "token"]),
        "open a metadata session",
    )
    .header(
        HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds"),
        "300",
    )
    .send_local(&context.local_pool)
    .await
    .map_err(map_unreachable)?;
    let session = session.read(response::first_line)?;
    let request = |url: Url| {
        let name = HeaderName::from_static("x-aws-ec2-metadata-token");
        ProviderRequest::new(Method::GET, url, WHAT)
            .secret(name, "", &session)
            .send_local(&context.local_pool)
    };
    let roles = ["latest", "meta-data", "iam", "security-credentials"];
    let role = request(join_path(endpoint, roles.into_iter().chain([""]))).await?;
    let role = role.read(response::first_line)?;
    let keys = request(join_path(
        endpoint,
        roles.into_iter().chain([role.expose().as_str()]),
    ))
    .await?;
    keys.read(response::metadata_keys)
}

fn is_role(text: &str) -> bool {
    let parts: Vec<&str> = text.splitn(6, ':').collect();
    let [arn, partition, "iam", "", account, role] = parts[..] else {
        return false;
    };
    arn == "arn"
        && partition.starts_with("aws")
        && (1..=30).contains(&account.len())
        && account.bytes().all(|byte| byte.is_ascii_digit())
        && role
            .strip_prefix("role/")
            .is_some_and(|name| (1..=200).contains(&name.len()))
}

fn sts(environment: &Environment, region: &str) -> Result<Url, TokenError> {
    for name in ["AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"] {
        if let Some(text) = environment.get(name) {
            return endpoint(name, text);
        }
    }
    let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
    endpoint(
        "AWS_REGION",
        &format!("https://sts.{region}.amazonaws.com{suffix}/"),
    )
}

fn no_identity(why: &str) -> TokenError {
    TokenError::NoIdentity {
        provider: "aws",
        why: format!(
            "none of AWS_ACCESS_KEY_ID, AWS_WEB_IDENTITY_TOKEN_FILE and AWS_CONTAINER_CREDENTIALS_FULL_URI is set, and {why}"
        ),
    }
}

/// Without a metadata service there is no instance role: report the missing configuration instead.
fn map_unreachable(error: TokenError) -> TokenError {
    match error {
        TokenError::Connection { .. } | TokenError::NoAnswer { .. } => no_identity(&error.to_string()),
        other => other,
    }
}
