use k8s_openapi::api::core::v1::Secret;
use proptest::prelude::*;
use sluice_api::run::TerraformRun;

use super::*;

pub(crate) fn bundle() -> Bundle {
    Bundle {
        version: VERSION,
        stack: Stack {
            namespace: "team".into(),
            name: "net".into(),
            uid: "u-1".into(),
        },
        artifact: Artifact {
            url: "http://source/x.tar.gz".into(),
            digest: "sha256:00".into(),
            size: Some(7),
            revision: "main@sha1:1".into(),
        },
        path: "infra".into(),
        workspace: "default".into(),
        tool: None,
        selected_tool: None,
        backend: Some("terraform {}".into()),
        variables: r#"{"password":"hunter2"}"#.into(),
        variable_files: vec![],
        environment: BTreeMap::from([("TOKEN".into(), "hunter2".into())]),
        pod_environment: BTreeMap::default(),
        run_environment: RunEnvironment::default(),
        options: Options::default(),
        outputs: Some(OutputsTarget {
            name: "out".into(),
            outputs: vec!["a:b".into()],
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }),
        readable_plan: ReadablePlan::Human,
        post_apply: PostApply::default(),
        inputs_digest: "sha256:1".into(),
        grace_seconds: None,
        ignored_drift: Vec::new(),
        last_apply: None,
        last_rejected: None,
        key: "ab".repeat(32),
        plan_keys: vec![],
        file_keys: vec![],
        webhooks: vec![],
        secrets: Vec::new(),
        closure: vec!["infra".into()],
        last_applied: None,
        nothing_stored: false,
        files_limit: None,
        state_copies: StateCopies::default(),
        state_check: StateCheck::default(),
    }
}

#[test]
fn a_stored_bundle_is_read_back() {
    let secret = one(&bundle());
    assert_eq!(secret.metadata.name.as_deref(), Some("net-abcd-1-bundle"));
    assert_eq!(secret.immutable, Some(true));
    assert_eq!(secret.metadata.owner_references.as_ref().unwrap()[0].uid, "r-1");
    assert_eq!(of_run(&secret, &run("r-1")).unwrap(), bundle());
}

/// The only Secret of a bundle.
fn one(bundle: &Bundle) -> Secret {
    let mut secrets = bundle.pack().unwrap().secrets("net-abcd-1", "r-1");
    assert_eq!(secrets.len(), 1);
    secrets.remove(0)
}

fn of_run(secret: &Secret, run: &TerraformRun) -> Result<Bundle, BundleError> {
    Bundle::from_secrets(std::slice::from_ref(secret), run)
}

/// The run that the bundle was made for.
fn run(uid: &str) -> TerraformRun {
    serde_json::from_value(serde_json::json!({
        "metadata": { "name": "net-abcd-1", "uid": uid },
        "spec": { "action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Revision",
            "bundleDigest": bundle().pack().unwrap().digest(), "bundleSecrets": 1,
            "source": { "kind": "GitRepository", "name": "x", "namespace": "team" },
            "terraform": { "name": "net", "uid": "u", "generation": 1 } }
    }))
    .unwrap()
}

#[test]
fn a_rejection_uses_up_an_id_as_an_apply_does() {
    let spent = |apply: Option<&str>, rejected: Option<&str>| {
        let bundle = Bundle {
            last_apply: apply.map(str::to_owned),
            last_rejected: rejected.map(str::to_owned),
            ..bundle()
        };
        bundle.last_spent_plan().to_owned()
    };
    assert_eq!(spent(None, None), "");
    assert_eq!(spent(Some("net-abcd-1"), None), "net-abcd-1");
    assert_eq!(spent(None, Some("net-abcd-2")), "net-abcd-2");
    assert_eq!(spent(Some("net-abcd-1"), Some("net-abcd-2")), "net-abcd-2");
}

#[test]
fn a_bundle_is_valid_only_for_its_run() {
    let mut run = run("r-1");
    run.spec.bundle_secrets = 0;
    assert_eq!(secret_names(&run).count(), 0);
    let own = bundle().pack().unwrap().into_text();
    assert_eq!(Bundle::from_input(Some(&own), &run).unwrap(), bundle());
    let mut other = bundle();
    other.variables = "{}".into();
    let other = other.pack().unwrap().into_text();
    for text in [other.as_str(), "no JSON", ""] {
        let refused = Bundle::from_input(Some(text), &run);
        assert!(
            matches!(refused, Err(BundleError::InputMismatch)),
            "not even decoded"
        );
    }
    assert!(matches!(
        Bundle::from_input(None, &run),
        Err(BundleError::NoInput)
    ));
    run.spec.bundle_digest.clear();
    assert!(
        Bundle::from_input(Some(&own), &run).is_err(),
        "of a run that names no digest"
    );
}

