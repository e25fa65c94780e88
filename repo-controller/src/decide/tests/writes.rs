//! The writes of the objects that a `Repo` owns.

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
fn the_url_may_have_the_short_form_of_ssh() {
    for (url, expected) in [
        (
            "git@github.com:owner/repo.git",
            "ssh://git@github.com/owner/repo.git",
        ),
        (
            "ssh://git@github.com/owner/repo.git",
            "ssh://git@github.com/owner/repo.git",
        ),
        // The API server refuses it.
        ("ftp://git.example.com/app.git", "ftp://git.example.com/app.git"),
    ] {
        let repo = repo(&json!({ "url": url }));
        let spec = created(decide(&repo, &Observed::default()).source).data["spec"].clone();
        assert_eq!(spec["url"], expected);
        let observed = Observed {
            source: Some(source(A, &json!({ "spec": { "url": expected } }))),
            ..Observed::default()
        };
        assert_eq!(decide(&repo, &observed).source, None, "{url} is written once");
    }
}

#[test]
fn a_secret_that_the_repo_names_is_that_of_the_source() {
    let private = repo(&json!({ "secretRef": { "name": "deploy-key" } }));
    let spec = created(decide(&private, &Observed::default()).source).data["spec"].clone();
    assert_eq!(spec["secretRef"], json!({ "name": "deploy-key" }));
    let of_user = || source(A, &json!({ "spec": { "secretRef": { "name": "of-user" } } }));
    let write = |repo: &Repo| {
        let source = Some(of_user());
        decide(
            repo,
            &Observed {
                source,
                ..Observed::default()
            },
        )
        .source
    };
    let Some(ChildWrite::Patch(body)) = write(&private) else {
        panic!("it is set")
    };
    assert_eq!(body["spec"], json!({ "secretRef": { "name": "deploy-key" } }));
    assert_eq!(write(&repo(&json!({}))), None);
}

#[test]
fn a_secret_that_the_repo_names_no_more_is_removed() {
    let key = "infra.sluice.dev/repo-secret";
    let private = repo(&json!({ "secretRef": { "name": "deploy-key" } }));
    let object = created(decide(&private, &Observed::default()).source);
    assert_eq!(object.annotations()[key], "deploy-key");
    let url = "https://public.example.com/app.git";
    let write = |repo: &Repo, annotations: Value, secret: &str| {
        let change = json!({ "metadata": { "annotations": annotations }, "spec": { "secretRef": { "name": secret } } });
        let source = Some(source(A, &change));
        let observed = Observed {
            source,
            ..Observed::default()
        };
        match decide(repo, &observed).source {
            Some(ChildWrite::Patch(body)) => (body["metadata"]["annotations"].clone(), body["spec"].clone()),
            other => panic!("{other:?}"),
        }
    };
    let public = repo(&json!({ "url": url }));
    let removed = (json!({ key: null }), json!({ "url": url, "secretRef": null }));
    assert_eq!(
        write(&public, json!({ key: "deploy-key" }), "deploy-key"),
        removed
    );
    // A user has set another one since.
    let kept = (json!({ key: null }), json!({ "url": url }));
    assert_eq!(write(&public, json!({ key: "deploy-key" }), "of-user"), kept);
    // Of an earlier version, which recorded no name.
    let recorded = (json!({ key: "deploy-key" }), Value::Null);
    assert_eq!(write(&private, Value::Null, "deploy-key"), recorded);
}

