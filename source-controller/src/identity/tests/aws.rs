//! AWS: the signature against vectors and a second implementation, and each way to keys against a double.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::github::check_error;
use super::*;
use crate::identity::answer::Keys;
use crate::identity::aws::codecommit::Repository;
use sluice_runtime::redact::Secret;

const REPOSITORY: &str = "https://git-codecommit.eu-west-1.amazonaws.com/v1/repos/stacks";
/// The secret key of the vendor's own examples.
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

fn keys() -> Keys {
    Keys {
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
        let repository = Repository::of(&Url::parse(url).unwrap()).unwrap();
        let time = time.parse().unwrap();
        let found = repository.credentials(&keys(), time);
        assert_eq!(found, basic("AKIAIOSFODNN7EXAMPLE", signature));
        let session = Keys {
            session_token: Some(Secret::from("to/k+en==".to_owned())),
            ..keys()
        };
        let found = repository.credentials(&session, time);
        assert_eq!(found, basic("AKIAIOSFODNN7EXAMPLE%to/k+en==", signature));
    }
}

#[test]
fn addresses_of_codecommit_are_told_from_others() {
    let region = |url: &str| {
        Repository::of(&Url::parse(url).unwrap())
            .map(|repository| repository.region().to_owned())
            .map_err(|error| error.to_string())
    };
    assert_eq!(region(REPOSITORY).as_deref(), Ok("eu-west-1"));
    for (host, wanted) in [
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
        let wanted = wanted
            .map(str::to_owned)
            .map_err(|host| format!("invalid AWS CodeCommit Git URL: {host}"));
        assert_eq!(region(&format!("https://{host}/v1/repos/r")), wanted);
    }
    let plain = region("http://git-codecommit.eu-west-1.amazonaws.com/v1/repos/r");
    assert_eq!(
        plain.unwrap_err(),
        "AWS CodeCommit authentication requires an HTTPS Git URL"
    );
}

/// The password that these keys make, computed from the documentation with other crates than the code's.
fn recomputed(secret: &str, time: &str) -> String {
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

/// Checks name and signature of what was lent, and that the header holds just that.
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
    let wanted = format!("{id}%{token}:{}", recomputed(secret, time));
    assert_eq!(String::from_utf8(text).unwrap(), wanted);
}

