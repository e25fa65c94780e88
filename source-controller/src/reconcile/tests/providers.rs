//! Tests of provider credentials in complete reconciliations, with a fake provider that checks its requests and a Git
//! server that requires the issued tokens.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_harness::git::GitServer;
use sluice_harness::tls::Authority;
use sluice_runtime::watch::Requeue;

use super::environment::TestEnvironment;
use crate::identity::tests::fake::{FakeEndpoint, Reply};
use crate::identity::tests::github;
use crate::identity::{HostPattern, IdentityPolicy};

/// Creates the Secret `app` with the data of a GitHub App at this API.
async fn app(env: &TestEnvironment, api: &FakeEndpoint) {
    let secret = json!({
        "githubAppID": "7",
        "githubAppPrivateKey": github::key().pem,
        "githubAppInstallationOwner": "acme",
        "githubAppBaseURL": api.url,
    });
    env.secret("app", secret).await;
}

fn github_fields() -> Value {
    json!({ "provider": "github", "secretRef": { "name": "app" } })
}

#[tokio::test]
async fn a_github_app_reads_a_repository_and_keeps_its_mirror_when_the_token_changes() {
    let mut env = TestEnvironment::new().await;
    let api = github::api(env.clock.clone()).await;
    app(&env, &api).await;
    env.server.require_basic("x-access-token", "ghs_42_0");
    env.create("app", github_fields()).await;
    env.reconcile("app").await;
    insta::assert_snapshot!(env.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)
    ");
    env.clock.advance(Duration::from_hours(1));
    env.server.require_basic("x-access-token", "ghs_42_1");
    env.commit("second", &[("more.tf", "")]);
    env.reconcile("app").await;
    assert!(
        env.artifact("app")
            .await
            .revision
            .ends_with(&env.repository.head().unwrap())
    );
    assert_eq!(
        env.mirrors_on_disk(),
        1,
        "a token of the same App finds the same mirror"
    );
    assert_eq!(api.requests().len(), 4, "two exchanges of two requests");
}

