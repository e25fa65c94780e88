//! Keys of AWS: the controller's own, or those of a role that a ServiceAccount may assume.

pub mod codecommit;
mod nearby;

use std::collections::BTreeMap;

use http::{HeaderName, Method, header};
use sluice_runtime::redact::Secret;
use url::Url;

use super::account::{Account, Proof};
use super::answer::{self, Keys};
use super::call::{Call, below, endpoint};
use super::environment::Environment;
use super::error::TokenError;
use super::reach::Reach;
use super::who::Who;
use nearby::Container;

/// Whom a ServiceAccount's token is for.
const AUDIENCE: &str = "sts.amazonaws.com";
const ROLE_ANNOTATION: &str = "eks.amazonaws.com/role-arn";
/// Where the credentials of an instance's role are asked for.
const METADATA: &str = "http://169.254.169.254";
const TOKEN_FILE: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
const METADATA_VARIABLE: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
/// Most characters of the name that a session has in AWS's logs.
const LONGEST_SESSION: usize = 64;

/// Where keys come from.
#[derive(Clone, Debug)]
pub(super) enum Aws {
    /// The environment holds them.
    Fixed(Keys),
    /// A role, assumed with a token of a workload.
    Assumed {
        sts: Url,
        role: String,
        session: String,
        proof: Proof,
    },
    /// An agent beside the container: EKS Pod Identity, ECS.
    Container(Container),
    /// The role of the instance.
    Instance(Url),
}

impl Aws {
    /// The controller's own, in the order of the vendor's tools. `region` is the repository's.
    ///
    /// # Errors
    /// What the environment says is not usable, or rules every way out.
    pub(super) fn of_controller(environment: &Environment, region: &str) -> Result<Self, TokenError> {
        if let (Some(id), Some(secret)) = (
            environment.get("AWS_ACCESS_KEY_ID"),
            environment.get("AWS_SECRET_ACCESS_KEY"),
        ) {
            let token = environment.get("AWS_SESSION_TOKEN");
            return Ok(Self::Fixed(Keys {
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
                proof: Proof::File {
                    variable: TOKEN_FILE,
                    path: path.into(),
                },
            });
        }
        if let Some(container) = Container::of(environment)? {
            return Ok(Self::Container(container));
        }
        if environment
            .get("AWS_EC2_METADATA_DISABLED")
            .is_some_and(|text| text.eq_ignore_ascii_case("true"))
        {
            return Err(none("the metadata service of the instance is disabled"));
        }
        let address = environment.get(METADATA_VARIABLE).unwrap_or(METADATA);
        Ok(Self::Instance(endpoint(METADATA_VARIABLE, address)?))
    }

    /// The role that a ServiceAccount's annotation names.
    ///
    /// # Errors
    /// It names none, or a variable names an endpoint that is none.
    pub(super) fn of_account(
        environment: &Environment,
        account: Account,
        annotations: &BTreeMap<String, String>,
        region: &str,
    ) -> Result<Self, TokenError> {
        let role = annotations
            .get(ROLE_ANNOTATION)
            .ok_or_else(|| account.lacks(format!("it has no annotation {ROLE_ANNOTATION}")))?;
        if !is_role(role) {
            let why =
                format!("its annotation {ROLE_ANNOTATION} is no role: arn:aws:iam::<account>:role/<name>");
            return Err(account.lacks(why));
        }
        let session = format!("{}.{}.{region}.fluxcd.io", account.name, account.namespace);
        Ok(Self::Assumed {
            sts: sts(environment, region)?,
            role: role.clone(),
            session: session.chars().take(LONGEST_SESSION).collect(),
            proof: Proof::Account {
                account,
                audience: AUDIENCE,
            },
        })
    }

    /// Who this is: everything that decides what the keys may do.
    pub(super) fn who(&self) -> [u8; 32] {
        let who = Who::new("aws");
        match self {
            Self::Fixed(keys) => {
                let token = keys.session_token.as_ref();
                who.and("fixed")
                    .and(&keys.access_key_id)
                    .and(keys.secret_access_key.expose())
                    .and(token.map_or("", |token| token.expose()))
            }
            Self::Assumed {
                sts,
                role,
                session,
                proof,
            } => proof.tell(who.and("assumed").and(sts.as_str()).and(role).and(session)),
            Self::Container(container) => container.tell(who.and("container")),
            Self::Instance(endpoint) => who.and("instance").and(endpoint.as_str()),
        }
        .digest()
    }

    /// New keys.
    ///
    /// # Errors
    /// There is no proof, or whoever gives the keys refuses, does not answer, or answers something else.
    pub(super) async fn keys(&self, reach: &Reach) -> Result<Keys, TokenError> {
        match self {
            Self::Fixed(keys) => Ok(keys.clone()),
            Self::Assumed {
                sts,
                role,
                session,
                proof,
            } => {
                let proof = proof.token(&reach.kube).await?;
                let form = [
                    ("Action", "AssumeRoleWithWebIdentity"),
                    ("Version", "2011-06-15"),
                    ("RoleArn", role),
                    ("RoleSessionName", session),
                    ("WebIdentityToken", proof.expose()),
                ];
                let answer = Call::new(Method::POST, sts.clone(), "let the role be assumed")
                    .header(header::ACCEPT, "text/xml")
                    .form(&form, &proof)
                    .succeed(&reach.pool)
                    .await?;
                answer.read(answer::assumed_keys)
            }
            Self::Container(container) => container.keys(reach).await,
            Self::Instance(endpoint) => instance(endpoint, reach).await,
        }
    }
}

/// The keys of the instance's role, by the second version of the metadata service.
async fn instance(endpoint: &Url, reach: &Reach) -> Result<Keys, TokenError> {
    const WHAT: &str = "give the keys of the instance's role";
    let session = Call::new(
        Method::PUT,
        below(endpoint, ["latest", "api", "token"]),
        "open a session",
    )
    .header(
        HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds"),
        "300",
    )
    .succeed_nearby(&reach.nearby)
    .await
    .map_err(nobody)?;
    let session = session.read(answer::line)?;
    let ask = |url: Url| {
        let name = HeaderName::from_static("x-aws-ec2-metadata-token");
        Call::new(Method::GET, url, WHAT)
            .secret(name, "", &session)
            .succeed_nearby(&reach.nearby)
    };
    let roles = ["latest", "meta-data", "iam", "security-credentials"];
    let role = ask(below(endpoint, roles.into_iter().chain([""]))).await?;
    let role = role.read(answer::line)?;
    let keys = ask(below(endpoint, roles.into_iter().chain([role.expose().as_str()]))).await?;
    keys.read(answer::metadata_keys)
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

fn none(why: &str) -> TokenError {
    TokenError::NoIdentity {
        provider: "aws",
        why: format!(
            "none of AWS_ACCESS_KEY_ID, AWS_WEB_IDENTITY_TOKEN_FILE and AWS_CONTAINER_CREDENTIALS_FULL_URI is set, and {why}"
        ),
    }
}

/// Where nothing answers there is no instance, and what the user needs to hear is what else would do.
fn nobody(error: TokenError) -> TokenError {
    match error {
        TokenError::Connection { .. } | TokenError::NoAnswer { .. } => none(&error.to_string()),
        other => other,
    }
}
