//! Tests of AWS: the signature against vectors and a second implementation, and each source of keys against a fake
//! endpoint.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use sluice_runtime::redact::Secret;
use url::Url;

use super::github::check_error;
use super::*;
use crate::identity::aws::codecommit::Repository;
use crate::identity::response::AwsKeys;

const REPOSITORY: &str = "https://git-codecommit.eu-west-1.amazonaws.com/v1/repos/stacks";
/// The secret key of the vendor's examples.
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

fn keys() -> AwsKeys {
    AwsKeys {
        access_key_id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
        secret_access_key: Secret::from(SECRET.to_owned()),
        session_token: None,
        expires: None,
    }
}

#[test]
fn signatures_are_those_of_the_vendors_own_helper() {
    // The first was made by git-remote-codecommit 1.17 on botocore, all three by its formula in Python.
    for (url, time, signature) in [
        (
            REPOSITORY,
            "2026-01-02T03:04:05Z",
            "20260102T030405Z594b7144c0d280f74b410e7eb1ff433895d6f90832d5379114c666d426688e4a",
        ),
        (
            "https://git-codecommit-fips.us-gov-west-1.amazonaws.com/v1/repos/a-b_c.d",
            "2025-12-31T23:59:59Z",
            "20251231T235959Z9af6b9dcc41f47e07f45b07be25e2d5cf996f98d65aae4ee0ce7b9dfefe9c143",
        ),
        (
            "https://git-codecommit.cn-north-1.amazonaws.com.cn/v1/repos/stacks",
            "2026-02-28T00:00:00Z",
            "20260228T000000Zd8b68fbfcf30a9759e4d97898e93ad7dde510008f27d3e91269dcb8b11d07465",
        ),
    ] {
        let repository = Repository::parse(&Url::parse(url).unwrap()).unwrap();
        let time = time.parse().unwrap();
        let found = repository.credentials(&keys(), time);
        assert_eq!(found, basic("AKIAIOSFODNN7EXAMPLE", signature));
        let session = AwsKeys {
            session_token: Some(Secret::from("to/k+en==".to_owned())),
            ..keys()
        };
        let found = repository.credentials(&session, time);
        assert_eq!(found, basic("AKIAIOSFODNN7EXAMPLE%to/k+en==", signature));
    }
}

#[test]
fn only_codecommit_urls_are_accepted() {
    let region = |url: &str| {
        Repository::parse(&Url::parse(url).unwrap())
            .map(|repository| repository.region().to_owned())
            .map_err(|error| error.to_string())
    };
    assert_eq!(region(REPOSITORY).as_deref(), Ok("eu-west-1"));
    for (host, expected) in [
        (
            "git-codecommit-fips.ca-central-1.amazonaws.com",
            Ok("ca-central-1"),
        ),
        ("git-codecommit.cn-north-1.amazonaws.com.cn", Ok("cn-north-1")),
        (
            "git-codecommit.amazonaws.com",
            Err("git-codecommit.amazonaws.com"),
        ),
        (
            "git-codecommit.eu-west-1.amazonaws.com.evil",
            Err("git-codecommit.eu-west-1.amazonaws.com.evil"),
        ),
        (
            "evil.git-codecommit.eu-west-1.amazonaws.com",
            Err("evil.git-codecommit.eu-west-1.amazonaws.com"),
        ),
        (
            "codecommit.eu-west-1.amazonaws.com",
            Err("codecommit.eu-west-1.amazonaws.com"),
        ),
        ("github.com", Err("github.com")),
        ("github.com:8443", Err("github.com:8443")),
    ] {
        let expected = expected
            .map(str::to_owned)
            .map_err(|host| format!("invalid AWS CodeCommit Git URL: {host}"));
        assert_eq!(region(&format!("https://{host}/v1/repos/r")), expected);
    }
    let plain = region("http://git-codecommit.eu-west-1.amazonaws.com/v1/repos/r");
    assert_eq!(
        plain.unwrap_err(),
        "AWS CodeCommit authentication requires an HTTPS Git URL"
    );
}