#[test]
fn an_existing_stack_learns_first_that_plans_need_an_approval() {
    let order = |approval: &str, stack: Option<Terraform>| {
        let edited = repo(&json!({ "approval": approval, "url": "https://git.example.com/other.git" }));
        let source = Some(source(A, &json!({})));
        let decision = decide(
            &edited,
            &Observed {
                source,
                stack,
                run: None,
            },
        );
        assert!(decision.source.is_some());
        (decision.order, decision.stack)
    };
    let (manual, write) = order("Manual", Some(stack(&json!({}))));
    assert_eq!(manual, [Child::Stack, Child::Source]);
    let Some(ChildWrite::Patch(body)) = write else {
        panic!("{write:?}")
    };
    assert_eq!(body["spec"], json!({ "approvePlan": null }));
    let source_first = [Child::Source, Child::Stack];
    assert_eq!(order("Auto", Some(stack(&json!({})))).0, source_first);
    assert_eq!(order("Manual", None).0, source_first);
}

#[test]
fn an_edit_of_url_and_workspace_applies_no_module_in_the_wrong_workspace() {
    let approval_of = |decision: &Decision| match &decision.stack {
        Some(ChildWrite::Patch(body)) => body["spec"].get("approvePlan").cloned(),
        _ => None,
    };
    let url = "https://git.example.com/other.git";
    let edited = repo(&json!({ "url": url, "workspace": "production" }));
    let mut observed = Observed {
        source: Some(source(A, &json!({}))),
        stack: Some(stack(&json!({}))),
        run: None,
    };
    let first = decide(&edited, &observed);
    assert_eq!(first.order, [Child::Stack, Child::Source]);
    assert_eq!(approval_of(&first), Some(Value::Null));
    // Until the artifact is that of the new URL.
    let moved = json!({ "spec": { "workspace": "production", "tfVarsFiles": ["production.tfvars"], "approvePlan": null } });
    observed.stack = Some(stack(&moved));
    let unread = json!({ "metadata": { "generation": 4 }, "spec": { "url": url } });
    for source in [source(A, &json!({})), source(A, &unread)] {
        observed.source = Some(source);
        assert_eq!(approval_of(&decide(&edited, &observed)), None);
    }
    let read = json!({ "metadata": { "generation": 4 }, "spec": { "url": url }, "status": { "observedGeneration": 4 } });
    observed.source = Some(source(B, &read));
    assert_eq!(approval_of(&decide(&edited, &observed)), Some(json!("auto")));
    // Of the workspace only, or of the URL only.
    for (spec, order) in [
        (
            json!({ "workspace": "production" }),
            [Child::Stack, Child::Source],
        ),
        (json!({ "url": url }), [Child::Source, Child::Stack]),
    ] {
        observed.source = Some(source(A, &json!({})));
        observed.stack = Some(stack(&json!({})));
        let decision = decide(&repo(&spec), &observed);
        assert_eq!((decision.order, approval_of(&decision)), (order, None), "{spec}");
    }
}

#[test]
fn a_foreign_source_does_not_keep_a_stack_automatic() {
    let foreign = json!({ "metadata": { "labels": null, "ownerReferences": null } });
    let stack_write = |approval: &str, of_stack: Terraform| {
        let edited = repo(&json!({ "approval": approval, "approvePlan": PLAN, "workspace": "other" }));
        let observed = Observed {
            source: Some(source(A, &foreign)),
            stack: Some(of_stack),
            run: None,
        };
        let decision = decide(&edited, &observed);
        assert_eq!(
            (decision.ready.reason.as_str(), decision.source),
            (NAME_TAKEN, None)
        );
        decision.stack
    };
    let withdrawn = json!({ "metadata": { "resourceVersion": "7" }, "spec": { "approvePlan": null } });
    assert_eq!(
        stack_write("Manual", stack(&json!({}))),
        Some(ChildWrite::Patch(withdrawn))
    );
    assert_eq!(stack_write("Manual", manual_stack("", PLAN)), None);
    assert_eq!(
        stack_write("Manual", stack(&foreign)),
        None,
        "another owner's stack"
    );
    assert_eq!(stack_write("Auto", stack(&json!({}))), None);
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
            let advice = "Create the Repo under another name";
            assert!(
                decision.ready.message.contains(advice),
                "{}",
                decision.ready.message
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
