//! GitHub Apps, against a double that verifies the assertion with the public key.

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

/// One key for all tests.
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

/// The API of GitHub with the App 7: installed by the organisation `acme` as 42 and by the user `jane` as 43. Tokens
/// are `ghs_<installation>_<number>`, counted from 0, and live an hour.
pub(crate) async fn api(clock: Arc<dyn Clock>) -> Double {
    Double::start(answering(clock)).await
}

/// The same behind TLS.
pub(crate) async fn api_tls(clock: Arc<dyn Clock>, authority: &Authority) -> Double {
    Double::start_tls(authority, answering(clock)).await
}

fn answering(clock: Arc<dyn Clock>) -> impl Fn(&Asked) -> Say + Send + Sync + 'static {
    let made = AtomicUsize::new(0);
    move |asked| {
        let now = clock.now();
        if let Err(why) = verify(asked, now) {
            return Say::Text(401, json!({ "message": why }).to_string());
        }
        let path = asked.line.replace("/api/v3/", "/");
        let installation = match path.as_str() {
            "GET /orgs/acme/installation" => return Say::json(&json!({ "id": 42 })),
            "GET /users/jane/installation" => return Say::json(&json!({ "id": 43 })),
            "POST /app/installations/42/access_tokens" => 42,
            "POST /app/installations/43/access_tokens" => 43,
            _ => return Say::Text(404, json!({ "message": "Not Found" }).to_string()),
        };
        let number = made.fetch_add(1, Ordering::Relaxed);
        let expires = now.checked_add(Duration::from_secs(3600)).unwrap();
        let granted = json!({
            "token": format!("ghs_{installation}_{number}"), "expires_at": expires.to_string(),
            "permissions": { "contents": "read" }, "repository_selection": "selected",
        });
        Say::Text(201, granted.to_string())
    }
}

/// What GitHub checks: the signature, the times, the issuer; and the headers that its documentation asks for.
fn verify(asked: &Asked, now: Timestamp) -> Result<(), String> {
    let token = asked
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
    let wanted = json!({ "iat": issued, "exp": issued + 120, "iss": "7" });
    if claims != wanted || header != json!({ "alg": "RS256", "typ": "JWT" }) {
        return Err(format!("{header} {claims} in place of {wanted}"));
    }
    let accept = (asked.header("accept"), asked.header("x-github-api-version"));
    if accept != ("application/vnd.github+json", "2022-11-28") || asked.header("user-agent").is_empty() {
        return Err(format!("headers {accept:?}"));
    }
    Ok(())
}

/// The Secret of the App, installed like this.
fn app(double: &Double, installation: (&str, &str)) -> BTreeMap<String, Vec<u8>> {
    data(&[
        ("githubAppID", "7"),
        ("githubAppPrivateKey", &key().pem),
        ("githubAppBaseURL", &double.url),
        installation,
    ])
}

const REPOSITORY: &str = "https://github.example/acme/app";

async fn lend(bench: &Bench, secret: &BTreeMap<String, Vec<u8>>) -> Result<Credentials, IdentityError> {
    let fields = json!({ "provider": "github" });
    bench.lend_as("app", REPOSITORY, fields, Some(secret)).await
}

#[tokio::test]
async fn a_token_of_the_installation_is_the_password() {
    let bench = Bench::new(Setting::default());
    let double = api(bench.clock.clone()).await;
    let by_id = app(&double, ("githubAppInstallationID", "42"));
    let found = lend(&bench, &by_id).await.unwrap();
    assert_eq!(lent(found), basic("x-access-token", "ghs_42_0"));
    let asked = double.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].line, "POST /app/installations/42/access_tokens");
}

#[tokio::test]
async fn an_owner_is_looked_up_among_organisations_and_then_users() {
    let bench = Bench::new(Setting::default());
    let double = api(bench.clock.clone()).await;
    let owner = |name| app(&double, ("githubAppInstallationOwner", name));
    let found = lend(&bench, &owner("acme")).await.unwrap();
    assert_eq!(lent(found), basic("x-access-token", "ghs_42_0"));
    let found = lend(&bench, &owner("jane")).await.unwrap();
    assert_eq!(lent(found), basic("x-access-token", "ghs_43_1"));
    assert_eq!(
        double.lines(),
        [
            "GET /orgs/acme/installation",
            "POST /app/installations/42/access_tokens",
            "GET /orgs/jane/installation",
            "GET /users/jane/installation",
            "POST /app/installations/43/access_tokens",
        ]
    );
    let error = lend(&bench, &owner("no/../body")).await.unwrap_err().to_string();
    assert!(
        error.ends_with("refuses to look the installation of the GitHub App up: HTTP status 404: Not Found"),
        "{error}"
    );
    assert_eq!(double.lines()[5], "GET /orgs/no%2F..%2Fbody/installation");
}