#[test]
fn a_foreign_secret_is_rejected_before_it_is_read() {
    let foreign = |secret: &Secret, run: &TerraformRun| {
        let refused = of_run(secret, run).unwrap_err();
        matches!(refused, BundleError::SecretMismatch { name } if name == "net-abcd-1-bundle")
    };
    let secret = one(&bundle());
    assert!(foreign(&secret, &run("r-2")), "of another run of that name");
    assert!(foreign(&secret, &run("")), "of a run that the API has not stored");
    let mut old = run("r-1");
    old.spec.bundle_digest.clear();
    assert!(foreign(&secret, &old), "of a run that names no digest");
    let mut forged = bundle();
    forged.variables = "{}".into();
    assert!(foreign(&one(&forged), &run("r-1")));
    let mut garbage = secret;
    garbage.data.as_mut().unwrap().get_mut("bundle").unwrap().0 = b"no JSON".to_vec();
    assert!(foreign(&garbage, &run("r-1")), "not even decoded");
}

#[test]
fn a_large_bundle_is_split_into_secrets_that_cannot_be_replaced() {
    let mut large = bundle();
    large.variables = "x".repeat(2 * CHUNK_SIZE);
    let packed = large.pack().unwrap();
    let mut run = run("r-1");
    run.spec.bundle_digest = packed.digest();
    run.spec.bundle_secrets = packed.count();
    let secrets = packed.secrets("net-abcd-1", "r-1");
    let names: Vec<_> = secrets
        .iter()
        .filter_map(|secret| secret.metadata.name.clone())
        .collect();
    assert_eq!(
        names,
        ["net-abcd-1-bundle", "net-abcd-1-bundle-1", "net-abcd-1-bundle-2"]
    );
    assert_eq!(secret_names(&run).collect::<Vec<_>>(), names);
    assert_eq!(Bundle::from_secrets(&secrets, &run).unwrap(), large);
    assert_eq!(bundle().pack().unwrap().count(), 1);
    assert_eq!(secret_names(&self::run("r-1")).count(), 1);

    let refused =
        |secrets: &[Secret], run: &TerraformRun| Bundle::from_secrets(secrets, run).unwrap_err().to_string();
    assert!(refused(&secrets[..2], &run).contains("net-abcd-1-bundle-2 has no run bundle"));
    for index in 0..3 {
        let mut forged = secrets.clone();
        forged[index].data.as_mut().unwrap().get_mut("bundle").unwrap().0[7] ^= 1;
        assert!(refused(&forged, &run).contains("is not the bundle of this run"));
        let mut foreign = secrets.clone();
        foreign[index].metadata.owner_references = None;
        assert!(refused(&foreign, &run).contains(&format!("{} is not the bundle", names[index])));
    }
    let swapped = [secrets[1].clone(), secrets[0].clone(), secrets[2].clone()];
    assert!(refused(&swapped, &run).contains("is not the bundle"));
    run.spec.bundle_secrets = i64::MAX;
    assert_eq!(
        secret_names(&run).count(),
        LIMIT.div_ceil(CHUNK_SIZE),
        "and no more are read"
    );
}

#[test]
fn foreign_forms_are_refused() {
    let mut value = serde_json::to_value(bundle()).unwrap();
    value["surprise"] = 1.into();
    assert!(matches!(
        Bundle::decode(value.to_string().as_bytes()),
        Err(BundleError::Malformed { .. })
    ));
    value["version"] = 2.into();
    assert!(matches!(
        Bundle::decode(value.to_string().as_bytes()),
        Err(BundleError::Version { version: 2 })
    ));
    let mut short = bundle();
    short.key = "ab".into();
    assert!(matches!(
        Bundle::decode(short.encode().unwrap().as_bytes()),
        Err(BundleError::InvalidKey)
    ));
    let mut large = bundle();
    large.variables = "x".repeat(LIMIT);
    let refused = large.encode().unwrap_err().to_string();
    assert!(refused.contains("more than the limit of 16777216"), "{refused}");
    assert!(matches!(
        of_run(&Secret::default(), &run("r-1")),
        Err(BundleError::Missing { .. })
    ));
}

#[test]
fn nothing_secret_is_printed() {
    assert!(!format!("{:?}", bundle()).contains("hunter2"));
    let text = r#"{"version":1,"variables":"hunter2""#;
    let error = Bundle::decode(text.as_bytes()).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

proptest! {
    #[test]
    fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Bundle::decode(&bytes).is_err());
    }
}

#[test]
fn a_state_check_of_an_earlier_form_is_read() {
    let mut stored = serde_json::to_value(bundle()).unwrap();
    stored["stateCheck"] = serde_json::json!({ "location": { "workspace": "default" },
        "secret": { "name": "tfstate-default-net", "labels": { "team": "network" } } });
    let read: Bundle = serde_json::from_value(stored).unwrap();
    assert_eq!(read.state_check.location["workspace"], "default");
    assert_eq!(read.state_check.secrets, None);
    let written = serde_json::to_value(&read).unwrap();
    assert_eq!(
        written["stateCheck"],
        serde_json::json!({ "location": { "workspace": "default" } })
    );
}