/// STS: keys for a web identity, counted from 0, that live an hour.
async fn sts() -> Double {
    let made = std::sync::atomic::AtomicUsize::new(0);
    Double::start(move |asked| {
        let form = asked.form();
        if asked.line != "POST /"
            || form.get("Action").map(String::as_str) != Some("AssumeRoleWithWebIdentity")
        {
            return Say::Text(400, "<Error><Message>no such action</Message></Error>".to_owned());
        }
        let number = made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Say::Text(
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

fn metadata_keys(id: &str) -> Say {
    Say::json(&json!({
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
    let bench = Bench::new(Setting {
        environment: &environment,
        ..Setting::default()
    });
    let found = bench.lend(REPOSITORY, aws()).await.unwrap();
    check(&found, "AKIA", "session", SECRET, "20260102T030405");
    bench.clock.advance(Duration::from_secs(60));
    let later = bench.lend(REPOSITORY, aws()).await.unwrap();
    check(&later, "AKIA", "session", SECRET, "20260102T030505");
    assert_eq!(
        later.digest(),
        found.digest(),
        "or the mirror would be cloned anew"
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
    let bench = Bench::new(Setting {
        environment: &environment,
        ..Setting::default()
    });
    let found = bench.lend(REPOSITORY, aws()).await.unwrap();
    check(&found, "ASIA0", "session0", SECRET, "20260102T030405");
    let form = sts.asked()[0].form();
    for (name, value) in [
        ("Version", "2011-06-15"),
        ("RoleArn", "arn:aws:iam::123456789012:role/flux"),
        ("RoleSessionName", "source-controller"),
        ("WebIdentityToken", "web-identity"),
    ] {
        assert_eq!(form[name], value);
    }
    // Kept for four fifths of the hour; then the file, which the kubelet has renewed, is read again.
    std::fs::write(&file, "renewed").unwrap();
    bench.clock.advance(Duration::from_secs(2879));
    bench.lend(REPOSITORY, aws()).await.unwrap();
    assert_eq!(sts.asked().len(), 1);
    bench.clock.advance(Duration::from_secs(1));
    let later = bench.lend(REPOSITORY, aws()).await.unwrap();
    assert_eq!(sts.asked()[1].form()["WebIdentityToken"], "renewed");
    assert_eq!(later.digest(), found.digest());
    std::fs::remove_file(&file).unwrap();
    bench.tokens.refused(&later);
    let error = bench.lend(REPOSITORY, aws()).await.unwrap_err().to_string();
    assert!(
        error.contains("the file that AWS_WEB_IDENTITY_TOKEN_FILE names"),
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
    let bench = Bench::new(Setting {
        environment: &environment,
        kubernetes: Some(&kubernetes),
        rules: Rules {
            object_level: true,
            default_account: None,
            ..Rules::default()
        },
        ..Setting::default()
    });
    let fields = json!({ "provider": "aws", "serviceAccountName": "deployer" });
    let found = bench.lend(REPOSITORY, fields).await.unwrap();
    check(&found, "ASIA0", "session0", SECRET, "20260102T030405");
    let form = sts.asked()[0].form();
    assert_eq!(form["RoleArn"], role);
    assert_eq!(form["WebIdentityToken"], "token-0-for-sts.amazonaws.com");
    assert_eq!(form["RoleSessionName"], "deployer.team.eu-west-1.fluxcd.io");
}

#[tokio::test]
async fn an_account_without_a_role_or_that_is_not_there_is_named() {
    let rules = Rules {
        object_level: true,
        default_account: Some("absent".to_owned()),
        ..Rules::default()
    };
    for (annotations, fields, wanted) in [
        (
            json!({}),
            json!({ "provider": "aws", "serviceAccountName": "deployer" }),
            "service account 'team/deployer': it has no annotation eks.amazonaws.com/role-arn",
        ),
        (
            json!({ "eks.amazonaws.com/role-arn": "arn:aws:iam::1:user/x" }),
            json!({ "provider": "aws", "serviceAccountName": "deployer" }),
            "service account 'team/deployer': its annotation eks.amazonaws.com/role-arn is no role: arn:aws:iam::<account>:role/<name>",
        ),
        (json!({}), aws(), "service account 'team/absent': not found"),
    ] {
        let kubernetes = kubernetes(annotations).await;
        let bench = Bench::new(Setting {
            kubernetes: Some(&kubernetes),
            rules: rules.clone(),
            ..Setting::default()
        });
        let error = bench.lend(REPOSITORY, fields).await.unwrap_err().to_string();
        assert_eq!(
            error,
            format!("failed to configure authentication options: {wanted}")
        );
    }
}

#[tokio::test]
async fn an_agent_beside_the_container_gives_keys_for_its_token() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "pod-token").unwrap();
    let agent = Double::start(|asked| match asked.header("authorization") {
        "pod-token" => metadata_keys("ASIAPOD"),
        _ => Say::Text(401, json!({ "message": "who?" }).to_string()),
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
        let bench = Bench::new(Setting {
            environment: &environment,
            ..Setting::default()
        });
        let found = bench.lend(REPOSITORY, aws()).await.unwrap();
        check(&found, "ASIAPOD", "session", SECRET, "20260102T030405");
    }
    assert_eq!(agent.lines(), ["GET /v1/credentials", "GET /v1/credentials"]);
}

#[tokio::test]
async fn an_instance_gives_its_roles_keys_in_a_session() {
    const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
    let metadata = Double::start(|asked| {
        let session = asked.header("x-aws-ec2-metadata-token") == "imds-session";
        match asked.line.as_str() {
            "PUT /latest/api/token" if asked.header("x-aws-ec2-metadata-token-ttl-seconds") == "300" => {
                Say::Text(200, "imds-session".to_owned())
            }
            line if session && line == format!("GET {ROLES}") => Say::Text(200, "node-role\n".to_owned()),
            line if session && line == format!("GET {ROLES}node-role") => metadata_keys("ASIANODE"),
            _ => Say::Text(401, String::new()),
        }
    })
    .await;
    let environment = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url.as_str())];
    let bench = Bench::new(Setting {
        environment: &environment,
        ..Setting::default()
    });
    let found = bench.lend(REPOSITORY, aws()).await.unwrap();
    check(&found, "ASIANODE", "session", SECRET, "20260102T030405");
    assert_eq!(metadata.asked().len(), 3);
}

#[tokio::test]
async fn a_controller_without_any_identity_says_what_was_looked_for() {
    let closed = sluice_harness::closed::ClosedPort::take().unwrap();
    let free = format!("http://{}", closed.address().unwrap());
    let disabled = [("AWS_EC2_METADATA_DISABLED", "true")];
    let absent = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", free.as_str())];
    for (environment, wanted) in [(disabled, "is disabled"), (absent, "cannot talk to 127.0.0.1:")] {
        let bench = Bench::new(Setting {
            environment: &environment,
            ..Setting::default()
        });
        let error = bench.lend(REPOSITORY, aws()).await.unwrap_err().to_string();
        let start = "failed to configure authentication options: the controller has no identity for provider aws: none of AWS_ACCESS_KEY_ID, AWS_WEB_IDENTITY_TOKEN_FILE and AWS_CONTAINER_CREDENTIALS_FULL_URI is set, and ";
        assert!(error.starts_with(start) && error.contains(wanted), "{error}");
    }
}

#[tokio::test]
async fn bad_answers_give_bounded_errors_without_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "web-identity-token").unwrap();
    let double = sts().await;
    let assumed = [
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file.to_str().unwrap()),
        ("AWS_ENDPOINT_URL", &double.url),
    ];
    let container = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", double.url.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file.to_str().unwrap()),
    ];
    for environment in [&assumed[..], &container] {
        let bench = Bench::new(Setting {
            environment,
            ..Setting::default()
        });
        for (wanted, answer) in bad_answers() {
            double.answer(answer);
            let error = bench.lend(REPOSITORY, aws()).await.unwrap_err().to_string();
            check_error(&error, wanted, &double);
        }
    }
}