#[tokio::test]
async fn an_enterprise_server_is_asked_below_its_base_url_with_either_form_of_key() {
    let bench = Bench::new(Setting::default());
    let double = api(bench.clock.clone()).await;
    let mut secret = app(&double, ("githubAppInstallationID", "42"));
    let base = format!("{}/api/v3/", double.url);
    secret.insert("githubAppBaseURL".to_owned(), base.into_bytes());
    secret.insert("githubAppPrivateKey".to_owned(), key().pkcs8.clone().into_bytes());
    let found = lend(&bench, &secret).await.unwrap();
    assert_eq!(lent(found), basic("x-access-token", "ghs_42_0"));
    assert_eq!(
        double.lines(),
        ["POST /api/v3/app/installations/42/access_tokens"]
    );
}

#[tokio::test]
async fn a_token_serves_until_four_fifths_of_its_life_and_who_asks_stays_the_same() {
    let bench = Bench::new(Setting::default());
    let double = api(bench.clock.clone()).await;
    let secret = app(&double, ("githubAppInstallationID", "42"));
    let first = lend(&bench, &secret).await.unwrap();
    bench.clock.advance(Duration::from_secs(2879));
    assert_eq!(lend(&bench, &secret).await.unwrap(), first);
    bench.clock.advance(Duration::from_secs(1));
    let second = lend(&bench, &secret).await.unwrap();
    assert_ne!(second.header(), first.header());
    assert_eq!(
        second.digest(),
        first.digest(),
        "or the mirror would be cloned anew"
    );
    assert_eq!(double.asked().len(), 2);
}

#[tokio::test]
async fn a_refused_token_is_dropped_unless_it_has_been_renewed() {
    let bench = Bench::new(Setting::default());
    let double = api(bench.clock.clone()).await;
    let secret = app(&double, ("githubAppInstallationID", "42"));
    let first = lend(&bench, &secret).await.unwrap();
    bench.tokens.refused(&Credentials::Anonymous);
    assert_eq!(lend(&bench, &secret).await.unwrap(), first);
    bench.tokens.refused(&first);
    let second = lend(&bench, &secret).await.unwrap();
    assert_ne!(second, first);
    bench.tokens.refused(&first);
    assert_eq!(lend(&bench, &secret).await.unwrap(), second);
    assert_eq!(double.asked().len(), 2);
}

#[tokio::test]
async fn bad_answers_give_bounded_errors_without_secrets() {
    let bench = Bench::new(Setting::default());
    let double = api(bench.clock.clone()).await;
    let secret = app(&double, ("githubAppInstallationID", "42"));
    for (wanted, answer) in bad_answers() {
        double.answer(answer);
        let error = lend(&bench, &secret).await.unwrap_err().to_string();
        check_error(&error, wanted, &double);
    }
    assert_eq!(bench.metrics.text().matches("cached_items 0").count(), 1);
}

/// Names the host, is bounded, and holds no part of what was signed with or shown.
pub(super) fn check_error(error: &str, wanted: &str, double: &Double) {
    assert!(
        error.starts_with("failed to configure authentication options: "),
        "{error}"
    );
    assert!(error.contains(wanted), "{error} / {wanted}");
    assert!(error.contains(double.host()), "{error}");
    assert!(error.len() < 1000, "{error}");
    for shown in double.asked() {
        let authorization = shown
            .header("authorization")
            .trim_start_matches("Bearer ")
            .to_owned();
        let form = shown.form();
        let secrets = ["client_assertion", "client_secret", "WebIdentityToken"];
        let secrets = secrets.iter().filter_map(|name| form.get(*name).cloned());
        for secret in secrets.chain([authorization]).filter(|text| !text.is_empty()) {
            assert!(!error.contains(&secret), "{error} / {secret}");
        }
    }
}

#[tokio::test]
async fn a_host_that_never_answers_ends_with_the_time_allowed() {
    let bench = Bench::new(Setting::default());
    let double = Double::start(|_| Say::Nothing).await;
    let secret = app(&double, ("githubAppInstallationID", "42"));
    let limit = Duration::from_millis(300);
    let fields = json!({ "provider": "github" });
    let error = bench
        .lend_within(limit, "app", REPOSITORY, fields, Some(&secret))
        .await;
    assert_eq!(
        error.unwrap_err().to_string(),
        "failed to configure authentication options: timed out: no token within 300ms: a provider or one of its endpoints does not answer"
    );
}

#[tokio::test]
async fn a_key_of_another_app_is_refused_by_the_double() {
    // Shows that the double really verifies: the same exchange with another key.
    let bench = Bench::new(Setting::default());
    let double = api(bench.clock.clone()).await;
    let mut secret = app(&double, ("githubAppInstallationID", "42"));
    let other = {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "", "-f"])
            .arg(&path)
            .status()
            .unwrap();
        assert!(made.success());
        std::fs::read(path).unwrap()
    };
    secret.insert("githubAppPrivateKey".to_owned(), other);
    let error = lend(&bench, &secret).await.unwrap_err().to_string();
    assert!(
        error.ends_with("HTTP status 401: the signature is not the App's"),
        "{error}"
    );
}
