use proptest::prelude::*;
use serde_json::json;

use super::*;

fn redactor(values: &[&str]) -> Redactor {
    let mut secrets = Redactor::default();
    for value in values {
        secrets.add_text(value);
    }
    secrets
}

#[test]
fn values_are_removed_completely_and_short_ones_stay() {
    let secrets = redactor(&["hunter2", "hunter2-and-more", "true", "a\\b\"c-d"]);
    assert_eq!(
        secrets.redact("x hunter2-and-more, hunter2; true"),
        "x (sensitive), (sensitive); true"
    );
    assert_eq!(secrets.redact(r#"{"k":"a\\b\"c-d"}"#), r#"{"k":"(sensitive)"}"#);
    assert_eq!(secrets.redact("nothing"), "nothing");
    assert_eq!(format!("{secrets:?}"), "Redactor(4)");
    let mut value = json!({ "a": ["<hunter2>", 1_234_567, 12], "b": null });
    let mut secrets = secrets;
    secrets.add_json(&json!(1_234_567));
    secrets.redact_json(&mut value);
    assert_eq!(
        value,
        json!({ "a": ["<(sensitive)>", "(sensitive)", 12], "b": null })
    );
}

#[test]
fn wrapped_values_are_found_and_long_ones_removed_completely() {
    let secrets = redactor(&["my long secret phrase"]);
    for text in [
        "x my long\n  secret phrase y",
        "x my long\n\u{2502} secret  phrase y",
    ] {
        assert_eq!(secrets.redact(text), "x (sensitive) y");
    }
    assert_eq!(secrets.redact("my long secret"), "my long secret");
    let long = "k".repeat(3 * PATTERN_LIMIT);
    assert_eq!(
        redactor(&[&long]).redact(&format!("bad token {long} given")),
        "bad token (sensitive) given"
    );
}

#[test]
fn a_file_is_cleaned_of_a_value_that_the_cli_broke_into_lines() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("apply.err");
    let secrets = redactor(&["my long secret phrase"]);
    let rest = "what else is said, line by line\n".repeat(2 * BLOCK / 16);
    for front in ["", rest.as_str()] {
        std::fs::write(
            &file,
            format!("{front}\nError: no\n\nbad: my long\n\u{2502} secret phrase given\n"),
        )
        .unwrap();
        secrets.redact_file(&file).unwrap();
        let left = std::fs::read_to_string(&file).unwrap();
        assert!(
            left.ends_with("\nError: no\n\nbad: (sensitive) given\n"),
            "{}",
            &left[left.len() - 80..]
        );
        assert!(left.starts_with(front));
    }
    std::fs::write(&file, "nothing").unwrap();
    let before = std::fs::metadata(&file).unwrap().modified().unwrap();
    secrets.redact_file(&file).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), before);
}

