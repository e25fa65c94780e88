//! Whole exchanges against doubles that check what they are asked.

mod aws;
mod azure;
mod cache;
pub(crate) mod double;
pub(crate) mod github;
mod wanted;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::interval::Interval;
use sluice_api::source::GitRepositorySpec;
use sluice_runtime::clock::ManualClock;
use sluice_runtime::metrics::Metrics;
use sluice_runtime::schedule::ObjectKey;

use super::{CacheSettings, Environment, IdentityError, Rules, Terms, TokenSettings, Tokens, Wanted};
use crate::git::{Address, Credentials, Tls, Transport};
use double::{Asked, Double, Say};

/// No exchange of a test takes longer.
const LIMIT: Duration = Duration::from_secs(30);

/// Tokens, and what they are made with.
struct Bench {
    clock: Arc<ManualClock>,
    metrics: Metrics,
    tokens: Tokens,
}

/// How a bench is made.
#[derive(Default)]
struct Setting<'a> {
    environment: &'a [(&'a str, &'a str)],
    rules: Rules,
    cache: CacheSettings,
    kubernetes: Option<&'a Double>,
}

impl Bench {
    fn new(setting: Setting<'_>) -> Self {
        let clock = Arc::new(ManualClock::new(now()));
        let metrics = Metrics::new();
        let kubernetes = setting
            .kubernetes
            .map_or("http://127.0.0.1:9", |double| double.url.as_str());
        let settings = TokenSettings {
            client: kube::Client::try_from(kube::Config::new(kubernetes.parse().unwrap())).unwrap(),
            clock: clock.clone(),
            environment: setting.environment.iter().copied().collect::<Environment>(),
            rules: setting.rules,
            cache: setting.cache,
        };
        let tokens = Tokens::new(settings, &metrics).unwrap();
        Self {
            clock,
            metrics,
            tokens,
        }
    }

    /// What a remote is told for this spec, as `name`.
    async fn lend_as(
        &self,
        name: &str,
        url: &str,
        fields: Value,
        secret: Option<&BTreeMap<String, Vec<u8>>>,
    ) -> Result<Credentials, IdentityError> {
        self.lend_within(LIMIT, name, url, fields, secret).await
    }

    async fn lend_within(
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
        let wanted = Wanted::of(&spec, "team", &address, secret, self.tokens.rules())?;
        let tls = Arc::new(secret.map(|(_, data)| Tls::of(data)).unwrap_or_default());
        let terms = Terms {
            limit,
            transport: &Transport::new().unwrap(),
            tls: &tls,
            proxy: None,
        };
        let wanted = wanted.expect("a provider");
        self.tokens.credentials(wanted, &object(name), &terms).await
    }

    /// As the object `app`, without a Secret.
    async fn lend(&self, url: &str, fields: Value) -> Result<Credentials, IdentityError> {
        self.lend_as("app", url, fields, None).await
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

/// The credentials that are lent, without who and when.
fn lent(credentials: Credentials) -> Credentials {
    match credentials {
        Credentials::Lent { credentials, .. } => *credentials,
        other => other,
    }
}

fn basic(username: &str, password: &str) -> Credentials {
    Credentials::Basic {
        username: username.to_owned(),
        password: password.to_owned(),
    }
}

/// A double of the Kubernetes API: the ServiceAccount `team/deployer` with these annotations, whose tokens say for whom
/// they are and how many were made before.
async fn kubernetes(annotations: Value) -> Double {
    let made = std::sync::atomic::AtomicUsize::new(0);
    Double::start(move |asked| match asked.line.as_str() {
        "GET /api/v1/namespaces/team/serviceaccounts/deployer" => Say::json(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "deployer", "namespace": "team", "annotations": annotations },
        })),
        line if line.starts_with("POST /api/v1/namespaces/team/serviceaccounts/deployer/token?") => {
            let wanted: Value = serde_json::from_str(&asked.body).unwrap();
            assert_eq!(wanted["spec"]["expirationSeconds"], 600);
            let audiences = wanted["spec"]["audiences"].as_array().unwrap().clone();
            assert_eq!(audiences.len(), 1);
            let number = made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let token = format!("token-{number}-for-{}", audiences[0].as_str().unwrap());
            Say::Text(
                201,
                json!({
                    "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
                    "spec": wanted["spec"], "status": { "token": token, "expirationTimestamp": IN_AN_HOUR },
                })
                .to_string(),
            )
        }
        line => {
            let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                "reason": "NotFound", "message": format!("{line} is not here") });
            Say::Text(404, status.to_string())
        }
    })
    .await
}

/// How a double answers.
type Answering = fn(&Asked) -> Say;

/// Answers of endpoints that are no help, and the text that comes of each. The request's own secret is repeated in one
/// of them, as a careless server might.
fn bad_answers() -> Vec<(&'static str, Answering)> {
    fn echo(asked: &Asked) -> Say {
        let all = format!("{} {}", asked.header("authorization"), asked.body);
        let form: Vec<String> = asked.form().into_values().collect();
        Say::Text(
            400,
            json!({ "message": format!("no: {all} {}", form.join(" ")) }).to_string(),
        )
    }
    vec![
        ("HTTP status 400: no:", echo),
        ("HTTP status 401: bad credentials", |_| {
            Say::Text(401, json!({ "message": "bad credentials" }).to_string())
        }),
        ("HTTP status 403", |_| Say::Text(403, "<html>".to_owned())),
        ("HTTP status 404", |_| Say::Text(404, "{}".to_owned())),
        ("HTTP status 500", |_| Say::Text(500, "oops".to_owned())),
        ("HTTP status 302", |_| Say::Text(302, String::new())),
        ("asks to wait 7s (HTTP status 429)", |_| Say::Wait(429, "7")),
        ("asks to wait 9s (HTTP status 503)", |_| Say::Wait(503, "9")),
        ("cannot be used: it", |_| Say::Text(200, "garbage".to_owned())),
        ("cannot be used: it has no", |_| Say::Text(200, "{}".to_owned())),
        ("is longer than 1048576 bytes", |_| {
            Say::Text(200, " ".repeat((1 << 20) + 1))
        }),
    ]
}
