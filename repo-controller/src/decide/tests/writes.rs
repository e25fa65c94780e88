//! The writes of the objects that a `Repo` owns.

use kube::api::DynamicObject;

use super::*;

#[test]
fn only_the_approval_of_the_plan_that_waits_is_copied() {
    for (approval, approve, current, pending, expected) in [
        ("Auto", "", "", "", "auto"),
        ("Auto", PLAN, PLAN, PLAN, "auto"),
        ("Manual", "", "auto", "", ""),
        ("Manual", "", "", PLAN, ""),
        ("Manual", PLAN, "", PLAN, PLAN),
        ("Manual", "plan-old", "", PLAN, ""),
        // A user has approved the plan in the Terraform object.
        ("Manual", "", PLAN, PLAN, PLAN),
        ("Manual", "plan-old", PLAN, PLAN, PLAN),
        ("Manual", PLAN, PLAN, "", PLAN),
        ("Manual", PLAN, "auto", "", ""),
        ("Manual", "auto", "", PLAN, ""),
    ] {
        let repo = repo(&json!({ "approval": approval, "approvePlan": approve }));
        let found = children::approve_plan(&repo, Some(&manual_stack(current, pending)));
        assert_eq!(found, expected, "{approval} {approve:?} {current:?} {pending:?}");
    }
    let manual = repo(&json!({ "approval": "Manual", "approvePlan": PLAN }));
    assert_eq!(children::approve_plan(&manual, None), "");
}

fn created(write: Option<ChildWrite>) -> DynamicObject {
    match write {
        Some(ChildWrite::Create(object)) => *object,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_repo_gets_a_source_and_a_stack_that_it_owns() {
    let decision = decide(&repo(&json!({})), &Observed::default());
    let [source, stack] = [decision.source, decision.stack].map(|write| {
        let object = created(write);
        let owner = &object.owner_references()[0];
        assert_eq!(
            (&*owner.uid, owner.controller, owner.block_owner_deletion),
            ("repo", Some(true), None)
        );
        assert_eq!(object.name_any(), "app");
        assert_eq!(object.namespace().as_deref(), Some("team"));
        object.data["spec"].clone()
    });
    assert_eq!(
        source,
        json!({ "url": URL, "interval": "30s", "ref": { "branch": "master" } })
    );
    assert_eq!(
        stack,
        json!({ "approvePlan": "auto", "interval": "1h", "disableDriftDetection": true, "workspace": "default",
            "remediation": { "retries": 0 }, "sourceRef": { "kind": "GitRepository", "name": "app" } })
    );
    let other = json!({ "approval": "Manual", "workspace": "production", "branch": "main" });
    let decision = decide(&repo(&other), &Observed::default());
    let stack = created(decision.stack).data["spec"].clone();
    assert_eq!(stack["approvePlan"], Value::Null);
    assert_eq!(
        (&stack["workspace"], &stack["tfVarsFiles"]),
        (&json!("production"), &json!(["production.tfvars"]))
    );
    assert_eq!(
        created(decision.source).data["spec"]["ref"],
        json!({ "branch": "main" })
    );
}

#[test]
fn fields_of_users_stay() {
    let source = source(
        A,
        &json!({ "spec": { "interval": "5m", "secretRef": { "name": "git" }, "ref": { "tag": "v1" } } }),
    );
    let stack = stack(
        &json!({ "spec": { "vars": [{ "name": "a", "value": 1 }], "disableDriftDetection": false,
        "remediation": { "retries": 3 }, "deletionPolicy": "Destroy" } }),
    );
    let observed = Observed {
        source: Some(source),
        stack: Some(stack),
        run: None,
    };
    let decision = decide(&repo(&json!({})), &observed);
    assert_eq!(decision.stack, None);
    // Another reference would win over the branch.
    let Some(ChildWrite::Patch(body)) = decision.source else {
        panic!("{decision:?}")
    };
    assert_eq!(
        body,
        json!({ "metadata": { "resourceVersion": "7" }, "spec": { "ref": { "tag": null } } })
    );
}

#[test]
fn an_object_of_another_owner_is_never_written() {
    let foreign = json!({ "metadata": { "labels": null, "ownerReferences": null } });
    let other = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "Repo", "name": "app",
        "uid": "other", "controller": true }] } });
    for change in [&foreign, &other] {
        for is_source in [true, false] {
            let nothing = &json!({});
            let (of_source, of_stack) = if is_source {
                (change, nothing)
            } else {
                (nothing, change)
            };
            let observed = Observed {
                source: Some(source(A, of_source)),
                stack: Some(stack(of_stack)),
                run: Some(run(A, 5, &json!({ "phase": "Succeeded" }))),
            };
            let edited = repo(&json!({ "url": "https://git.example.com/other.git", "workspace": "x" }));
            let decision = decide(&edited, &observed);
            assert_eq!((&decision.source, &decision.stack), (&None, &None), "{change}");
            let kind = if is_source { "GitRepository" } else { "Terraform" };
            let expected = format!("{kind} \"app\" already exists and is not managed by Repo. ");
            assert!(
                decision.ready.message.starts_with(&expected),
                "{}",
                decision.ready.message
            );
            assert_eq!(
                row(&edited, &observed),
                "- New -, False ErrResourceExists",
                "{change}"
            );
        }
    }
}

#[test]
fn an_object_without_an_owner_that_has_the_label_is_taken_over() {
    let released = json!({ "metadata": { "ownerReferences": null } });
    let observed = Observed {
        source: Some(source(A, &released)),
        stack: Some(stack(&released)),
        run: None,
    };
    let decision = decide(&repo(&json!({})), &observed);
    for write in [decision.source, decision.stack] {
        let Some(ChildWrite::Patch(body)) = write else {
            panic!("{write:?}")
        };
        assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "repo", "{body}");
        assert_eq!(body["spec"], Value::Null);
    }
}

#[test]
fn a_reconcile_request_is_passed_on_once() {
    let request = |annotations: &Value, handled: &str| {
        let mut repo = repo(&json!({}));
        repo.annotations_mut()
            .insert("reconcile.fluxcd.io/requestedAt".to_owned(), "now".to_owned());
        handled.clone_into(&mut repo.status.as_mut().unwrap().last_handled_reconcile_at);
        let annotated = json!({ "metadata": { "annotations": annotations } });
        let observed = Observed {
            source: Some(source(A, &annotated)),
            stack: Some(stack(&annotated)),
            run: None,
        };
        let decision = decide(&repo, &observed);
        let writes = [decision.source, decision.stack].into_iter().flatten().count();
        (writes, decision.status.last_handled_reconcile_at)
    };
    let key = "reconcile.fluxcd.io/requestedAt";
    assert_eq!(request(&Value::Null, ""), (2, String::new()));
    assert_eq!(request(&json!({ key: "now" }), ""), (0, "now".to_owned()));
    // A user has made another request of the objects since.
    assert_eq!(request(&json!({ key: "later" }), "now"), (0, "now".to_owned()));
}
