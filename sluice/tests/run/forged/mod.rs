//! An attacker who may read, create and delete Secrets of the namespace, and nothing else. Replaced Secrets are never used, and the
//! run names them.

mod change;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use sluice_api::run::{Phase, TerraformRun};
use sluice_tf_core::bundle::{PlanKey, Stack, secret_name};
use sluice_tf_core::plan::store::{self, PlanName};
use sluice_tf_core::{chunk, last_applied};
use tokio_util::sync::CancellationToken;

use self::change::{Change, Moment, client_with_change, run_with};
use crate::break_glass::session;
use crate::committed_files::state;
use crate::environment::{NAMESPACE, RunSetup, STACK, TestEnvironment, assert_ending, ending, status};

const PLANNED_MODULE: &str = "resource \"terraform_data\" \"it\" { input = \"honest\" }\n";

/// Asserts that the run failed with these words before it selected a CLI.
fn assert_refused(run: &TerraformRun, case: &str, words: &[&str]) {
    let status = status(run);
    assert!(
        matches!(status.phase, Phase::Failed | Phase::Superseded),
        "{case}: {status:?}"
    );
    assert!(
        !status.attempted_apply && status.tool.is_none(),
        "{case}: {status:?}"
    );
    assert!(
        words.iter().any(|words| status.message.contains(words)),
        "{case}: {}",
        status.message
    );
}

async fn list_secrets(env: &TestEnvironment, label: &str) -> Vec<Secret> {
    let api: Api<Secret> = Api::namespaced(env.client(), NAMESPACE);
    api.list(&ListParams::default().labels(label))
        .await
        .unwrap()
        .items
}

/// Returns the Secret with another content.
fn with_content(secret: &Secret, key: &str, bytes: Vec<u8>) -> Secret {
    let mut other = secret.clone();
    other.data.as_mut().unwrap().get_mut(key).unwrap().0 = bytes;
    other
}

fn inputs() -> Value {
    json!({ "inputsDigest": "hmac-sha256:11" })
}

