//! Tests of token exchanges against fakes that check their requests.

mod aws;
mod azure;
mod cache;
pub(crate) mod fake;
pub(crate) mod github;
mod provider;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fake::{FakeEndpoint, RecordedRequest, Reply};
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::interval::Interval;
use sluice_api::source::GitRepositorySpec;
use sluice_runtime::clock::ManualClock;
use sluice_runtime::metrics::Metrics;
use sluice_runtime::schedule::ObjectKey;

use super::{
    CacheSettings, Environment, ExchangeSettings, IdentityError, IdentityPolicy, ProviderIdentity,
    TokenSettings, Tokens,
};
use crate::git::{Address, Credentials, Tls, Transport};

/// Time limit of an exchange.
const LIMIT: Duration = Duration::from_secs(30);

/// Tokens with their dependencies.
struct Fixture {
    clock: Arc<ManualClock>,
    metrics: Metrics,
    tokens: Tokens,
}

/// Settings of a fixture.
#[derive(Default)]
struct FixtureSettings<'a> {
    environment: &'a [(&'a str, &'a str)],
    policy: IdentityPolicy,
    cache: CacheSettings,
    kubernetes: Option<&'a FakeEndpoint>,
}

impl Fixture {
    fn new(settings: FixtureSettings<'_>) -> Self {
        let clock = Arc::new(ManualClock::new(now()));
        let metrics = Metrics::new();
        let kubernetes = settings
            .kubernetes
            .map_or("http://127.0.0.1:9", |fake| fake.url.as_str());
        let settings = TokenSettings {
            client: kube::Client::try_from(kube::Config::new(kubernetes.parse().unwrap())).unwrap(),
            clock: clock.clone(),
            environment: settings.environment.iter().copied().collect::<Environment>(),
            policy: settings.policy,
            cache: settings.cache,
        };
        let tokens = Tokens::new(settings, &metrics).unwrap();
        Self {
            clock,
            metrics,
            tokens,
        }
    }

    /// Returns the credentials for this spec, as the object `name`.
    async fn credentials_as(
        &self,
        name: &str,
        url: &str,
        fields: Value,
        secret: Option<&BTreeMap<String, Vec<u8>>>,
    ) -> Result<Credentials, IdentityError> {
        self.credentials_within(LIMIT, name, url, fields, secret).await
    }

    async fn credentials_within(
        &self,
        limit: Duration,
        name: &str,
        url: &str,
        fields: Value,
        secret: Option<&BTreeMap<String, Vec<u8>>>,
    ) -> Result<Credentials, IdentityError> {
        let address = Address::parse(url).unwrap();
        let secret = secret.map(|data| ("team/s", data));
        let spec = spec(url, fields);
        let expected = ProviderIdentity::from_spec(&spec, "team", &address, secret, self.tokens.policy())?;
        let tls = Arc::new(secret.map(|(_, data)| Tls::from_secret(data)).unwrap_or_default());
        let settings = ExchangeSettings {
            limit,
            transport: &Transport::new().unwrap(),
            tls: &tls,
            proxy: None,
        };
        let expected = expected.expect("a provider");
        self.tokens.credentials(expected, &object(name), &settings).await
    }

    /// As the object `app`, without a Secret.
    async fn credentials(&self, url: &str, fields: Value) -> Result<Credentials, IdentityError> {
        self.credentials_as("app", url, fields, None).await
    }
}

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

/// An hour after [`now`].
const IN_AN_HOUR: &str = "2026-01-02T04:04:05Z";

fn object(name: &str) -> ObjectKey {
    ObjectKey {
        namespace: "team".to_owned(),
        name: name.to_owned(),
    }
}

fn spec(url: &str, fields: Value) -> GitRepositorySpec {
    let mut spec = json!(GitRepositorySpec::new(url, Interval::from_secs(60)));
    if let (Value::Object(spec), Value::Object(fields)) = (&mut spec, fields) {
        spec.extend(fields);
    }
    serde_json::from_value(spec).unwrap()
}

fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
        .collect()
}

/// Returns the inner credentials.
fn inner(credentials: Credentials) -> Credentials {
    match credentials {
        Credentials::WorkloadIdentity { credentials, .. } => *credentials,
        other => other,
    }
}

fn basic(username: &str, password: &str) -> Credentials {
    Credentials::Basic {
        username: username.to_owned(),
        password: password.to_owned(),
    }
}

/// A fake Kubernetes API with the ServiceAccount `team/deployer` and these annotations; its numbered tokens name their
/// audience.
async fn kubernetes(annotations: Value) -> FakeEndpoint {
    let issued = std::sync::atomic::AtomicUsize::new(0);
    FakeEndpoint::start(move |request| match request.line.as_str() {
        "GET /api/v1/namespaces/team/serviceaccounts/deployer" => Reply::json(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "deployer", "namespace": "team", "annotations": annotations },
        })),
        line if line.starts_with("POST /api/v1/namespaces/team/serviceaccounts/deployer/token?") => {
            let expected: Value = serde_json::from_str(&request.body).unwrap();
            assert_eq!(expected["spec"]["expirationSeconds"], 600);
            let audiences = expected["spec"]["audiences"].as_array().unwrap().clone();
            assert_eq!(audiences.len(), 1);
            let number = issued.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let token = format!("token-{number}-for-{}", audiences[0].as_str().unwrap());
            Reply::Text(
                201,
                json!({
                    "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
                    "spec": expected["spec"], "status": { "token": token, "expirationTimestamp": IN_AN_HOUR },
                })
                .to_string(),
            )
        }
        line => {
            let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                "reason": "NotFound", "message": format!("{line} is not here") });
            Reply::Text(404, status.to_string())
        }
    })
    .await
}

/// The handler of a fake.
type Handler = fn(&RecordedRequest) -> Reply;

/// Invalid responses, and part of the resulting error. One of them repeats the secrets of the request, as a careless
/// server might.
fn invalid_responses() -> Vec<(&'static str, Handler)> {
    fn echo(request: &RecordedRequest) -> Reply {
        let all = format!("{} {}", request.header("authorization"), request.body);
        let form: Vec<String> = request.form().into_values().collect();
        Reply::Text(
            400,
            json!({ "message": format!("no: {all} {}", form.join(" ")) }).to_string(),
        )
    }
    vec![
        ("HTTP status 400: no:", echo),
        ("HTTP status 401: bad credentials", |_| {
            Reply::Text(401, json!({ "message": "bad credentials" }).to_string())
        }),
        ("HTTP status 403", |_| Reply::Text(403, "<html>".to_owned())),
        ("HTTP status 404", |_| Reply::Text(404, "{}".to_owned())),
        ("HTTP status 500", |_| Reply::Text(500, "oops".to_owned())),
        ("HTTP status 302", |_| Reply::Text(302, String::new())),
        ("asks to wait 7s (HTTP status 429)", |_| Reply::Wait(429, "7")),
        ("asks to wait 9s (HTTP status 503)", |_| Reply::Wait(503, "9")),
        ("invalid response of", |_| Reply::Text(200, "garbage".to_owned())),
        (": missing ", |_| Reply::Text(200, "{}".to_owned())),
        ("exceeds 1048576 bytes", |_| {
            Reply::Text(200, " ".repeat((1 << 20) + 1))
        }),
    ]
}
