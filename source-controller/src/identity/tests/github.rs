//! Tests of GitHub Apps, against a fake that verifies the assertion with the public key.

use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use sluice_harness::tls::Authority;
use sluice_runtime::clock::Clock;

use super::*;

/// The App's key, made by the real `ssh-keygen`.
pub(crate) struct Key {
    /// PKCS #1.
    pub(crate) pem: String,
    /// PKCS #8.
    pub(crate) pkcs8: String,
    public: Vec<u8>,
}

/// Returns the key shared by all tests.
pub(crate) fn key() -> &'static Key {
    static KEY: OnceLock<Key> = OnceLock::new();
    KEY.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let keygen = |arguments: &[&str]| {
            let done = Command::new("ssh-keygen")
                .args(arguments)
                .current_dir(directory.path())
                .output()
                .unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            String::from_utf8(done.stdout).unwrap()
        };
        let read = || std::fs::read_to_string(directory.path().join("key")).unwrap();
        keygen(&[
            "-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "", "-f", "key",
        ]);
        let pem = read();
        let public = keygen(&["-e", "-m", "PEM", "-f", "key.pub"]);
        keygen(&["-q", "-p", "-m", "PKCS8", "-P", "", "-N", "", "-f", "key"]);
        let body: String = public.lines().filter(|line| !line.starts_with('-')).collect();
        Key {
            pem,
            pkcs8: read(),
            public: STANDARD.decode(body).unwrap(),
        }
    })
}

/// A fake GitHub API with the App 7, installed by the organisation `acme` as 42 and by the user `jane` as 43. Tokens
/// are `ghs_<installation>_<number>` and valid for an hour.
pub(crate) async fn api(clock: Arc<dyn Clock>) -> FakeEndpoint {
    FakeEndpoint::start(handler(clock)).await
}

/// The same with TLS.
pub(crate) async fn api_tls(clock: Arc<dyn Clock>, authority: &Authority) -> FakeEndpoint {
    FakeEndpoint::start_tls(authority, handler(clock)).await
}

fn handler(clock: Arc<dyn Clock>) -> impl Fn(&RecordedRequest) -> Reply + Send + Sync + 'static {
    let issued = AtomicUsize::new(0);
    move |request| {
        let now = clock.now();
        if let Err(why) = verify(request, now) {
            return Reply::Text(401, json!({ "message": why }).to_string());
        }
        let path = request.line.replace("/api/v3/", "/");
        let installation = match path.as_str() {
            "GET /orgs/acme/installation" => return Reply::json(&json!({ "id": 42 })),
            "GET /users/jane/installation" => return Reply::json(&json!({ "id": 43 })),
            "POST /app/installations/42/access_tokens" => 42,
            "POST /app/installations/43/access_tokens" => 43,
            _ => return Reply::Text(404, json!({ "message": "Not Found" }).to_string()),
        };
        let number = issued.fetch_add(1, Ordering::Relaxed);
        let expires = now.checked_add(Duration::from_hours(1)).unwrap();
        let granted = json!({
            "token": format!("ghs_{installation}_{number}"), "expires_at": expires.to_string(),
            "permissions": { "contents": "read" }, "repository_selection": "selected",
        });
        Reply::Text(201, granted.to_string())
    }
}

/// Checks a request as GitHub does: signature, times, issuer, and the documented headers.
fn verify(request: &RecordedRequest, now: Timestamp) -> Result<(), String> {
    let token = request
        .header("authorization")
        .strip_prefix("Bearer ")
        .ok_or("no bearer token")?;
    let (signed, signature) = token.rsplit_once('.').ok_or("no signature")?;
    let (header, claims) = signed.split_once('.').ok_or("no claims")?;
    let decoded = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|error| error.to_string());
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &key().public)
        .verify(signed.as_bytes(), &decoded(signature)?)
        .map_err(|_| "the signature is not the App's")?;
    let header: Value = serde_json::from_slice(&decoded(header)?).map_err(|error| error.to_string())?;
    let claims: Value = serde_json::from_slice(&decoded(claims)?).map_err(|error| error.to_string())?;
    let issued = now.as_second() - 30;
    let expected = json!({ "iat": issued, "exp": issued + 120, "iss": "7" });
    if claims != expected || header != json!({ "alg": "RS256", "typ": "JWT" }) {
        return Err(format!("{header} {claims} in place of {expected}"));
    }
    let accept = (request.header("accept"), request.header("x-github-api-version"));
    if accept != ("application/vnd.github+json", "2022-11-28") || request.header("user-agent").is_empty() {
        return Err(format!("headers {accept:?}"));
    }
    Ok(())
}