/// Recomputes the password of these keys from the documentation, with other crates than the implementation.
fn recompute_password(secret: &str, time: &str) -> String {
    let mac = |key: &[u8], text: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        mac.update(text.as_bytes());
        mac.finalize().into_bytes().to_vec()
    };
    let (path, host) = ("/v1/repos/stacks", "git-codecommit.eu-west-1.amazonaws.com");
    let request = ["GIT", path, "", &format!("host:{host}"), "", "host", ""].join("\n");
    let scope = format!("{}/eu-west-1/codecommit/aws4_request", &time[..8]);
    let digest = hex::encode(Sha256::digest(request));
    let text = ["AWS4-HMAC-SHA256", time, &scope, &digest].join("\n");
    let key = mac(format!("AWS4{secret}").as_bytes(), &time[..8]);
    let key = mac(&mac(&mac(&key, "eu-west-1"), "codecommit"), "aws4_request");
    format!("{time}Z{}", hex::encode(mac(&key, &text)))
}

/// Checks username and signature of the credentials' header.
fn check(credentials: &Credentials, id: &str, token: &str, secret: &str, time: &str) {
    use base64::Engine as _;
    let header = credentials.header().unwrap();
    let text = header
        .to_str()
        .unwrap()
        .strip_prefix("Basic ")
        .unwrap()
        .to_owned();
    let text = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    let expected = format!("{id}%{token}:{}", recompute_password(secret, time));
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

/// A fake STS that issues numbered keys, valid for an hour.
async fn sts() -> FakeEndpoint {
    let issued = std::sync::atomic::AtomicUsize::new(0);
    FakeEndpoint::start(move |request| {
        let form = request.form();
        if request.line != "POST /"
            || form.get("Action").map(String::as_str) != Some("AssumeRoleWithWebIdentity")
        {
            return Reply::Text(400, "<Error><Message>no such action</Message></Error>".to_owned());
        }
        let number = issued.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Reply::Text(
            200,
            format!(
                "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
                 <SessionToken>session{number}</SessionToken><SecretAccessKey>{SECRET}</SecretAccessKey>\
                 <Expiration>{IN_AN_HOUR}</Expiration><AccessKeyId>ASIA{number}</AccessKeyId></Credentials>\
                 </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
            ),
        )
    })
    .await
}

fn metadata_keys(id: &str) -> Reply {
    Reply::json(&json!({
        "Code": "Success", "AccessKeyId": id, "SecretAccessKey": SECRET, "Token": "session",
        "Expiration": IN_AN_HOUR,
    }))
}

fn aws() -> Value {
    json!({ "provider": "aws" })
}

#[tokio::test]
async fn keys_of_the_environment_sign_for_the_repository() {
    let environment = [
        ("AWS_ACCESS_KEY_ID", "AKIA"),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_SESSION_TOKEN", "session"),
    ];
    let fixture = Fixture::new(FixtureSettings {
        environment: &environment,
        ..FixtureSettings::default()
    });
    let found = fixture.credentials(REPOSITORY, aws()).await.unwrap();
    check(&found, "AKIA", "session", SECRET, "20260102T030405");
    fixture.clock.advance(Duration::from_mins(1));
    let later = fixture.credentials(REPOSITORY, aws()).await.unwrap();
    check(&later, "AKIA", "session", SECRET, "20260102T030505");
    assert_eq!(
        later.digest(),
        found.digest(),
        "otherwise the mirror would be cloned again"
    );
}

#[tokio::test]
async fn a_role_is_assumed_with_the_controllers_own_token() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "web-identity\n").unwrap();
    let sts = sts().await;
    let environment = [
        ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/flux"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file.to_str().unwrap()),
        ("AWS_ENDPOINT_URL_STS", &sts.url),
    ];
    let fixture = Fixture::new(FixtureSettings {
        environment: &environment,
        ..FixtureSettings::default()
    });
    let found = fixture.credentials(REPOSITORY, aws()).await.unwrap();
    check(&found, "ASIA0", "session0", SECRET, "20260102T030405");
    let form = sts.requests()[0].form();
    for (name, value) in [
        ("Version", "2011-06-15"),
        ("RoleArn", "arn:aws:iam::123456789012:role/flux"),
        ("RoleSessionName", "source-controller"),
        ("WebIdentityToken", "web-identity"),
    ] {
        assert_eq!(form[name], value);
    }
    // Cached for four fifths of the hour; then the file, renewed by the kubelet, is read again.
    std::fs::write(&file, "renewed").unwrap();
    fixture.clock.advance(Duration::from_secs(2879));
    fixture.credentials(REPOSITORY, aws()).await.unwrap();
    assert_eq!(sts.requests().len(), 1);
    fixture.clock.advance(Duration::from_secs(1));
    let later = fixture.credentials(REPOSITORY, aws()).await.unwrap();
    assert_eq!(sts.requests()[1].form()["WebIdentityToken"], "renewed");
    assert_eq!(later.digest(), found.digest());
    std::fs::remove_file(&file).unwrap();
    fixture.tokens.invalidate(&later);
    let error = fixture
        .credentials(REPOSITORY, aws())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the file named by AWS_WEB_IDENTITY_TOKEN_FILE"),
        "{error}"
    );
}

