//! Tests of Microsoft Entra: each source of tokens against a fake endpoint that checks scope, audience and credential.

use super::github::check_error;
use super::*;

const REPOSITORY: &str = "https://dev.azure.com/org/project/_git/stacks";
const DEVOPS: &str = "499b84ac-1321-427f-aa17-267ca6975798";

/// A fake token endpoint of the tenant `tenant-1`: numbered tokens that name the client, valid for an hour.
async fn entra() -> FakeEndpoint {
    let issued = std::sync::atomic::AtomicUsize::new(0);
    FakeEndpoint::start(move |request| {
        let form = request.form();
        let field = |name: &str| form.get(name).map_or("", String::as_str);
        let refused = |why: &str| {
            let error = json!({ "error": "invalid_request", "error_description": why });
            Reply::Text(400, error.to_string())
        };
        if request.line != "POST /tenant-1/oauth2/v2.0/token" {
            return refused("AADSTS90002: no such tenant");
        }
        if field("grant_type") != "client_credentials" || field("scope") != format!("{DEVOPS}/.default") {
            return refused("AADSTS70011: the scope is not valid");
        }
        let by_assertion = field("client_assertion_type")
            == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
            && ["federated", "token-0-for-api://AzureADTokenExchange"].contains(&field("client_assertion"));
        if !by_assertion && field("client_secret") != "shared" {
            return refused("AADSTS7000215: no proof");
        }
        let number = issued.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Reply::json(&json!({
            "token_type": "Bearer", "expires_in": 3600,
            "access_token": format!("entra-{}-{number}", field("client_id")),
        }))
    })
    .await
}

fn azure() -> Value {
    json!({ "provider": "azure" })
}

fn bearer(token: &str) -> Credentials {
    Credentials::Bearer(token.to_owned())
}

#[tokio::test]
async fn a_workload_identity_token_is_cached_for_four_fifths_of_its_lifetime() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "federated").unwrap();
    let entra = entra().await;
    let environment = [
        ("AZURE_AUTHORITY_HOST", entra.url.as_str()),
        ("AZURE_CLIENT_ID", "client"),
        ("AZURE_TENANT_ID", "tenant-1"),
        ("AZURE_FEDERATED_TOKEN_FILE", file.to_str().unwrap()),
    ];
    let fixture = Fixture::new(FixtureSettings {
        environment: &environment,
        ..FixtureSettings::default()
    });
    let first = fixture.credentials(REPOSITORY, azure()).await.unwrap();
    fixture.clock.advance(Duration::from_secs(2879));
    assert_eq!(fixture.credentials(REPOSITORY, azure()).await.unwrap(), first);
    fixture.clock.advance(Duration::from_secs(1));
    let second = fixture.credentials(REPOSITORY, azure()).await.unwrap();
    assert_eq!(second.digest(), first.digest());
    assert_eq!(inner(first), bearer("entra-client-0"));
    assert_eq!(inner(second), bearer("entra-client-1"));
}

#[tokio::test]
async fn credentials_in_secret_and_url_are_replaced() {
    let entra = entra().await;
    let environment = [
        ("AZURE_AUTHORITY_HOST", entra.url.as_str()),
        ("AZURE_CLIENT_ID", "client"),
        ("AZURE_TENANT_ID", "tenant-1"),
        ("AZURE_CLIENT_SECRET", "shared"),
    ];
    let fixture = Fixture::new(FixtureSettings {
        environment: &environment,
        ..FixtureSettings::default()
    });
    let secret = data(&[("username", "u"), ("password", "p")]);
    let url = "https://org@dev.azure.com/org/project/_git/stacks";
    let found = fixture
        .credentials_as("app", url, azure(), Some(&secret))
        .await
        .unwrap();
    assert_eq!(inner(found), bearer("entra-client-0"));
}

#[tokio::test]
async fn a_service_account_of_the_object_is_the_client_in_its_annotations() {
    let entra = entra().await;
    let environment = [
        ("AZURE_AUTHORITY_HOST", entra.url.as_str()),
        ("AZURE_TENANT_ID", "tenant-1"),
        ("AZURE_CLIENT_ID", "the controller's own"),
    ];
    let policy = || IdentityPolicy {
        object_level: true,
        default_account: None,
        ..IdentityPolicy::default()
    };
    let client = "azure.workload.identity/client-id";
    for annotations in [
        json!({ client: "team" }),
        json!({ client: "team", "azure.workload.identity/tenant-id": "tenant-1" }),
    ] {
        let kubernetes = kubernetes(annotations).await;
        let fixture = Fixture::new(FixtureSettings {
            environment: &environment,
            kubernetes: Some(&kubernetes),
            policy: policy(),
            ..FixtureSettings::default()
        });
        let fields = json!({ "provider": "azure", "serviceAccountName": "deployer" });
        let found = inner(fixture.credentials(REPOSITORY, fields).await.unwrap());
        assert!(matches!(found, Credentials::Bearer(token) if token.starts_with("entra-team-")));
    }
    for (annotations, environment, expected) in [
        (
            json!({}),
            &environment[..],
            "missing annotation azure.workload.identity/client-id",
        ),
        (
            json!({ client: "team" }),
            &[],
            "missing annotation azure.workload.identity/tenant-id, and AZURE_TENANT_ID is not set",
        ),
    ] {
        let kubernetes = kubernetes(annotations).await;
        let fixture = Fixture::new(FixtureSettings {
            environment,
            kubernetes: Some(&kubernetes),
            policy: policy(),
            ..FixtureSettings::default()
        });
        let fields = json!({ "provider": "azure", "serviceAccountName": "deployer" });
        let error = fixture
            .credentials(REPOSITORY, fields)
            .await
            .unwrap_err()
            .to_string();
        let start = "failed to configure authentication options: service account 'team/deployer': ";
        assert_eq!(error, format!("{start}{expected}"));
    }
}

