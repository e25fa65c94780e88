//! Which spec, Secret and flags want what, before anybody is asked: the cases of upstream's `getAuthOpts_provider`.

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

/// What is wanted, or class, reason and text of the refusal.
fn wanted(url: &str, fields: Value, secret: Option<&[(&str, &str)]>, rules: &Rules) -> String {
    let data = secret.map(data);
    let secret = data.as_ref().map(|data| ("team/s", data));
    let address = Address::parse(url).unwrap();
    match Wanted::of(&spec(url, fields), "team", &address, secret, rules) {
        Ok(None) => "nothing".to_owned(),
        Ok(Some(wanted)) => format!("{wanted:?}"),
        Err(error) => format!("{:?} {}: {error}", error.class(), error.reason()),
    }
}

#[test]
fn providers_without_secrets_of_their_own_want_the_controllers_identity() {
    let rules = Rules::default();
    assert_eq!(
        wanted(DEVOPS, json!({ "provider": "azure" }), Some(&BASIC), &rules),
        "Azure(None)"
    );
    let found = wanted(CODECOMMIT, json!({ "provider": "aws" }), Some(&BASIC), &rules);
    assert!(
        found.starts_with("Aws(Repository {") && found.ends_with("None)"),
        "{found}"
    );
}

#[test]
fn an_account_of_the_object_needs_the_gate() {
    let closed = "Terminal FeatureGateDisabled: to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller";
    for provider in ["azure", "aws"] {
        let fields = json!({ "provider": provider, "serviceAccountName": "deployer" });
        assert_eq!(
            wanted(CODECOMMIT, fields.clone(), None, &Rules::default()),
            closed
        );
        let open = Rules {
            object_level: true,
            default_account: Some("default".to_owned()),
            ..Rules::default()
        };
        let named = r#"Some(Account { namespace: "team", name: "deployer" }))"#;
        let found = wanted(CODECOMMIT, fields, None, &open);
        assert!(found.ends_with(named), "{found}");
        let found = wanted(CODECOMMIT, json!({ "provider": provider }), None, &open);
        assert!(found.contains(r#"name: "default""#), "{found}");
    }
}

/// Whoever may write a GitRepository chooses the URL, the proxy and the authorities: none of them may lead the token of the
/// controller to a server of that person.
#[test]
fn the_controllers_own_identity_is_for_its_hosts_and_the_systems_authorities_only() {
    let azure = || json!({ "provider": "azure" });
    let ca = [("ca.crt", "pem")];
    let rules = Rules::default();
    for url in [PLAIN, "http://dev.azure.com/org/project/_git/r"] {
        let found = wanted(url, azure(), None, &rules);
        let start = "Terminal InvalidProviderConfiguration: the controller's own identity is not used for ";
        assert!(
            found.starts_with(start) && found.contains("--controller-identity-hosts"),
            "{found}"
        );
    }
    for (url, fields) in [(DEVOPS, azure()), (CODECOMMIT, json!({ "provider": "aws" }))] {
        let found = wanted(url, fields, Some(&ca), &rules);
        let start = "Transient InvalidProviderConfiguration: the controller's own identity is not used with the authorities (ca.crt) of secret 'team/s'";
        assert!(found.starts_with(start), "{found}");
    }
    // With an identity of its own an object may send it where it wants.
    let open = Rules {
        object_level: true,
        ..Rules::default()
    };
    let own = json!({ "provider": "azure", "serviceAccountName": "deployer" });
    assert!(wanted(PLAIN, own, Some(&ca), &open).starts_with("Azure(Some("));
    // Nothing is sent by ssh, and an administrator may lift the restriction.
    assert_eq!(
        wanted("ssh://git@git.example/r", azure(), Some(&ca), &rules),
        "Azure(None)"
    );
    let all = Rules {
        hosts: vec![HostPattern::Any].into(),
        ..Rules::default()
    };
    assert_eq!(wanted(PLAIN, azure(), Some(&ca), &all), "Azure(None)");
}

#[test]
fn aws_serves_codecommit_over_https_only() {
    let fields = json!({ "provider": "aws" });
    let refusal = |url: &str| wanted(url, fields.clone(), None, &Rules::default());
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
    let rules = Rules::default();
    let github = json!({ "provider": "github" });
    let missing = "InvalidProviderConfiguration: secretRef with github app data must be specified when provider is set to github";
    assert_eq!(
        wanted(PLAIN, github.clone(), None, &rules),
        format!("Terminal {missing}")
    );
    assert_eq!(
        wanted(PLAIN, github.clone(), Some(&BASIC), &rules),
        format!("Transient {missing}")
    );
    assert_eq!(
        wanted(PLAIN, github.clone(), Some(&APP[..1]), &rules),
        format!("Transient {missing}")
    );
    assert!(wanted(PLAIN, github.clone(), Some(&APP), &rules).starts_with("Github(App {"));
    let found = wanted(PLAIN, github, Some(&APP[..2]), &rules);
    assert!(
        found.starts_with("Transient InvalidProviderConfiguration: ") && found.ends_with("it has neither"),
        "{found}"
    );
    for fields in [json!({}), json!({ "provider": "generic" })] {
        assert_eq!(
            wanted(PLAIN, fields.clone(), Some(&APP), &rules),
            "Transient InvalidProviderConfiguration: secretRef 'team/s' has github app data but provider is not set to github"
        );
        assert_eq!(wanted(PLAIN, fields.clone(), Some(&BASIC), &rules), "nothing");
        assert_eq!(wanted(PLAIN, fields, None, &rules), "nothing");
    }
}