#[tokio::test]
async fn a_service_account_of_the_object_assumes_the_role_in_its_annotation() {
    let role = "arn:aws:iam::123456789012:role/team";
    let kubernetes = kubernetes(json!({ "eks.amazonaws.com/role-arn": role })).await;
    let sts = sts().await;
    let environment = [
        ("AWS_ENDPOINT_URL_STS", sts.url.as_str()),
        ("AWS_ACCESS_KEY_ID", "the controller's own"),
    ];
    let fixture = Fixture::new(FixtureSettings {
        environment: &environment,
        kubernetes: Some(&kubernetes),
        policy: IdentityPolicy {
            object_level: true,
            default_account: None,
            ..IdentityPolicy::default()
        },
        ..FixtureSettings::default()
    });
    let fields = json!({ "provider": "aws", "serviceAccountName": "deployer" });
    let found = fixture.credentials(REPOSITORY, fields).await.unwrap();
    check(&found, "ASIA0", "session0", SECRET, "20260102T030405");
    let form = sts.requests()[0].form();
    assert_eq!(form["RoleArn"], role);
    assert_eq!(form["WebIdentityToken"], "token-0-for-sts.amazonaws.com");
    assert_eq!(form["RoleSessionName"], "deployer.team.eu-west-1.fluxcd.io");
}

#[tokio::test]
async fn a_service_account_without_a_role_or_a_missing_one_is_named() {
    let policy = IdentityPolicy {
        object_level: true,
        default_account: Some("absent".to_owned()),
        ..IdentityPolicy::default()
    };
    for (annotations, fields, expected) in [
        (
            json!({}),
            json!({ "provider": "aws", "serviceAccountName": "deployer" }),
            "service account 'team/deployer': missing annotation eks.amazonaws.com/role-arn",
        ),
        (
            json!({ "eks.amazonaws.com/role-arn": "arn:aws:iam::1:user/x" }),
            json!({ "provider": "aws", "serviceAccountName": "deployer" }),
            "service account 'team/deployer': annotation eks.amazonaws.com/role-arn is not a role ARN: expected arn:aws:iam::<account>:role/<name>",
        ),
        (json!({}), aws(), "service account 'team/absent': not found"),
    ] {
        let kubernetes = kubernetes(annotations).await;
        let fixture = Fixture::new(FixtureSettings {
            kubernetes: Some(&kubernetes),
            policy: policy.clone(),
            ..FixtureSettings::default()
        });
        let error = fixture
            .credentials(REPOSITORY, fields)
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            format!("failed to configure authentication options: {expected}")
        );
    }
}