#[tokio::test]
async fn two_accounts_with_the_same_annotations_are_not_the_same_identity() {
    let annotations = json!({ "azure.workload.identity/client-id": "team" });
    let kubernetes = kubernetes(annotations.clone()).await;
    let entra = entra().await;
    let environment = [
        ("AZURE_AUTHORITY_HOST", entra.url.as_str()),
        ("AZURE_TENANT_ID", "tenant-1"),
        ("AZURE_CLIENT_ID", "team"),
        ("AZURE_CLIENT_SECRET", "shared"),
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
    let own = fixture.credentials(REPOSITORY, azure()).await.unwrap();
    let fields = json!({ "provider": "azure", "serviceAccountName": "deployer" });
    let of_account = fixture.credentials(REPOSITORY, fields).await.unwrap();
    assert_ne!(own.digest(), of_account.digest());
    assert_eq!(entra.requests().len(), 2);
}

#[tokio::test]
async fn a_managed_identity_uses_the_metadata_service() {
    let metadata = FakeEndpoint::start(|request| {
        let line = format!("GET /metadata/identity/oauth2/token?api-version=2018-02-01&resource={DEVOPS}");
        let of = match request.line.strip_prefix(&line) {
            Some("") => "machine",
            Some("&client_id=assigned") => "assigned",
            _ => return Reply::Text(404, String::new()),
        };
        if request.header("metadata") != "true" {
            return Reply::Text(400, String::new());
        }
        Reply::json(&json!({ "access_token": of, "expires_in": "86400", "resource": DEVOPS }))
    })
    .await;
    let endpoint = ("AZURE_POD_IDENTITY_AUTHORITY_HOST", metadata.url.as_str());
    let assigned = [endpoint, ("AZURE_CLIENT_ID", "assigned")];
    for (environment, expected) in [(&[endpoint][..], "machine"), (&assigned, "assigned")] {
        let fixture = Fixture::new(FixtureSettings {
            environment,
            ..FixtureSettings::default()
        });
        let found = fixture.credentials(REPOSITORY, azure()).await.unwrap();
        assert_eq!(inner(found), bearer(expected));
    }
}

#[tokio::test]
async fn a_missing_controller_identity_names_the_configuration() {
    let closed = sluice_harness::closed_port::ClosedPort::reserve().unwrap();
    let free = format!("http://{}", closed.address().unwrap());
    let environment = [("AZURE_POD_IDENTITY_AUTHORITY_HOST", free.as_str())];
    let fixture = Fixture::new(FixtureSettings {
        environment: &environment,
        ..FixtureSettings::default()
    });
    let error = fixture
        .credentials(REPOSITORY, azure())
        .await
        .unwrap_err()
        .to_string();
    let start = "failed to configure authentication options: the controller has no identity for provider azure: AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_FEDERATED_TOKEN_FILE are not all set, and the metadata service returns no token: connection to 127.0.0.1:";
    assert!(error.starts_with(start), "{error}");
}

#[tokio::test]
async fn invalid_responses_cause_bounded_errors_without_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "federated-token").unwrap();
    let fake = entra().await;
    let federated = [
        ("AZURE_AUTHORITY_HOST", fake.url.as_str()),
        ("AZURE_CLIENT_ID", "client"),
        ("AZURE_TENANT_ID", "tenant-1"),
        ("AZURE_FEDERATED_TOKEN_FILE", file.to_str().unwrap()),
    ];
    let shared = [
        federated[0],
        federated[1],
        federated[2],
        ("AZURE_CLIENT_SECRET", "hush-hush"),
    ];
    let managed = [("AZURE_POD_IDENTITY_AUTHORITY_HOST", fake.url.as_str())];
    for environment in [&federated[..], &shared, &managed] {
        let fixture = Fixture::new(FixtureSettings {
            environment,
            ..FixtureSettings::default()
        });
        for (expected, answer) in invalid_responses() {
            fake.set_handler(answer);
            let error = fixture
                .credentials(REPOSITORY, azure())
                .await
                .unwrap_err()
                .to_string();
            check_error(&error, expected, &fake);
        }
    }
    let wrong = [
        federated[0],
        federated[1],
        ("AZURE_TENANT_ID", "../x"),
        federated[3],
    ];
    let fixture = Fixture::new(FixtureSettings {
        environment: &wrong,
        ..FixtureSettings::default()
    });
    fixture.credentials(REPOSITORY, azure()).await.unwrap_err();
    assert_eq!(
        fake.request_lines().last().unwrap(),
        "POST /..%2Fx/oauth2/v2.0/token"
    );
}
