//! Microsoft Entra: each way to a token for Azure DevOps against a double that checks scope, audience and proof.

use super::github::check_error;
use super::*;

const REPOSITORY: &str = "https://dev.azure.com/org/project/_git/stacks";
const DEVOPS: &str = "499b84ac-1321-427f-aa17-267ca6975798";

/// The token endpoint of the tenant `tenant-1`: tokens name the client and are counted from 0; they live an hour.
async fn entra() -> Double {
    let made = std::sync::atomic::AtomicUsize::new(0);
    Double::start(move |asked| {
        let form = asked.form();
        let field = |name: &str| form.get(name).map_or("", String::as_str);
        let refused = |why: &str| {
            let error = json!({ "error": "invalid_request", "error_description": why });
            Say::Text(400, error.to_string())
        };
        if asked.line != "POST /tenant-1/oauth2/v2.0/token" {
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
        let number = made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Say::json(&json!({
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
async fn the_controllers_workload_identity_gives_a_bearer_token_until_four_fifths_of_its_life() {
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
    let bench = Bench::new(Setting {
        environment: &environment,
        ..Setting::default()
    });
    let first = bench.lend(REPOSITORY, azure()).await.unwrap();
    bench.clock.advance(Duration::from_secs(2879));
    assert_eq!(bench.lend(REPOSITORY, azure()).await.unwrap(), first);
    bench.clock.advance(Duration::from_secs(1));
    let second = bench.lend(REPOSITORY, azure()).await.unwrap();
    assert_eq!(second.digest(), first.digest());
    assert_eq!(lent(first), bearer("entra-client-0"));
    assert_eq!(lent(second), bearer("entra-client-1"));
}

#[tokio::test]
async fn credentials_in_the_secret_and_in_the_address_are_replaced() {
    let entra = entra().await;
    let environment = [
        ("AZURE_AUTHORITY_HOST", entra.url.as_str()),
        ("AZURE_CLIENT_ID", "client"),
        ("AZURE_TENANT_ID", "tenant-1"),
        ("AZURE_CLIENT_SECRET", "shared"),
    ];
    let bench = Bench::new(Setting {
        environment: &environment,
        ..Setting::default()
    });
    let secret = data(&[("username", "u"), ("password", "p")]);
    let url = "https://org@dev.azure.com/org/project/_git/stacks";
    let found = bench.lend_as("app", url, azure(), Some(&secret)).await.unwrap();
    assert_eq!(lent(found), bearer("entra-client-0"));
}

#[tokio::test]
async fn a_service_account_of_the_object_is_the_client_in_its_annotations() {
    let entra = entra().await;
    let environment = [
        ("AZURE_AUTHORITY_HOST", entra.url.as_str()),
        ("AZURE_TENANT_ID", "tenant-1"),
        ("AZURE_CLIENT_ID", "the controller's own"),
    ];
    let rules = || Rules {
        object_level: true,
        default_account: None,
        ..Rules::default()
    };
    let client = "azure.workload.identity/client-id";
    for annotations in [
        json!({ client: "team" }),
        json!({ client: "team", "azure.workload.identity/tenant-id": "tenant-1" }),
    ] {
        let kubernetes = kubernetes(annotations).await;
        let bench = Bench::new(Setting {
            environment: &environment,
            kubernetes: Some(&kubernetes),
            rules: rules(),
            ..Setting::default()
        });
        let fields = json!({ "provider": "azure", "serviceAccountName": "deployer" });
        let found = lent(bench.lend(REPOSITORY, fields).await.unwrap());
        assert!(matches!(found, Credentials::Bearer(token) if token.starts_with("entra-team-")));
    }
    for (annotations, environment, wanted) in [
        (
            json!({}),
            &environment[..],
            "it has no annotation azure.workload.identity/client-id",
        ),
        (
            json!({ client: "team" }),
            &[],
            "it has no annotation azure.workload.identity/tenant-id, and AZURE_TENANT_ID is not set",
        ),
    ] {
        let kubernetes = kubernetes(annotations).await;
        let bench = Bench::new(Setting {
            environment,
            kubernetes: Some(&kubernetes),
            rules: rules(),
            ..Setting::default()
        });
        let fields = json!({ "provider": "azure", "serviceAccountName": "deployer" });
        let error = bench.lend(REPOSITORY, fields).await.unwrap_err().to_string();
        let start = "failed to configure authentication options: service account 'team/deployer': ";
        assert_eq!(error, format!("{start}{wanted}"));
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
    let own = bench.lend(REPOSITORY, azure()).await.unwrap();
    let fields = json!({ "provider": "azure", "serviceAccountName": "deployer" });
    let of_account = bench.lend(REPOSITORY, fields).await.unwrap();
    assert_ne!(own.digest(), of_account.digest());
    assert_eq!(entra.asked().len(), 2);
}

#[tokio::test]
async fn a_managed_identity_is_asked_for_at_the_metadata_service() {
    let metadata = Double::start(|asked| {
        let line = format!("GET /metadata/identity/oauth2/token?api-version=2018-02-01&resource={DEVOPS}");
        let of = match asked.line.strip_prefix(&line) {
            Some("") => "machine",
            Some("&client_id=assigned") => "assigned",
            _ => return Say::Text(404, String::new()),
        };
        if asked.header("metadata") != "true" {
            return Say::Text(400, String::new());
        }
        Say::json(&json!({ "access_token": of, "expires_in": "86400", "resource": DEVOPS }))
    })
    .await;
    let endpoint = ("AZURE_POD_IDENTITY_AUTHORITY_HOST", metadata.url.as_str());
    let assigned = [endpoint, ("AZURE_CLIENT_ID", "assigned")];
    for (environment, wanted) in [(&[endpoint][..], "machine"), (&assigned, "assigned")] {
        let bench = Bench::new(Setting {
            environment,
            ..Setting::default()
        });
        let found = bench.lend(REPOSITORY, azure()).await.unwrap();
        assert_eq!(lent(found), bearer(wanted));
    }
}

#[tokio::test]
async fn a_controller_without_any_identity_says_what_was_looked_for() {
    let closed = sluice_harness::closed::ClosedPort::take().unwrap();
    let free = format!("http://{}", closed.address().unwrap());
    let environment = [("AZURE_POD_IDENTITY_AUTHORITY_HOST", free.as_str())];
    let bench = Bench::new(Setting {
        environment: &environment,
        ..Setting::default()
    });
    let error = bench.lend(REPOSITORY, azure()).await.unwrap_err().to_string();
    let start = "failed to configure authentication options: the controller has no identity for provider azure: AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_FEDERATED_TOKEN_FILE are not all set, and the metadata service gives none: cannot talk to 127.0.0.1:";
    assert!(error.starts_with(start), "{error}");
}

#[tokio::test]
async fn bad_answers_give_bounded_errors_without_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "federated-token").unwrap();
    let double = entra().await;
    let federated = [
        ("AZURE_AUTHORITY_HOST", double.url.as_str()),
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
    let managed = [("AZURE_POD_IDENTITY_AUTHORITY_HOST", double.url.as_str())];
    for environment in [&federated[..], &shared, &managed] {
        let bench = Bench::new(Setting {
            environment,
            ..Setting::default()
        });
        for (wanted, answer) in bad_answers() {
            double.answer(answer);
            let error = bench.lend(REPOSITORY, azure()).await.unwrap_err().to_string();
            check_error(&error, wanted, &double);
        }
    }
    let wrong = [
        federated[0],
        federated[1],
        ("AZURE_TENANT_ID", "../x"),
        federated[3],
    ];
    let bench = Bench::new(Setting {
        environment: &wrong,
        ..Setting::default()
    });
    bench.lend(REPOSITORY, azure()).await.unwrap_err();
    assert_eq!(double.lines().last().unwrap(), "POST /..%2Fx/oauth2/v2.0/token");
}
