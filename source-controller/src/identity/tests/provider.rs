//! Tests of the identity that spec, Secret and flags select: the cases of upstream's `getAuthOpts_provider`.

use sluice_runtime::failure::Failure as _;

use super::*;
use crate::identity::HostPattern;

const APP: [(&str, &str); 3] = [
    ("githubAppID", "7"),
    ("githubAppPrivateKey", "pem"),
    ("githubAppInstallationID", "42"),
];
const BASIC: [(&str, &str); 2] = [("username", "u"), ("password", "p")];
const PLAIN: &str = "https://git.example/r";
const DEVOPS: &str = "https://dev.azure.com/org/project/_git/r";
const CODECOMMIT: &str = "https://git-codecommit.eu-west-1.amazonaws.com/v1/repos/r";

/// Returns the selected identity, or class, reason and message of the error.
fn selected(url: &str, fields: Value, secret: Option<&[(&str, &str)]>, policy: &IdentityPolicy) -> String {
    let data = secret.map(data);
    let secret = data.as_ref().map(|data| ("team/s", data));
    let address = Address::parse(url).unwrap();
    match ProviderIdentity::from_spec(&spec(url, fields), "team", &address, secret, policy) {
        Ok(None) => "nothing".to_owned(),
        Ok(Some(selected)) => format!("{selected:?}"),
        Err(error) => format!("{:?} {}: {error}", error.class(), error.reason()),
    }
}

#[test]
fn azure_and_aws_default_to_the_controllers_identity() {
    let policy = IdentityPolicy::default();
    assert_eq!(
        selected(DEVOPS, json!({ "provider": "azure" }), Some(&BASIC), &policy),
        "Azure(None)"
    );
    let found = selected(CODECOMMIT, json!({ "provider": "aws" }), Some(&BASIC), &policy);
    assert!(
        found.starts_with("Aws(Repository {") && found.ends_with("None)"),
        "{found}"
    );
}

#[test]
fn a_service_account_of_the_object_requires_the_feature_gate() {
    let closed = "Terminal FeatureGateDisabled: to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller";
    for provider in ["azure", "aws"] {
        let fields = json!({ "provider": provider, "serviceAccountName": "deployer" });
        assert_eq!(
            selected(CODECOMMIT, fields.clone(), None, &IdentityPolicy::default()),
            closed
        );
        let open = IdentityPolicy {
            object_level: true,
            default_account: Some("default".to_owned()),
            ..IdentityPolicy::default()
        };
        let named = r#"Some(ServiceAccountRef { namespace: "team", name: "deployer" }))"#;
        let found = selected(CODECOMMIT, fields, None, &open);
        assert!(found.ends_with(named), "{found}");
        let found = selected(CODECOMMIT, json!({ "provider": provider }), None, &open);
        assert!(found.contains(r#"name: "default""#), "{found}");
    }
}

/// The author of a GitRepository chooses the URL, the proxy and the CA: none of them may direct the controller's token
/// to the author's own server.
#[test]
fn the_controllers_own_identity_requires_a_listed_host_and_the_system_ca() {
    let azure = || json!({ "provider": "azure" });
    let ca = [("ca.crt", "pem")];
    let policy = IdentityPolicy::default();
    for url in [PLAIN, "http://dev.azure.com/org/project/_git/r"] {
        let found = selected(url, azure(), None, &policy);
        let start = "Terminal InvalidProviderConfiguration: the controller's own identity is not used for ";
        assert!(
            found.starts_with(start) && found.contains("--controller-identity-hosts"),
            "{found}"
        );
    }
    for (url, fields) in [(DEVOPS, azure()), (CODECOMMIT, json!({ "provider": "aws" }))] {
        let found = selected(url, fields, Some(&ca), &policy);
        let start = "Transient InvalidProviderConfiguration: the controller's own identity is not used with the CA (ca.crt) of secret 'team/s'";
        assert!(found.starts_with(start), "{found}");
    }
    // With its own identity, an object may use any host.
    let open = IdentityPolicy {
        object_level: true,
        ..IdentityPolicy::default()
    };
    let own = json!({ "provider": "azure", "serviceAccountName": "deployer" });
    assert!(selected(PLAIN, own, Some(&ca), &open).starts_with("Azure(Some("));
    // Nothing is sent over ssh, and an administrator may lift the restriction.
    assert_eq!(
        selected("ssh://git@git.example/r", azure(), Some(&ca), &policy),
        "Azure(None)"
    );
    let all = IdentityPolicy {
        hosts: vec![HostPattern::Any].into(),
        ..IdentityPolicy::default()
    };
    assert_eq!(selected(PLAIN, azure(), Some(&ca), &all), "Azure(None)");
}

#[test]
fn aws_requires_a_codecommit_url_over_https() {
    let fields = json!({ "provider": "aws" });
    let refusal = |url: &str| selected(url, fields.clone(), None, &IdentityPolicy::default());
    assert_eq!(
        refusal("https://github.com/o/r"),
        "Transient AuthenticationFailed: failed to configure authentication options: invalid AWS CodeCommit Git URL: github.com"
    );
    assert_eq!(
        refusal("http://git-codecommit.eu-west-1.amazonaws.com/v1/repos/r"),
        "Transient AuthenticationFailed: failed to configure authentication options: AWS CodeCommit authentication requires an HTTPS Git URL"
    );
}

#[test]
fn github_needs_a_secret_with_app_data_and_app_data_needs_github() {
    let policy = IdentityPolicy::default();
    let github = json!({ "provider": "github" });
    let missing = "InvalidProviderConfiguration: secretRef with github app data must be specified when provider is set to github";
    assert_eq!(
        selected(PLAIN, github.clone(), None, &policy),
        format!("Terminal {missing}")
    );
    assert_eq!(
        selected(PLAIN, github.clone(), Some(&BASIC), &policy),
        format!("Transient {missing}")
    );
    assert_eq!(
        selected(PLAIN, github.clone(), Some(&APP[..1]), &policy),
        format!("Transient {missing}")
    );
    assert!(selected(PLAIN, github.clone(), Some(&APP), &policy).starts_with("Github(App {"));
    let found = selected(PLAIN, github, Some(&APP[..2]), &policy);
    assert!(
        found.starts_with("Transient InvalidProviderConfiguration: ") && found.ends_with("it has neither"),
        "{found}"
    );
    for fields in [json!({}), json!({ "provider": "generic" })] {
        assert_eq!(
            selected(PLAIN, fields.clone(), Some(&APP), &policy),
            "Transient InvalidProviderConfiguration: secretRef 'team/s' has github app data but provider is not set to github"
        );
        assert_eq!(selected(PLAIN, fields.clone(), Some(&BASIC), &policy), "nothing");
        assert_eq!(selected(PLAIN, fields, None, &policy), "nothing");
    }
}