/// Returns what an attacker puts in place of the bundle.
fn replacements(what: &str, own: &Secret, older: &[u8]) -> Vec<Secret> {
    let mut bundle: Value = serde_json::from_slice(&own.data.as_ref().unwrap()["bundle"].0).unwrap();
    match what {
        "deleted" => vec![],
        "replayed" => vec![with_content(own, "bundle", older.to_vec())],
        "garbage" => vec![with_content(own, "bundle", b"{".to_vec())],
        "of another owner" => {
            let mut other = own.clone();
            "another".clone_into(&mut other.owner_references_mut()[0].uid);
            vec![other]
        }
        "forged" => {
            bundle["environment"] = json!({ "PATH": "/evil" });
            vec![with_content(own, "bundle", bundle.to_string().into_bytes())]
        }
        _ => {
            bundle["stack"] = json!({ "namespace": NAMESPACE, "name": "other", "uid": "other" });
            vec![with_content(own, "bundle", bundle.to_string().into_bytes())]
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_is_not_the_runs_own_is_never_used() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", PLANNED_MODULE)]);
    let api: Api<Secret> = Api::namespaced(env.client(), NAMESPACE);
    // The bundle of an earlier run with another action.
    let older = env
        .prepare(RunSetup::plan().with(json!({ "path": "older" })))
        .await;
    let older = api.get(&secret_name(&older)).await.unwrap().data.unwrap()["bundle"]
        .0
        .clone();
    for moment in [Moment::Claim, Moment::Load] {
        for what in [
            "deleted",
            "forged",
            "replayed",
            "swapped",
            "of another owner",
            "garbage",
        ] {
            let name = env.prepare(RunSetup::plan_and_apply().with(inputs())).await;
            let own = api.get(&secret_name(&name)).await.unwrap();
            let added = replacements(what, &own, &older);
            let change = Change::new(what, &[own], added);
            let mut context = env.context(&name);
            match moment {
                Moment::Load => context.client = client_with_change(&env, change),
                _ => change.make(env.client()).await,
            }
            env.execute_run(&name, context, CancellationToken::new()).await;
            let words = [
                format!("{name}-bundle is not the bundle"),
                format!("\"{name}-bundle\" not found"),
            ];
            let run = env.get(&name).await;
            assert_refused(&run, &format!("{moment:?} {what}"), &[&words[0], &words[1]]);
        }
    }
    let own = env.run(RunSetup::plan_and_apply().with(inputs())).await;
    assert_eq!(
        ending(&own),
        "Succeeded TerraformAppliedSucceed",
        "the runs could begin"
    );
}

/// Returns replacements of the Secrets of a plan by an attacker who knows the keys.
fn forgeries(
    plan: &[Secret],
    name: &PlanName,
    evil: (&[Secret], &PlanName),
    keys: &[PlanKey],
) -> Vec<Change> {
    let mut forged = store::decode(evil.0, evil.1, keys).unwrap();
    name.id
        .rsplit('-')
        .next()
        .unwrap()
        .clone_into(&mut forged.context.effect);
    let encoded = |key| store::encode(&forged, name, key).unwrap();
    let swapped = with_content_of(&plan[0], &evil.0[0]);
    // An equal plan of an earlier run, whose plan file differs in its time.
    let mut replayed = store::decode(plan, name, keys).unwrap();
    replayed.plan.push(0);
    let stolen = keys.first().cloned().unwrap_or_else(|| PlanKey {
        id: "mine".to_owned(),
        key: "02".repeat(32),
    });
    vec![
        Change::new("forged, or downgraded", plan, encoded(None)),
        Change::new("forged with the key", plan, encoded(Some(&stolen))),
        Change::new("swapped", plan, vec![swapped]),
        Change::new(
            "replayed",
            plan,
            store::encode(&replayed, name, keys.first()).unwrap(),
        ),
        Change::new("deleted", plan, vec![]),
    ]
}

/// Returns this Secret with content and annotations of another one.
fn with_content_of(secret: &Secret, other: &Secret) -> Secret {
    let mut swapped = secret.clone();
    swapped.data.clone_from(&other.data);
    for mark in [store::DIGEST, "infra.sluice.dev/plan-salt"] {
        if let Some(value) = other.annotations().get(mark) {
            swapped.annotations_mut().insert(mark.to_owned(), value.clone());
        }
    }
    swapped
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_not_the_recorded_one_is_never_applied() {
    for keys in [json!([]), json!([{ "id": "a", "key": "01".repeat(32) }])] {
        let env = TestEnvironment::new("").await;
        let evil = env.dir.path().join("evil");
        let bundle = json!({ "inputsDigest": "hmac-sha256:11", "planKeys": keys });
        let keys: Vec<PlanKey> = serde_json::from_value(keys).unwrap();
        let label = format!("infra.contrib.fluxcd.io/plan-name={STACK}");
        let plan = async |module: &str| {
            env.commit(&[("main.tf", module)]);
            let run = env.run(RunSetup::plan().with(bundle.clone())).await;
            let name = PlanName {
                stack: stack(&run),
                workspace: "default".to_owned(),
                id: status(&run).plan_id,
                run: run.name_any(),
            };
            (run, name, list_secrets(&env, &label).await)
        };
        let command = format!(
            "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{ command = \"touch {}\" }}\n}}\n",
            evil.display()
        );
        let (_, evil_name, evil_plan) = plan(&command).await;
        let (run, name, stored) = plan(PLANNED_MODULE).await;
        let changes = forgeries(&stored, &name, (&evil_plan, &evil_name), &keys);
        for change in &changes {
            for moment in [Moment::Approval, Moment::Claim, Moment::Load] {
                let apply = RunSetup::apply(&run).with(bundle.clone());
                let ended = run_with(&env, apply, moment, change.clone()).await;
                let case = format!("{moment:?} {} {}", change.what, keys.len());
                assert_refused(
                    &ended,
                    &case,
                    &["do not have the digest that run", "no plan secrets found"],
                );
                change.reversed().make(env.client()).await;
            }
        }
        // The forged plan would be applied if its digest were recorded.
        let mut apply = RunSetup::apply(&run).with(bundle.clone());
        let forged = &changes[usize::from(!keys.is_empty())];
        apply.plan.as_mut().unwrap().2 = store::digest_of(&forged.added);
        assert!(!evil.exists());
        let fooled = run_with(&env, apply, Moment::Claim, forged.clone()).await;
        assert_ending(&fooled, "Succeeded TerraformAppliedSucceed");
        assert!(evil.exists());
    }
}

fn stack(run: &TerraformRun) -> Stack {
    Stack {
        namespace: NAMESPACE.to_owned(),
        name: STACK.to_owned(),
        uid: run.spec.terraform.uid.clone(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_last_applied_record_destroys_nothing() {
    let key = PlanKey {
        id: "a".to_owned(),
        key: "01".repeat(32),
    };
    let sealed = json!({ "inputsDigest": "hmac-sha256:11", "planKeys": [key], "keepFiles": 1_000_000 });
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", PLANNED_MODULE)]);
    let run = env.run(RunSetup::plan_and_apply().with(sealed.clone())).await;
    assert_ending(&run, "Succeeded TerraformAppliedSucceed");
    let (name, digest) = (run.name_any(), status(&run).applied_digest);
    let stored = list_secrets(&env, &last_applied::selector(STACK)).await;
    let of = stack(&run);
    let mut forged = last_applied::decode(&stored, &of, &name, std::slice::from_ref(&key)).unwrap();
    forged.inputs.provider_lock = None;
    let encoded = |key| last_applied::encode(&forged, &name, key).unwrap();
    let destroy = || {
        let mut bundle = sealed.clone();
        bundle["kept"] = json!({ "run": name, "digest": digest });
        RunSetup {
            destroy: true,
            ..RunSetup::plan().with(bundle)
        }
    };
    for change in [
        Change::new("forged, and downgraded", &stored, encoded(None)),
        Change::new("forged with the key", &stored, encoded(Some(&key))),
        Change::new("deleted", &stored, vec![]),
    ] {
        for moment in [Moment::Claim, Moment::Load] {
            let ended = run_with(&env, destroy(), moment, change.clone()).await;
            let case = format!("{moment:?} {}", change.what);
            assert_refused(
                &ended,
                &case,
                &["do not have the recorded digest", "has no last applied record"],
            );
            change.reversed().make(env.client()).await;
        }
    }
    let planned = env.run(destroy()).await;
    assert_ending(&planned, "Succeeded TerraformPlannedWithChanges");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_no_run_recorded_is_never_pushed() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[(
        "main.tf",
        "resource \"terraform_data\" \"it\" { input = \"old\" }\n",
    )]);
    let script = format!("printf '%s' '{}' > errored.tfstate", state());
    session(&env, json!({}), &script).await;
    let stored = list_secrets(&env, "infra.sluice.dev/errored-state=net").await;
    let forged = chunk::compress(state().replace("old", "evil").as_bytes()).unwrap();
    let mut other = with_content(&stored[0], "state", forged.clone());
    let digest = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&forged));
    other
        .annotations_mut()
        .insert("infra.sluice.dev/digest".to_owned(), digest);
    let mut copy = other.clone();
    copy.metadata.name = Some("tferrored-default-net-beside".to_owned());
    let mut moved = stored[0].clone();
    let place = "infra.sluice.dev/errored-state-place".to_owned();
    moved.annotations_mut().insert(place, "elsewhere".to_owned());
    for change in [
        Change::new("forged", &stored, vec![other]),
        Change::new("of another place", &stored, vec![moved]),
        Change::new("beside the right one", &[], vec![copy]),
    ] {
        change.clone().make(env.client()).await;
        let ended = env.run(RunSetup::plan()).await;
        let message = status(&ended).message;
        assert_eq!(
            ending(&ended),
            "Failed TFExecInitFailed",
            "{}: {message}",
            change.what
        );
        assert!(
            message.contains("that no run of this stack recorded"),
            "{message}"
        );
        change.reversed().make(env.client()).await;
    }
    let next = env.run(RunSetup::plan()).await;
    assert_ending(&next, "Succeeded TerraformPlannedNoChanges");
}
