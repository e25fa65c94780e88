//! The row of a `Repo`, by what exists.

use super::*;

#[test]
fn the_row_follows_the_run_of_the_present_commit_and_spec() {
    let row_of = |status: &Value| {
        let run = Some(run(A, 5, status));
        let (source, stack) = (Some(source(A, &json!({}))), Some(stack(&json!({}))));
        row(&repo(&json!({})), &Observed { source, stack, run })
    };
    for (status, expected) in [
        (Value::Null, "a Pending run, Unknown Pending"),
        (json!({ "phase": "Pending" }), "a Pending run, Unknown Pending"),
        (json!({ "phase": "Claimed" }), "a Running run, Unknown Running"),
        (json!({ "phase": "Planning" }), "a Running run, Unknown Running"),
        (json!({ "phase": "Applying" }), "a Running run, Unknown Running"),
        (
            json!({ "phase": "Succeeded", "hasChanges": true, "attemptedApply": true }),
            "a Completed run, True Completed",
        ),
        (
            json!({ "phase": "Succeeded", "hasChanges": false }),
            "a Completed run, True Completed",
        ),
        (
            json!({ "phase": "Failed", "message": "no" }),
            "a Failed run, False Failed",
        ),
        (json!({ "phase": "Lost" }), "a Failed run, False Failed"),
        (json!({ "phase": "Superseded" }), "a New -, Unknown New"),
    ] {
        assert_eq!(row_of(&status), expected, "{status}");
    }
}

#[test]
fn job_and_log_of_the_run_are_named() {
    let run = run(
        A,
        5,
        &json!({ "phase": "Failed", "jobName": "job", "logSecret": "app-stack-9-log", "message": "no such file" }),
    );
    let observed = Observed {
        source: Some(source(A, &json!({}))),
        stack: Some(stack(&json!({}))),
        run: Some(run),
    };
    let Decision { status, ready, .. } = decide(&repo(&json!({})), &observed);
    assert_eq!(
        serde_json::to_value(&status).unwrap(),
        json!({ "gitSHA": A, "runJobName": "job", "runName": "app-stack-9", "runStatus": "Failed",
            "logSecret": "app-stack-9-log", "observedGeneration": 2, "observedSource": format!("master {URL}") })
    );
    assert_eq!(ready.message, "no such file");
}

#[test]
fn without_a_run_the_row_is_new_until_the_controller_finds_that_none_is_due() {
    let fresh = || Some(source(A, &json!({})));
    let row_of = |source, stack| {
        let run = None;
        row(&repo(&json!({})), &Observed { source, stack, run })
    };
    assert_eq!(row_of(None, None), "- New -, Unknown New");
    assert_eq!(row_of(fresh(), None), "a New -, Unknown New");
    assert_eq!(row_of(fresh(), Some(stack(&json!({})))), "a New -, Unknown New");
    let no_artifact = source(A, &json!({ "status": null }));
    assert_eq!(row_of(Some(no_artifact), None), "- New -, Unknown New");
    let ready = json!([condition("Ready", "True", "TerraformPlannedNoChanges", "x")]);
    let stalled = json!([
        condition("Ready", "False", "TFExecPlanFailed", "x"),
        condition("Stalled", "True", "RetryLimitReached", "x")
    ]);
    let failing = json!([condition("Ready", "False", "VarsGenerationFailed", "no Secret")]);
    for (commit, conditions, expected) in [
        (A, &ready, "a Completed -, True Completed"),
        (A, &stalled, "a Failed -, False Failed"),
        (A, &failing, "a New -, Unknown New"),
        (B, &ready, "a New -, Unknown New"),
    ] {
        let stack = stack(&settled(commit, conditions));
        assert_eq!(row_of(fresh(), Some(stack)), expected, "{conditions}");
    }
}

#[test]
fn an_edit_begins_a_new_row() {
    let old = || Some(run(A, 5, &json!({ "phase": "Succeeded" })));
    let row_of = |spec: &Value, source, stack| {
        let (mut repo, run) = (repo(spec), old());
        repo.status.as_mut().unwrap().observed_generation = Some(1);
        let (source, stack) = (Some(source), Some(stack));
        row(&repo, &Observed { source, stack, run })
    };
    let (fresh, applied) = (|| source(A, &json!({})), || stack(&json!({})));
    // Of the URL or the branch: until the artifact is that of the new one.
    for edit in [
        json!({ "url": "https://git.example.com/other.git" }),
        json!({ "branch": "main" }),
    ] {
        assert_eq!(
            row_of(&edit, fresh(), applied()),
            "- New -, Unknown New",
            "{edit}"
        );
        let url = edit.get("url").map_or(URL, |url| url.as_str().unwrap());
        let branch = edit
            .get("branch")
            .map_or("master", |branch| branch.as_str().unwrap());
        let patched =
            json!({ "metadata": { "generation": 4 }, "spec": { "url": url, "ref": { "branch": branch } } });
        let patched = source(A, &patched);
        assert_eq!(
            row_of(&edit, patched.clone(), applied()),
            "- New -, Unknown New",
            "{edit}"
        );
        let mut read = serde_json::to_value(patched).unwrap();
        read["status"]["observedGeneration"] = json!(4);
        read["status"]["artifact"]["revision"] = json!(revision(B));
        assert_eq!(
            row_of(&edit, typed(read), applied()),
            "b New -, Unknown New",
            "{edit}"
        );
    }
    // Of the workspace: until the run of the new one.
    let edit = json!({ "workspace": "production" });
    assert_eq!(row_of(&edit, fresh(), applied()), "a New -, Unknown New");
    let patched = json!({ "metadata": { "generation": 6 }, "spec": { "workspace": "production",
        "tfVarsFiles": ["production.tfvars"] } });
    assert_eq!(row_of(&edit, fresh(), stack(&patched)), "a New -, Unknown New");
}