#[tokio::test]
async fn a_token_refused_by_the_host_is_replaced_by_the_next_reconciliation() {
    let env = TestEnvironment::new().await;
    let api = github::api(env.clock.clone()).await;
    app(&env, &api).await;
    env.server.require_basic("x-access-token", "ghs_42_1");
    env.create("app", github_fields()).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    insta::assert_snapshot!(env.table("app").await, @"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': authentication required: Unauthorized
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': authentication required: Unauthorized
    generation 1 observed -1 artifact none
    event Warning GitOperationFailed failed to checkout and determine revision: unable to list remote for 'http://git/app.git': authentication required: Unauthorized
    ");
    env.reconcile("app").await;
    insta::assert_snapshot!(env.table("app").await, @"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)
    ");
}

#[tokio::test]
async fn a_refusing_provider_is_reported_and_retried() {
    let env = TestEnvironment::new().await;
    let api = github::api(env.clock.clone()).await;
    api.set_handler(|_| Reply::Text(401, json!({ "message": "Bad credentials" }).to_string()));
    app(&env, &api).await;
    env.create("app", github_fields()).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    let table = env.table("app").await.replace(api.host(), "api");
    insta::assert_snapshot!(table, @"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/AuthenticationFailed @1 failed to configure authentication options: api refuses to look up the installation of the GitHub App: HTTP status 401: Bad credentials
    FetchFailed=True/AuthenticationFailed @1 failed to configure authentication options: api refuses to look up the installation of the GitHub App: HTTP status 401: Bad credentials
    generation 1 observed -1 artifact none
    event Warning AuthenticationFailed failed to configure authentication options: api refuses to look up the installation of the GitHub App: HTTP status 401: Bad credentials
    ");
}

#[tokio::test]
async fn a_throttling_provider_is_retried_after_its_delay() {
    let env = TestEnvironment::new().await;
    let api = FakeEndpoint::start(|_| Reply::Wait(429, "40")).await;
    app(&env, &api).await;
    env.create("app", github_fields()).await;
    assert_eq!(
        env.reconcile("app").await,
        Requeue::After(Duration::from_secs(40))
    );
}

#[tokio::test]
async fn github_without_a_secret_stalls() {
    let env = TestEnvironment::new().await;
    env.create("app", json!({ "provider": "github" })).await;
    assert_eq!(env.reconcile("app").await, Requeue::OnChange);
    insta::assert_snapshot!(env.table("app").await, @"
    Stalled=True/InvalidProviderConfiguration @1 secretRef with github app data must be specified when provider is set to github
    Ready=False/InvalidProviderConfiguration @1 secretRef with github app data must be specified when provider is set to github
    FetchFailed=True/InvalidProviderConfiguration @1 secretRef with github app data must be specified when provider is set to github
    generation 1 observed 1 artifact none
    event Warning InvalidProviderConfiguration secretRef with github app data must be specified when provider is set to github
    ");
}

#[tokio::test]
async fn github_with_a_secret_without_app_data_is_retried() {
    let env = TestEnvironment::new().await;
    env.secret("app", json!({ "username": "u", "password": "p" }))
        .await;
    env.create("app", github_fields()).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    insta::assert_snapshot!(env.table("app").await, @"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/InvalidProviderConfiguration @1 secretRef with github app data must be specified when provider is set to github
    FetchFailed=True/InvalidProviderConfiguration @1 secretRef with github app data must be specified when provider is set to github
    generation 1 observed -1 artifact none
    event Warning InvalidProviderConfiguration secretRef with github app data must be specified when provider is set to github
    ");
}

#[tokio::test]
async fn app_data_without_the_provider_is_retried() {
    let env = TestEnvironment::new().await;
    env.secret("app", json!({ "githubAppID": "7" })).await;
    env.create("app", json!({ "secretRef": { "name": "app" } })).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    insta::assert_snapshot!(env.table("app").await, @"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/InvalidProviderConfiguration @1 secretRef 'team/app' has github app data but provider is not set to github
    FetchFailed=True/InvalidProviderConfiguration @1 secretRef 'team/app' has github app data but provider is not set to github
    generation 1 observed -1 artifact none
    event Warning InvalidProviderConfiguration secretRef 'team/app' has github app data but provider is not set to github
    ");
}

#[tokio::test]
async fn two_references_to_the_installation_are_refused() {
    let env = TestEnvironment::new().await;
    let secret = json!({
        "githubAppID": "7", "githubAppPrivateKey": "x",
        "githubAppInstallationID": "1", "githubAppInstallationOwner": "acme",
    });
    env.secret("app", secret).await;
    env.create("app", github_fields()).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    insta::assert_snapshot!(env.table("app").await, @"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/InvalidProviderConfiguration @1 secretRef 'team/app' must have exactly one of the keys githubAppInstallationID and githubAppInstallationOwner; it has both
    FetchFailed=True/InvalidProviderConfiguration @1 secretRef 'team/app' must have exactly one of the keys githubAppInstallationID and githubAppInstallationOwner; it has both
    generation 1 observed -1 artifact none
    event Warning InvalidProviderConfiguration secretRef 'team/app' must have exactly one of the keys githubAppInstallationID and githubAppInstallationOwner; it has both
    ");
}

#[tokio::test]
async fn a_service_account_of_the_object_stalls_without_the_feature_gate() {
    let env = TestEnvironment::new().await;
    let fields = json!({ "provider": "azure", "serviceAccountName": "deployer" });
    env.create("app", fields).await;
    assert_eq!(env.reconcile("app").await, Requeue::OnChange);
    insta::assert_snapshot!(env.table("app").await, @"
    Stalled=True/FeatureGateDisabled @1 to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller
    Ready=False/FeatureGateDisabled @1 to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller
    FetchFailed=True/FeatureGateDisabled @1 to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller
    generation 1 observed 1 artifact none
    event Warning FeatureGateDisabled to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller
    ");
}

#[tokio::test]
async fn an_entra_token_is_used_as_bearer_token() {
    let mut env = TestEnvironment::new().await;
    let metadata =
        FakeEndpoint::start(|_| Reply::json(&json!({ "access_token": "entra", "expires_in": "3600" }))).await;
    env.environment = [("AZURE_POD_IDENTITY_AUTHORITY_HOST", metadata.url.as_str())]
        .into_iter()
        .collect();
    env.policy.hosts = vec![HostPattern::Any].into();
    env.server.require_bearer("entra");
    env.create("app", json!({ "provider": "azure" })).await;
    env.reconcile("app").await;
    assert!(env.artifact("app").await.revision.starts_with("main@sha1:"));
}

#[tokio::test]
async fn no_token_is_requested_for_a_host_outside_azure_devops() {
    let mut env = TestEnvironment::new().await;
    let metadata =
        FakeEndpoint::start(|_| Reply::json(&json!({ "access_token": "entra", "expires_in": "3600" }))).await;
    env.environment = [("AZURE_POD_IDENTITY_AUTHORITY_HOST", metadata.url.as_str())]
        .into_iter()
        .collect();
    env.create("app", json!({ "provider": "azure" })).await;
    assert_eq!(env.reconcile("app").await, Requeue::OnChange);
    insta::assert_snapshot!(env.table("app").await, @"
    Stalled=True/InvalidProviderConfiguration @1 the controller's own identity is not used for git: it is only sent over https and to hosts in the flag --controller-identity-hosts; use another identity with spec.serviceAccountName
    Ready=False/InvalidProviderConfiguration @1 the controller's own identity is not used for git: it is only sent over https and to hosts in the flag --controller-identity-hosts; use another identity with spec.serviceAccountName
    FetchFailed=True/InvalidProviderConfiguration @1 the controller's own identity is not used for git: it is only sent over https and to hosts in the flag --controller-identity-hosts; use another identity with spec.serviceAccountName
    generation 1 observed 1 artifact none
    event Warning InvalidProviderConfiguration the controller's own identity is not used for git: it is only sent over https and to hosts in the flag --controller-identity-hosts; use another identity with spec.serviceAccountName
    ");
    assert!(metadata.requests().is_empty() && env.server.requests().is_empty());
}

#[tokio::test]
async fn no_signature_is_made_for_a_host_outside_codecommit() {
    let mut env = TestEnvironment::new().await;
    env.policy = IdentityPolicy {
        object_level: true,
        default_account: Some("default".to_owned()),
        ..IdentityPolicy::default()
    };
    env.create("app", json!({ "provider": "aws" })).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    insta::assert_snapshot!(env.table("app").await, @"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/AuthenticationFailed @1 failed to configure authentication options: AWS CodeCommit authentication requires an HTTPS Git URL
    FetchFailed=True/AuthenticationFailed @1 failed to configure authentication options: AWS CodeCommit authentication requires an HTTPS Git URL
    generation 1 observed -1 artifact none
    event Warning AuthenticationFailed failed to configure authentication options: AWS CodeCommit authentication requires an HTTPS Git URL
    ");
}

#[tokio::test]
async fn an_enterprise_server_with_a_private_ca_needs_ca_crt() {
    let env = TestEnvironment::new().await;
    let git = GitServer::start_tls().await.unwrap();
    let url = git.serve("app", &env.repository);
    git.require_basic("x-access-token", "ghs_42_0");
    let authority = Authority::create().unwrap();
    let api = github::api_tls(env.clock.clone(), &authority).await;
    app(&env, &api).await;
    let mut fields = github_fields();
    fields["url"] = json!(url);
    env.create("app", fields).await;
    assert_eq!(env.reconcile("app").await, Requeue::Backoff);
    let table = env.table("app").await.replace(api.host(), "api");
    let message = "Ready=False/AuthenticationFailed @1 failed to configure authentication options: connection to api failed:";
    assert!(
        table.contains(message) && table.contains("certificate"),
        "{table}"
    );
    let bundle = format!("{}{}", authority.pem(), git.authority_pem().unwrap());
    env.secret("app", json!({ "ca.crt": bundle })).await;
    env.reconcile("app").await;
    assert!(env.artifact("app").await.revision.starts_with("main@sha1:"));
}