#[tokio::test]
async fn a_container_agent_returns_keys_for_its_token() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "pod-token").unwrap();
    let agent = FakeEndpoint::start(|request| match request.header("authorization") {
        "pod-token" => metadata_keys("ASIAPOD"),
        _ => Reply::Text(401, json!({ "message": "who?" }).to_string()),
    })
    .await;
    let url = format!("{}/v1/credentials", agent.url);
    let by_file = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file.to_str().unwrap()),
    ];
    let by_value = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pod-token"),
    ];
    for environment in [by_file, by_value] {
        let fixture = Fixture::new(FixtureSettings {
            environment: &environment,
            ..FixtureSettings::default()
        });
        let found = fixture.credentials(REPOSITORY, aws()).await.unwrap();
        check(&found, "ASIAPOD", "session", SECRET, "20260102T030405");
    }
    assert_eq!(
        agent.request_lines(),
        ["GET /v1/credentials", "GET /v1/credentials"]
    );
}

#[tokio::test]
async fn the_metadata_service_returns_keys_within_a_session() {
    const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
    let metadata = FakeEndpoint::start(|request| {
        let session = request.header("x-aws-ec2-metadata-token") == "imds-session";
        match request.line.as_str() {
            "PUT /latest/api/token" if request.header("x-aws-ec2-metadata-token-ttl-seconds") == "300" => {
                Reply::Text(200, "imds-session".to_owned())
            }
            line if session && line == format!("GET {ROLES}") => Reply::Text(200, "node-role\n".to_owned()),
            line if session && line == format!("GET {ROLES}node-role") => metadata_keys("ASIANODE"),
            _ => Reply::Text(401, String::new()),
        }
    })
    .await;
    let environment = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url.as_str())];
    let fixture = Fixture::new(FixtureSettings {
        environment: &environment,
        ..FixtureSettings::default()
    });
    let found = fixture.credentials(REPOSITORY, aws()).await.unwrap();
    check(&found, "ASIANODE", "session", SECRET, "20260102T030405");
    assert_eq!(metadata.requests().len(), 3);
}

#[tokio::test]
async fn a_missing_controller_identity_names_the_configuration() {
    let closed = sluice_harness::closed_port::ClosedPort::reserve().unwrap();
    let free = format!("http://{}", closed.address().unwrap());
    let disabled = [("AWS_EC2_METADATA_DISABLED", "true")];
    let absent = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", free.as_str())];
    for (environment, expected) in [(disabled, "is disabled"), (absent, "connection to 127.0.0.1:")] {
        let fixture = Fixture::new(FixtureSettings {
            environment: &environment,
            ..FixtureSettings::default()
        });
        let error = fixture
            .credentials(REPOSITORY, aws())
            .await
            .unwrap_err()
            .to_string();
        let start = "failed to configure authentication options: the controller has no identity for provider aws: none of AWS_ACCESS_KEY_ID, AWS_WEB_IDENTITY_TOKEN_FILE and AWS_CONTAINER_CREDENTIALS_FULL_URI is set, and ";
        assert!(error.starts_with(start) && error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn invalid_responses_cause_bounded_errors_without_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "web-identity-token").unwrap();
    let fake = sts().await;
    let assumed = [
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file.to_str().unwrap()),
        ("AWS_ENDPOINT_URL", &fake.url),
    ];
    let container = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", fake.url.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file.to_str().unwrap()),
    ];
    for environment in [&assumed[..], &container] {
        let fixture = Fixture::new(FixtureSettings {
            environment,
            ..FixtureSettings::default()
        });
        for (expected, answer) in invalid_responses() {
            fake.set_handler(answer);
            let error = fixture
                .credentials(REPOSITORY, aws())
                .await
                .unwrap_err()
                .to_string();
            check_error(&error, expected, &fake);
        }
    }
}