#[test]
fn sensitive_values_are_collected_from_states_and_variable_names() {
    let mut secrets = Redactor::default();
    secrets.add_state(&json!({ "values": {
        "outputs": { "o": { "sensitive": true, "value": "output-value" }, "p": { "sensitive": false, "value": "open-output" } },
        "root_module": { "resources": [{ "values": { "a": "attribute-one", "b": "open-value" }, "sensitive_values": { "a": true } }],
            "child_modules": [{ "resources": [{ "values": { "l": ["open-text", "inner-value"] },
                "sensitive_values": { "l": [false, true] } }] }] } } }));
    secrets.add_environment(&BTreeMap::from(
        [
            ("AWS_SECRET_ACCESS_KEY", "access-key-value"),
            ("TF_TOKEN_app_terraform_io", "token-value"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token"),
            ("AWS_REGION", "eu-central-1"),
            ("KEYBOARD", "qwertz-layout"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned())),
    ));
    assert_eq!(
        secrets.values(),
        [
            "access-key-value",
            "attribute-one",
            "inner-value",
            "output-value",
            "token-value"
        ]
    );
}

#[test]
fn values_of_secret_names_in_a_configuration_are_found() {
    let secrets = redactor(&[
        "credentials \"host\" {\n  token = \"token-value\"\n  region = \"eu-west-1\"\n}",
        "{\n  \"password\": \"json-value\",\n  \"user\": \"somebody\"\n}",
        "secret_key: yaml-value",
    ]);
    assert_eq!(
        secrets.redact("token-value json-value yaml-value eu-west-1 somebody"),
        "(sensitive) (sensitive) (sensitive) eu-west-1 somebody"
    );
}

#[test]
fn lines_are_found_by_themselves_and_indented() {
    let key = "-----BEGIN KEY-----\n  abcdefgh\n-----END KEY-----\n";
    let shown = redactor(&[key])
        .redact("| 1: -----BEGIN KEY-----\n|    abcdefgh\n")
        .into_owned();
    assert_eq!(shown, "| 1: (sensitive)\n|    (sensitive)\n");
}

#[test]
fn sensitive_values_are_collected_from_a_plan() {
    let plan: PlanDocument = serde_json::from_value(json!({
        "resource_changes": [{ "address": "a.b", "type": "a", "change": { "actions": ["update"],
            "before": { "p": "old-password", "q": "open-value" }, "before_sensitive": { "p": true },
            "after": { "p": "new-password", "l": ["plain-text", "hidden-text"] },
            "after_sensitive": { "p": true, "l": [false, true] } } }],
        "output_changes": { "o": { "actions": ["create"], "after": { "k": "output-value" }, "after_sensitive": true } },
        "variables": { "token": { "value": "token-value" }, "region": { "value": "eu-west-1" } },
        "configuration": { "root_module": { "variables": { "token": { "sensitive": true }, "region": {} } } },
    }))
    .unwrap();
    let mut secrets = Redactor::default();
    secrets.add_plan(&plan);
    assert_eq!(
        secrets.values(),
        [
            "hidden-text",
            "new-password",
            "old-password",
            "output-value",
            "token-value"
        ]
    );
}

#[test]
fn a_file_is_redacted_in_place_and_unchanged_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    std::fs::write(&file, b"a hunter2\n\xff\nb hunter2").unwrap();
    redactor(&["hunter2"]).redact_file(&file).unwrap();
    assert_eq!(
        std::fs::read(&file).unwrap(),
        b"a (sensitive)\n\xff\nb (sensitive)"
    );
    let before = std::fs::metadata(&file).unwrap().modified().unwrap();
    redactor(&["hunter2"]).redact_file(&file).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn with_too_many_values_output_is_hidden_and_files_are_removed() {
    let mut secrets = Redactor::default();
    secrets.extend((0..VALUE_LIMIT).map(|number| format!("value-{number:06}")));
    assert_eq!(secrets.redact("a value-000000"), "a (sensitive)");
    let short = "zz-9999".to_owned();
    secrets.extend([short.clone()]);
    assert!(secrets.is_incomplete());
    // Callers that compare for a change must see one.
    let shown = secrets.redact(&short);
    assert!(
        matches!(&shown, Cow::Owned(text) if text == SUPPRESSED),
        "{shown}"
    );
    assert_eq!(secrets.redact(""), "");
    let mut value = json!({ "text": short, "list": [1_234_567, true] });
    secrets.redact_json(&mut value);
    assert_eq!(value, json!({ "text": SUPPRESSED, "list": [REDACTED, true] }));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    std::fs::write(&file, &short).unwrap();
    secrets.redact_file(&file).unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), b"");
}

#[test]
fn a_value_is_found_in_the_json_notation_of_the_cli() {
    let secrets = redactor(&["pass<word>&more"]);
    let text = r#"{"a":"pass\u003cword\u003e\u0026more"} pass<word>&more"#;
    assert_eq!(secrets.redact(text), r#"{"a":"(sensitive)"} (sensitive)"#);
}

proptest! {
    #[test]
    fn known_secrets_never_appear(
        values in proptest::collection::vec("\\PC{6,20}", 1..5),
        around in "\\PC{0,10}",
    ) {
        let secrets = redactor(&values.iter().map(String::as_str).collect::<Vec<_>>());
        for value in &values {
            let shown = secrets.redact(&format!("{around}{value}{around}")).into_owned();
            let whole = value.trim();
            prop_assert!(whole.len() < MIN_LENGTH || REDACTED.contains(whole) || !shown.contains(whole) , "{shown}");
        }
    }
}
