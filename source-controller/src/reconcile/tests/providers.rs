//! Credentials that a provider lends, in whole passes: the provider is a double that checks what it is asked, the Git
//! server is the real one and asks for what the provider gave out.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_harness::git::GitServer;
use sluice_harness::tls::Authority;
use sluice_runtime::watch::Next;

use super::world::World;
use crate::identity::tests::double::{Double, Say};
use crate::identity::tests::github;
use crate::identity::{HostPattern, Rules};

/// Makes the Secret `app` of the GitHub App, whose API is here.
async fn app(world: &World, api: &Double) {
    let secret = json!({
        "githubAppID": "7",
        "githubAppPrivateKey": github::key().pem,
        "githubAppInstallationOwner": "acme",
        "githubAppBaseURL": api.url,
    });
    world.secret("app", secret).await;
}

fn github_fields() -> Value {
    json!({ "provider": "github", "secretRef": { "name": "app" } })
}

#[tokio::test]
async fn a_github_app_reads_a_repository_and_keeps_its_mirror_when_the_token_changes() {
    let mut world = World::new().await;
    let api = github::api(world.clock.clone()).await;
    app(&world, &api).await;
    world.server.require_basic("x-access-token", "ghs_42_0");
    world.create("app", github_fields()).await;
    world.pass("app").await;
    insta::assert_snapshot!(world.table("app").await, @r"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)
    ");
    world.clock.advance(Duration::from_secs(3600));
    world.server.require_basic("x-access-token", "ghs_42_1");
    world.commit("second", &[("more.tf", "")]);
    world.pass("app").await;
    assert!(
        world
            .artifact("app")
            .await
            .revision
            .ends_with(&world.repository.head().unwrap())
    );
    assert_eq!(
        world.mirrors_on_disk(),
        1,
        "a token of the same App finds the same mirror"
    );
    assert_eq!(api.asked().len(), 4, "two exchanges of two requests");
}

#[tokio::test]
async fn a_token_that_the_host_refuses_is_replaced_by_the_next_pass() {
    let world = World::new().await;
    let api = github::api(world.clock.clone()).await;
    app(&world, &api).await;
    world.server.require_basic("x-access-token", "ghs_42_1");
    world.create("app", github_fields()).await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    insta::assert_snapshot!(world.table("app").await, @"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': authentication required: Unauthorized
    FetchFailed=True/GitOperationFailed @1 failed to checkout and determine revision: unable to list remote for 'http://git/app.git': authentication required: Unauthorized
    generation 1 observed -1 artifact none
    event Warning GitOperationFailed failed to checkout and determine revision: unable to list remote for 'http://git/app.git': authentication required: Unauthorized
    ");
    world.pass("app").await;
    insta::assert_snapshot!(world.table("app").await, @"
    Ready=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    ArtifactInStorage=True/Succeeded @1 stored artifact for revision 'main@sha1:<first>'
    generation 1 observed 1 artifact main@sha1:<first>
    event Normal NewArtifact stored artifact for commit 'first' (files, digest, revision)
    ");
}

#[tokio::test]
async fn a_provider_that_refuses_is_named_and_asked_again() {
    let world = World::new().await;
    let api = github::api(world.clock.clone()).await;
    api.answer(|_| Say::Text(401, json!({ "message": "Bad credentials" }).to_string()));
    app(&world, &api).await;
    world.create("app", github_fields()).await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    let table = world.table("app").await.replace(api.host(), "api");
    insta::assert_snapshot!(table, @"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/AuthenticationFailed @1 failed to configure authentication options: api refuses to look the installation of the GitHub App up: HTTP status 401: Bad credentials
    FetchFailed=True/AuthenticationFailed @1 failed to configure authentication options: api refuses to look the installation of the GitHub App up: HTTP status 401: Bad credentials
    generation 1 observed -1 artifact none
    event Warning AuthenticationFailed failed to configure authentication options: api refuses to look the installation of the GitHub App up: HTTP status 401: Bad credentials
    ");
}

#[tokio::test]
async fn a_provider_that_asks_to_wait_is_left_alone_for_as_long() {
    let world = World::new().await;
    let api = Double::start(|_| Say::Wait(429, "40")).await;
    app(&world, &api).await;
    world.create("app", github_fields()).await;
    assert_eq!(world.pass("app").await, Next::After(Duration::from_secs(40)));
}

#[tokio::test]
async fn github_without_a_secret_stalls() {
    let world = World::new().await;
    world.create("app", json!({ "provider": "github" })).await;
    assert_eq!(world.pass("app").await, Next::OnChange);
    insta::assert_snapshot!(world.table("app").await, @"
    Stalled=True/InvalidProviderConfiguration @1 secretRef with github app data must be specified when provider is set to github
    Ready=False/InvalidProviderConfiguration @1 secretRef with github app data must be specified when provider is set to github
    FetchFailed=True/InvalidProviderConfiguration @1 secretRef with github app data must be specified when provider is set to github
    generation 1 observed 1 artifact none
    event Warning InvalidProviderConfiguration secretRef with github app data must be specified when provider is set to github
    ");
}

#[tokio::test]
async fn github_with_a_secret_without_app_data_is_tried_again() {
    let world = World::new().await;
    world
        .secret("app", json!({ "username": "u", "password": "p" }))
        .await;
    world.create("app", github_fields()).await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    insta::assert_snapshot!(world.table("app").await, @"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/InvalidProviderConfiguration @1 secretRef with github app data must be specified when provider is set to github
    FetchFailed=True/InvalidProviderConfiguration @1 secretRef with github app data must be specified when provider is set to github
    generation 1 observed -1 artifact none
    event Warning InvalidProviderConfiguration secretRef with github app data must be specified when provider is set to github
    ");
}

#[tokio::test]
async fn app_data_without_the_provider_is_tried_again() {
    let world = World::new().await;
    world.secret("app", json!({ "githubAppID": "7" })).await;
    world
        .create("app", json!({ "secretRef": { "name": "app" } }))
        .await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    insta::assert_snapshot!(world.table("app").await, @"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/InvalidProviderConfiguration @1 secretRef 'team/app' has github app data but provider is not set to github
    FetchFailed=True/InvalidProviderConfiguration @1 secretRef 'team/app' has github app data but provider is not set to github
    generation 1 observed -1 artifact none
    event Warning InvalidProviderConfiguration secretRef 'team/app' has github app data but provider is not set to github
    ");
}

#[tokio::test]
async fn two_ways_to_name_the_installation_are_refused_with_the_keys() {
    let world = World::new().await;
    let secret = json!({
        "githubAppID": "7", "githubAppPrivateKey": "x",
        "githubAppInstallationID": "1", "githubAppInstallationOwner": "acme",
    });
    world.secret("app", secret).await;
    world.create("app", github_fields()).await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    insta::assert_snapshot!(world.table("app").await, @"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/InvalidProviderConfiguration @1 secretRef 'team/app' must have exactly one of the keys githubAppInstallationID and githubAppInstallationOwner; it has both
    FetchFailed=True/InvalidProviderConfiguration @1 secretRef 'team/app' must have exactly one of the keys githubAppInstallationID and githubAppInstallationOwner; it has both
    generation 1 observed -1 artifact none
    event Warning InvalidProviderConfiguration secretRef 'team/app' must have exactly one of the keys githubAppInstallationID and githubAppInstallationOwner; it has both
    ");
}

#[tokio::test]
async fn an_account_of_the_object_stalls_while_the_gate_is_closed() {
    let world = World::new().await;
    let fields = json!({ "provider": "azure", "serviceAccountName": "deployer" });
    world.create("app", fields).await;
    assert_eq!(world.pass("app").await, Next::OnChange);
    insta::assert_snapshot!(world.table("app").await, @"
    Stalled=True/FeatureGateDisabled @1 to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller
    Ready=False/FeatureGateDisabled @1 to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller
    FetchFailed=True/FeatureGateDisabled @1 to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller
    generation 1 observed 1 artifact none
    event Warning FeatureGateDisabled to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller
    ");
}

#[tokio::test]
async fn an_entra_token_is_the_bearer_token() {
    let mut world = World::new().await;
    let metadata =
        Double::start(|_| Say::json(&json!({ "access_token": "entra", "expires_in": "3600" }))).await;
    world.environment = [("AZURE_POD_IDENTITY_AUTHORITY_HOST", metadata.url.as_str())]
        .into_iter()
        .collect();
    world.rules.hosts = vec![HostPattern::Any].into();
    world.server.require_bearer("entra");
    world.create("app", json!({ "provider": "azure" })).await;
    world.pass("app").await;
    assert!(world.artifact("app").await.revision.starts_with("main@sha1:"));
}

#[tokio::test]
async fn a_host_that_is_not_azure_devops_gets_no_token_which_is_not_even_asked_for() {
    let mut world = World::new().await;
    let metadata =
        Double::start(|_| Say::json(&json!({ "access_token": "entra", "expires_in": "3600" }))).await;
    world.environment = [("AZURE_POD_IDENTITY_AUTHORITY_HOST", metadata.url.as_str())]
        .into_iter()
        .collect();
    world.create("app", json!({ "provider": "azure" })).await;
    assert_eq!(world.pass("app").await, Next::OnChange);
    insta::assert_snapshot!(world.table("app").await, @"
    Stalled=True/InvalidProviderConfiguration @1 the controller's own identity is not used for git: it is sent over https only, and to hosts of the flag --controller-identity-hosts only; name another one with spec.serviceAccountName
    Ready=False/InvalidProviderConfiguration @1 the controller's own identity is not used for git: it is sent over https only, and to hosts of the flag --controller-identity-hosts only; name another one with spec.serviceAccountName
    FetchFailed=True/InvalidProviderConfiguration @1 the controller's own identity is not used for git: it is sent over https only, and to hosts of the flag --controller-identity-hosts only; name another one with spec.serviceAccountName
    generation 1 observed 1 artifact none
    event Warning InvalidProviderConfiguration the controller's own identity is not used for git: it is sent over https only, and to hosts of the flag --controller-identity-hosts only; name another one with spec.serviceAccountName
    ");
    assert!(metadata.asked().is_empty() && world.server.requests().is_empty());
}

#[tokio::test]
async fn a_host_that_is_not_codecommit_gets_no_signature() {
    let mut world = World::new().await;
    world.rules = Rules {
        object_level: true,
        default_account: Some("default".to_owned()),
        ..Rules::default()
    };
    world.create("app", json!({ "provider": "aws" })).await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    insta::assert_snapshot!(world.table("app").await, @"
    Reconciling=True/ProgressingWithRetry @1 building artifact
    Ready=False/AuthenticationFailed @1 failed to configure authentication options: AWS CodeCommit authentication requires an HTTPS Git URL
    FetchFailed=True/AuthenticationFailed @1 failed to configure authentication options: AWS CodeCommit authentication requires an HTTPS Git URL
    generation 1 observed -1 artifact none
    event Warning AuthenticationFailed failed to configure authentication options: AWS CodeCommit authentication requires an HTTPS Git URL
    ");
}

#[tokio::test]
async fn an_enterprise_server_behind_its_own_authority_needs_ca_crt() {
    let world = World::new().await;
    let git = GitServer::start_tls().await.unwrap();
    let url = git.serve("app", &world.repository);
    git.require_basic("x-access-token", "ghs_42_0");
    let authority = Authority::create().unwrap();
    let api = github::api_tls(world.clock.clone(), &authority).await;
    app(&world, &api).await;
    let mut fields = github_fields();
    fields["url"] = json!(url);
    world.create("app", fields).await;
    assert_eq!(world.pass("app").await, Next::Backoff);
    let table = world.table("app").await.replace(api.host(), "api");
    let said =
        "Ready=False/AuthenticationFailed @1 failed to configure authentication options: cannot talk to api:";
    assert!(table.contains(said) && table.contains("certificate"), "{table}");
    let bundle = format!("{}{}", authority.pem(), git.authority_pem().unwrap());
    world.secret("app", json!({ "ca.crt": bundle })).await;
    world.pass("app").await;
    assert!(world.artifact("app").await.revision.starts_with("main@sha1:"));
}