/// Returns the Secret of the App with this installation.
fn app(fake: &FakeEndpoint, installation: (&str, &str)) -> BTreeMap<String, Vec<u8>> {
    data(&[
        ("githubAppID", "7"),
        ("githubAppPrivateKey", &key().pem),
        ("githubAppBaseURL", &fake.url),
        installation,
    ])
}

const REPOSITORY: &str = "https://github.example/acme/app";

async fn credentials_of(
    fixture: &Fixture,
    secret: &BTreeMap<String, Vec<u8>>,
) -> Result<Credentials, IdentityError> {
    let fields = json!({ "provider": "github" });
    fixture
        .credentials_as("app", REPOSITORY, fields, Some(secret))
        .await
}

#[tokio::test]
async fn a_token_of_the_installation_is_the_password() {
    let fixture = Fixture::new(FixtureSettings::default());
    let fake = api(fixture.clock.clone()).await;
    let by_id = app(&fake, ("githubAppInstallationID", "42"));
    let found = credentials_of(&fixture, &by_id).await.unwrap();
    assert_eq!(inner(found), basic("x-access-token", "ghs_42_0"));
    let request = fake.requests();
    assert_eq!(request.len(), 1);
    assert_eq!(request[0].line, "POST /app/installations/42/access_tokens");
}

#[tokio::test]
async fn an_owner_is_looked_up_among_organisations_and_then_users() {
    let fixture = Fixture::new(FixtureSettings::default());
    let fake = api(fixture.clock.clone()).await;
    let owner = |name| app(&fake, ("githubAppInstallationOwner", name));
    let found = credentials_of(&fixture, &owner("acme")).await.unwrap();
    assert_eq!(inner(found), basic("x-access-token", "ghs_42_0"));
    let found = credentials_of(&fixture, &owner("jane")).await.unwrap();
    assert_eq!(inner(found), basic("x-access-token", "ghs_43_1"));
    assert_eq!(
        fake.request_lines(),
        [
            "GET /orgs/acme/installation",
            "POST /app/installations/42/access_tokens",
            "GET /orgs/jane/installation",
            "GET /users/jane/installation",
            "POST /app/installations/43/access_tokens",
        ]
    );
    let error = credentials_of(&fixture, &owner("no/../body"))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("refuses to look up the installation of the GitHub App: HTTP status 404: Not Found"),
        "{error}"
    );
    assert_eq!(fake.request_lines()[5], "GET /orgs/no%2F..%2Fbody/installation");
}

#[tokio::test]
async fn an_enterprise_server_uses_its_base_url_with_both_key_formats() {
    let fixture = Fixture::new(FixtureSettings::default());
    let fake = api(fixture.clock.clone()).await;
    let mut secret = app(&fake, ("githubAppInstallationID", "42"));
    let base = format!("{}/api/v3/", fake.url);
    secret.insert("githubAppBaseURL".to_owned(), base.into_bytes());
    secret.insert("githubAppPrivateKey".to_owned(), key().pkcs8.clone().into_bytes());
    let found = credentials_of(&fixture, &secret).await.unwrap();
    assert_eq!(inner(found), basic("x-access-token", "ghs_42_0"));
    assert_eq!(
        fake.request_lines(),
        ["POST /api/v3/app/installations/42/access_tokens"]
    );
}

#[tokio::test]
async fn a_renewed_token_keeps_its_fingerprint() {
    let fixture = Fixture::new(FixtureSettings::default());
    let fake = api(fixture.clock.clone()).await;
    let secret = app(&fake, ("githubAppInstallationID", "42"));
    let first = credentials_of(&fixture, &secret).await.unwrap();
    fixture.clock.advance(Duration::from_secs(2879));
    assert_eq!(credentials_of(&fixture, &secret).await.unwrap(), first);
    fixture.clock.advance(Duration::from_secs(1));
    let second = credentials_of(&fixture, &secret).await.unwrap();
    assert_ne!(second.header(), first.header());
    assert_eq!(
        second.digest(),
        first.digest(),
        "otherwise the mirror would be cloned again"
    );
    assert_eq!(fake.requests().len(), 2);
}

