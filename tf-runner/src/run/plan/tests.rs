//! The arguments of `plan`, and reads of plan files: bounded, and redacted.

use std::io::ErrorKind;

use super::*;

#[test]
fn options_reach_the_plan() {
    let plan = Some(Path::new("tfplan"));
    assert_eq!(
        plan_arguments(plan, false, &[], &Options::default()).join(" "),
        "plan -no-color -input=false -detailed-exitcode -lock-timeout=0s -out=tfplan -lock=true -parallelism=10 -refresh=true"
    );
    let options = Options {
        targets: vec!["a.b".into(), "c.d".into()],
        lock_timeout: "30s".into(),
        plan_lock: false,
        parallelism: 3,
        ..Options::default()
    };
    let variables = ["-var-file=/w/x.tfvars".to_owned()];
    assert_eq!(
        plan_arguments(plan, true, &variables, &options).join(" "),
        "plan -no-color -input=false -detailed-exitcode -lock-timeout=30s -out=tfplan -var-file=/w/x.tfvars -lock=false \
         -parallelism=10 -refresh=true -destroy -target=a.b -target=c.d"
    );
    let unsaved = plan_arguments(None, false, &variables, &options).join(" ");
    assert!(
        !unsaved.contains("-out") && unsaved.contains("-target=a.b"),
        "{unsaved}"
    );
}

/// A sparse file of this size.
fn sparse(folder: &Path, size: u64) -> PathBuf {
    let path = folder.join("file");
    File::create(&path).unwrap().set_len(size).unwrap();
    path
}

#[test]
fn a_plan_file_above_the_size_limit_is_rejected_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let limit = PLAN_LIMIT as u64;
    // The last is larger than any memory.
    for size in [limit + 1, 1 << 42] {
        let Err(error) = read_plan_file(&sparse(dir.path(), size)) else {
            panic!("{size} bytes are read");
        };
        assert!(
            matches!(error, RunError::StorePlan(StoreError::TooLarge { .. })),
            "{error:?}"
        );
        assert_eq!(
            error.to_string(),
            format!(
                "error saving plan secret: the plan has {size} bytes, more than the limit of 41943040: split the \
                 stack into smaller ones, or plan it in parts with targets"
            )
        );
    }
    assert_eq!(
        read_plan_file(&sparse(dir.path(), limit)).unwrap().len(),
        PLAN_LIMIT
    );
}

#[test]
fn stored_json_is_bounded_and_redacted() {
    let dir = tempfile::tempdir().unwrap();
    let mut secrets = Redactor::default();
    secrets.add_text("hunter2-hunter2");
    for size in [READABLE_JSON_LIMIT + 1, 1 << 42] {
        let error = redacted_json(&sparse(dir.path(), size), &secrets).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}");
        assert!(error.to_string().contains("67108864"), "{error}");
    }
    let json = dir.path().join("plan.json");
    std::fs::write(&json, r#"{"variables":{"p":{"value":"hunter2-hunter2"}}}"#).unwrap();
    assert_eq!(
        redacted_json(&json, &secrets).unwrap(),
        br#"{"variables":{"p":{"value":"(sensitive)"}}}"#
    );
}

#[test]
fn a_truncated_text_ends_with_a_whole_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out");
    std::fs::write(&file, "one\ntwo hunter2\n").unwrap();
    for (limit, expected) in [
        (100, "one\ntwo hunter2\n"),
        (16, "one\ntwo hunter2\n"),
        (15, "one"),
        (3, ""),
    ] {
        assert_eq!(read_text(&file, limit).unwrap(), expected, "{limit}");
    }
}