#[test]
fn while_the_branch_is_read_again_the_row_stays() {
    let run = || Some(run(A, 5, &json!({ "phase": "Succeeded" })));
    let of = |ready: &str, known: &str| {
        let source = source(
            A,
            &json!({ "status": { "conditions": [condition("Ready", ready, "x", "no route")] } }),
        );
        let mut repo = repo(&json!({}));
        known.clone_into(&mut repo.status.as_mut().unwrap().git_sha);
        let stack = Some(stack(&json!({})));
        let (source, run) = (Some(source), run());
        row(&repo, &Observed { source, stack, run })
    };
    assert_eq!(of("Unknown", A), "a Completed run, True Completed");
    assert_eq!(of("False", A), "a Completed run, False SourceFailed");
    assert_eq!(of("Unknown", B), "- New -, Unknown New");
    assert_eq!(of("False", ""), "- New -, False SourceFailed");
}

#[test]
fn an_edit_while_the_branch_cannot_be_read_keeps_the_commit() {
    let unread = json!({ "status": { "conditions": [condition("Ready", "False", "x", "no route")] } });
    let observed = Observed {
        source: Some(source(A, &unread)),
        stack: Some(manual_stack("", PLAN)),
        run: Some(run(
            A,
            5,
            &json!({ "phase": "Succeeded", "hasChanges": true, "planId": PLAN }),
        )),
    };
    // An approval: the status is of the generation before.
    let mut approved = repo(&json!({ "approval": "Manual", "approvePlan": PLAN }));
    approved.metadata.generation = Some(3);
    assert_eq!(row(&approved, &observed), "a Pending run, False SourceFailed");
    // Of another branch or URL, nothing is known.
    for edit in [
        json!({ "branch": "main" }),
        json!({ "url": "https://git.example.com/other.git" }),
    ] {
        let mut edited = repo(&edit);
        edited.metadata.generation = Some(3);
        let fields = json!({ "spec": { "url": edited.spec.url, "ref": { "branch": edited.spec.branch } } });
        let mut unread = serde_json::to_value(&observed.source).unwrap();
        merge(&mut unread, &fields);
        let observed = Observed {
            source: Some(typed(unread)),
            ..observed.clone()
        };
        assert_eq!(row(&edited, &observed), "- New -, False SourceFailed", "{edit}");
    }
}

#[test]
fn another_secret_for_the_same_branch_keeps_the_row() {
    let run = Some(run(A, 5, &json!({ "phase": "Succeeded" })));
    let observed = Observed {
        source: Some(source(A, &json!({}))),
        stack: Some(stack(&json!({}))),
        run,
    };
    let edited = repo(&json!({ "secretRef": { "name": "git" } }));
    assert_eq!(row(&edited, &observed), "a Completed run, True Completed");
    assert!(
        decide(&edited, &observed).source.is_some(),
        "the Secret is written"
    );
}

#[test]
fn a_plan_waits_for_its_approval_and_then_for_its_apply() {
    let planned = json!({ "phase": "Succeeded", "hasChanges": true, "planId": PLAN });
    let row_of = |approve: &str, stack: Terraform| {
        let repo = repo(&json!({ "approval": "Manual", "approvePlan": approve }));
        let (source, run) = (Some(source(A, &json!({}))), Some(run(A, 5, &planned)));
        let stack = Some(stack);
        let observed = Observed { source, stack, run };
        let decision = decide(&repo, &observed);
        (
            row(&repo, &observed),
            decision.status.pending_plan,
            decision.stack,
        )
    };
    let waiting = "a Pending run, Unknown ApprovalRequired";
    let (shown, pending, write) = row_of("", manual_stack("", PLAN));
    assert_eq!((&*shown, &*pending, write), (waiting, PLAN, None));
    // The approval is written into the stack, whose generation it raises.
    let (shown, _, write) = row_of(PLAN, manual_stack("", PLAN));
    let approved = "a Pending run, Unknown Pending";
    assert_eq!(shown, approved);
    let Some(ChildWrite::Patch(body)) = write else {
        panic!("{write:?}")
    };
    assert_eq!(body["spec"], json!({ "approvePlan": PLAN }));
    let mut stack = manual_stack(PLAN, PLAN);
    stack.metadata.generation = Some(6);
    let (shown, _, write) = row_of(PLAN, stack);
    assert_eq!((&*shown, write), (approved, None));
}