#[tokio::test]
async fn a_refused_token_is_dropped_unless_it_has_been_renewed() {
    let fixture = Fixture::new(FixtureSettings::default());
    let fake = api(fixture.clock.clone()).await;
    let secret = app(&fake, ("githubAppInstallationID", "42"));
    let first = credentials_of(&fixture, &secret).await.unwrap();
    fixture.tokens.invalidate(&Credentials::Anonymous);
    assert_eq!(credentials_of(&fixture, &secret).await.unwrap(), first);
    fixture.tokens.invalidate(&first);
    let second = credentials_of(&fixture, &secret).await.unwrap();
    assert_ne!(second, first);
    fixture.tokens.invalidate(&first);
    assert_eq!(credentials_of(&fixture, &secret).await.unwrap(), second);
    assert_eq!(fake.requests().len(), 2);
}

#[tokio::test]
async fn invalid_responses_cause_bounded_errors_without_secrets() {
    let fixture = Fixture::new(FixtureSettings::default());
    let fake = api(fixture.clock.clone()).await;
    let secret = app(&fake, ("githubAppInstallationID", "42"));
    for (expected, answer) in invalid_responses() {
        fake.set_handler(answer);
        let error = credentials_of(&fixture, &secret).await.unwrap_err().to_string();
        check_error(&error, expected, &fake);
    }
    assert_eq!(fixture.metrics.text().matches("cached_items 0").count(), 1);
}

/// Checks that the error names the host, is bounded, and contains no secret.
pub(super) fn check_error(error: &str, expected: &str, fake: &FakeEndpoint) {
    assert!(
        error.starts_with("failed to configure authentication options: "),
        "{error}"
    );
    assert!(error.contains(expected), "{error} / {expected}");
    assert!(error.contains(fake.host()), "{error}");
    assert!(error.len() < 1000, "{error}");
    for request in fake.requests() {
        let authorization = request
            .header("authorization")
            .trim_start_matches("Bearer ")
            .to_owned();
        let form = request.form();
        let secrets = ["client_assertion", "client_secret", "WebIdentityToken"];
        let secrets = secrets.iter().filter_map(|name| form.get(*name).cloned());
        for secret in secrets.chain([authorization]).filter(|text| !text.is_empty()) {
            assert!(!error.contains(&secret), "{error} / {secret}");
        }
    }
}

#[tokio::test]
async fn a_host_that_never_responds_times_out() {
    let fixture = Fixture::new(FixtureSettings::default());
    let fake = FakeEndpoint::start(|_| Reply::Nothing).await;
    let secret = app(&fake, ("githubAppInstallationID", "42"));
    let limit = Duration::from_millis(300);
    let fields = json!({ "provider": "github" });
    let error = fixture
        .credentials_within(limit, "app", REPOSITORY, fields, Some(&secret))
        .await;
    assert_eq!(
        error.unwrap_err().to_string(),
        "failed to configure authentication options: timed out: no token within 300ms: a provider or one of its endpoints does not respond"
    );
}

#[tokio::test]
async fn a_key_of_another_app_is_refused_by_the_fake() {
    // Shows that the fake really verifies: the same exchange with another key.
    let fixture = Fixture::new(FixtureSettings::default());
    let fake = api(fixture.clock.clone()).await;
    let mut secret = app(&fake, ("githubAppInstallationID", "42"));
    let other = {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let issued = Command::new("ssh-keygen")
            .args(["-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "", "-f"])
            .arg(&path)
            .status()
            .unwrap();
        assert!(issued.success());
        std::fs::read(path).unwrap()
    };
    secret.insert("githubAppPrivateKey".to_owned(), other);
    let error = credentials_of(&fixture, &secret).await.unwrap_err().to_string();
    assert!(
        error.ends_with("HTTP status 401: the signature is not the App's"),
        "{error}"
    );
}
