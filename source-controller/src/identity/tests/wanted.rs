//! Which spec, Secret and flags want what, before anybody is asked: the cases of upstream's `getAuthOpts_provider`.

use sluice_runtime::failure::Failure as _;

use super::*;

const APP: [(&str, &str); 3] = [
    ("githubAppID", "7"),
    ("githubAppPrivateKey", "pem"),
    ("githubAppInstallationID", "42"),
];
const BASIC: [(&str, &str); 2] = [("username", "u"), ("password", "p")];
const PLAIN: &str = "https://git.example/r";
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
        wanted(PLAIN, json!({ "provider": "azure" }), None, &rules),
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
        };
        let named = r#"Some(Account { namespace: "team", name: "deployer" }))"#;
        let found = wanted(CODECOMMIT, fields, None, &open);
        assert!(found.ends_with(named), "{found}");
        let found = wanted(CODECOMMIT, json!({ "provider": provider }), None, &open);
        assert!(found.contains(r#"name: "default""#), "{found}");
    }
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
