//! Somebody who may read, create and delete the Secrets of the namespace, and nothing else. Whatever they put in the place of what
//! is stored, and whenever: nothing of it is used, and the run says which Secret it was.

use std::sync::{Arc, Mutex};

use http::Request;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::client::Body;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use sluice_api::run::{Phase, TerraformRun};
use sluice_tf_core::applied;
use sluice_tf_core::bundle::{PlanKey, Stack, secret_name};
use sluice_tf_core::chunk;
use sluice_tf_core::plan::store::{self, PlanName};
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::brought::state;
use crate::glass::session;
use crate::world::{NAMESPACE, STACK, Wish, World, ending, status};

const HONEST: &str = "resource \"terraform_data\" \"it\" { input = \"honest\" }\n";

/// The step before which the Secrets are replaced.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// After the plan, before somebody approves it.
    Approval,
    /// The run is made, and no runner has it.
    Claim,
    /// The runner has the run, and has loaded nothing.
    Load,
}

/// Secrets that go, and Secrets that come in their place.
#[derive(Clone)]
struct Change {
    what: &'static str,
    gone: Vec<Secret>,
    put: Vec<Secret>,
}

impl Change {
    fn new(what: &'static str, gone: &[Secret], put: Vec<Secret>) -> Self {
        let gone = gone.to_vec();
        Self { what, gone, put }
    }

    /// The way back.
    fn undone(&self) -> Self {
        Self::new(self.what, &self.put, self.gone.clone())
    }

    async fn make(self, client: Client) {
        let api: Api<Secret> = Api::namespaced(client, NAMESPACE);
        for secret in &self.gone {
            api.delete(&secret.name_any(), &DeleteParams::default())
                .await
                .unwrap();
        }
        for mut secret in self.put {
            secret.metadata.resource_version = None;
            secret.metadata.uid = None;
            api.create(&PostParams::default(), &secret).await.unwrap();
        }
    }
}

/// A way to the API on which the change is made right before the bundle is read.
fn changing(world: &World, change: Change) -> Client {
    let (embedded, due) = (world.embedded.clone(), Arc::new(Mutex::new(Some(change))));
    let service = tower::service_fn(move |request: Request<Body>| {
        let reads = request.uri().path().ends_with(&secret_name(""));
        let change = due.lock().unwrap().take_if(|_| reads);
        let mut embedded = embedded.clone();
        async move {
            if let Some(change) = change {
                change.make(embedded.client()).await;
            }
            embedded.call(request).await
        }
    });
    Client::new(service, NAMESPACE)
}

/// Carries a run out; the change is made at that moment.
async fn run_with(world: &World, wish: Wish, moment: Moment, change: Change) -> TerraformRun {
    if matches!(moment, Moment::Approval) {
        change.clone().make(world.client()).await;
    }
    let name = world.prepare(wish).await;
    let mut context = world.context(&name);
    match moment {
        Moment::Approval => {}
        Moment::Claim => change.make(world.client()).await,
        Moment::Load => context.client = changing(world, change),
    }
    world.carry_out(&name, context, CancellationToken::new()).await;
    world.get(&name).await
}

/// The run ended before its CLI was looked for, and says why in these words.
fn refused(run: &TerraformRun, case: &str, words: &[&str]) {
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

async fn listed(world: &World, label: &str) -> Vec<Secret> {
    let api: Api<Secret> = Api::namespaced(world.client(), NAMESPACE);
    api.list(&ListParams::default().labels(label))
        .await
        .unwrap()
        .items
}

/// The same Secret with another content.
fn holding(secret: &Secret, key: &str, bytes: Vec<u8>) -> Secret {
    let mut other = secret.clone();
    other.data.as_mut().unwrap().get_mut(key).unwrap().0 = bytes;
    other
}

fn inputs() -> Value {
    json!({ "inputsDigest": "hmac-sha256:11" })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_is_not_the_runs_own_is_never_used() {
    let world = World::new("auto").await;
    world.commit(&[("main.tf", HONEST)]);
    let api: Api<Secret> = Api::namespaced(world.client(), NAMESPACE);
    // The bundle of an earlier run that was to do something else.
    let older = world.prepare(Wish::plan().with(json!({ "path": "older" }))).await;
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
            let name = world.prepare(Wish::plan_and_apply().with(inputs())).await;
            let own = api.get(&secret_name(&name)).await.unwrap();
            let mut bundle: Value = serde_json::from_slice(&own.data.as_ref().unwrap()["bundle"].0).unwrap();
            let put = match what {
                "deleted" => vec![],
                "replayed" => vec![holding(&own, "bundle", older.clone())],
                "garbage" => vec![holding(&own, "bundle", b"{".to_vec())],
                "of another owner" => {
                    let mut other = own.clone();
                    other.owner_references_mut()[0].uid = "another".to_owned();
                    vec![other]
                }
                _ => {
                    let member = if what == "forged" { "environment" } else { "stack" };
                    bundle[member] = if what == "forged" {
                        json!({ "PATH": "/evil" })
                    } else {
                        json!({ "namespace": NAMESPACE, "name": "other", "uid": "other" })
                    };
                    vec![holding(&own, "bundle", bundle.to_string().into_bytes())]
                }
            };
            let change = Change::new(what, &[own], put);
            let mut context = world.context(&name);
            match moment {
                Moment::Load => context.client = changing(&world, change),
                _ => change.make(world.client()).await,
            }
            world.carry_out(&name, context, CancellationToken::new()).await;
            let words = [
                format!("{name}-bundle is not the bundle"),
                format!("\"{name}-bundle\" not found"),
            ];
            let run = world.get(&name).await;
            refused(&run, &format!("{moment:?} {what}"), &[&words[0], &words[1]]);
        }
    }
    let own = world.run(Wish::plan_and_apply().with(inputs())).await;
    assert_eq!(
        ending(&own),
        "Succeeded TerraformAppliedSucceed",
        "the runs could begin"
    );
}

/// What is put in the place of the Secrets of a plan, each by somebody who knows the keys too.
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
    let swapped = holding_all(&plan[0], &evil.0[0]);
    // Once more, as an earlier run may have stored it: the time in a plan file differs.
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

/// The content of another Secret, with its marks, under the name and the words of this one.
fn holding_all(secret: &Secret, other: &Secret) -> Secret {
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
        let world = World::new("").await;
        let evil = world.dir.path().join("evil");
        let bundle = json!({ "inputsDigest": "hmac-sha256:11", "planKeys": keys });
        let keys: Vec<PlanKey> = serde_json::from_value(keys).unwrap();
        let label = format!("infra.contrib.fluxcd.io/plan-name={STACK}");
        let plan = async |module: &str| {
            world.commit(&[("main.tf", module)]);
            let run = world.run(Wish::plan().with(bundle.clone())).await;
            let name = PlanName {
                stack: stack(&run),
                workspace: "default".to_owned(),
                id: status(&run).plan_id,
                run: run.name_any(),
            };
            (run, name, listed(&world, &label).await)
        };
        let command = format!(
            "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{ command = \"touch {}\" }}\n}}\n",
            evil.display()
        );
        let (_, evil_name, evil_plan) = plan(&command).await;
        let (run, name, stored) = plan(HONEST).await;
        let changes = forgeries(&stored, &name, (&evil_plan, &evil_name), &keys);
        for change in &changes {
            for moment in [Moment::Approval, Moment::Claim, Moment::Load] {
                let apply = Wish::apply(&run).with(bundle.clone());
                let ended = run_with(&world, apply, moment, change.clone()).await;
                let case = format!("{moment:?} {} {}", change.what, keys.len());
                refused(
                    &ended,
                    &case,
                    &["do not hold what the run", "no plan secrets found"],
                );
                change.undone().make(world.client()).await;
            }
        }
        // The forgery is one: were it on record, it would be applied.
        let mut apply = Wish::apply(&run).with(bundle.clone());
        let forged = &changes[usize::from(!keys.is_empty())];
        apply.plan.as_mut().unwrap().2 = store::digest_of(&forged.put);
        assert!(!evil.exists());
        let fooled = run_with(&world, apply, Moment::Claim, forged.clone()).await;
        assert_eq!(
            ending(&fooled),
            "Succeeded TerraformAppliedSucceed",
            "{:?}",
            fooled.status
        );
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
async fn what_is_not_what_was_applied_destroys_nothing() {
    let key = PlanKey {
        id: "a".to_owned(),
        key: "01".repeat(32),
    };
    let sealed = json!({ "inputsDigest": "hmac-sha256:11", "planKeys": [key], "keepFiles": 1_000_000 });
    let world = World::new("auto").await;
    world.commit(&[("main.tf", HONEST)]);
    let run = world.run(Wish::plan_and_apply().with(sealed.clone())).await;
    assert_eq!(
        ending(&run),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        run.status
    );
    let (name, digest) = (run.name_any(), status(&run).applied_digest);
    let kept = listed(&world, &applied::selector_of(STACK)).await;
    let of = stack(&run);
    let mut forged = applied::decode(&kept, &of, &name, std::slice::from_ref(&key)).unwrap();
    forged.inputs.provider_lock = None;
    let encoded = |key| applied::encode(&forged, &name, key).unwrap();
    let destroy = || {
        let mut bundle = sealed.clone();
        bundle["kept"] = json!({ "run": name, "digest": digest });
        Wish {
            destroy: true,
            ..Wish::plan().with(bundle)
        }
    };
    for change in [
        Change::new("forged, and downgraded", &kept, encoded(None)),
        Change::new("forged with the key", &kept, encoded(Some(&key))),
        Change::new("deleted", &kept, vec![]),
    ] {
        for moment in [Moment::Claim, Moment::Load] {
            let ended = run_with(&world, destroy(), moment, change.clone()).await;
            let case = format!("{moment:?} {}", change.what);
            refused(
                &ended,
                &case,
                &["do not hold what it recorded", "nothing is kept of"],
            );
            change.undone().make(world.client()).await;
        }
    }
    let planned = world.run(destroy()).await;
    assert_eq!(
        ending(&planned),
        "Succeeded TerraformPlannedWithChanges",
        "{:?}",
        planned.status
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_no_run_recorded_is_never_pushed() {
    let world = World::new("auto").await;
    world.commit(&[(
        "main.tf",
        "resource \"terraform_data\" \"it\" { input = \"old\" }\n",
    )]);
    let script = format!("printf '%s' '{}' > errored.tfstate", state());
    session(&world, json!({}), &script).await;
    let kept = listed(&world, "infra.sluice.dev/errored-state=net").await;
    let forged = chunk::compress(state().replace("old", "evil").as_bytes()).unwrap();
    let mut other = holding(&kept[0], "state", forged.clone());
    let digest = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&forged));
    other
        .annotations_mut()
        .insert("infra.sluice.dev/digest".to_owned(), digest);
    let mut beside = other.clone();
    beside.metadata.name = Some("tferrored-default-net-beside".to_owned());
    let mut moved = kept[0].clone();
    let place = "infra.sluice.dev/errored-state-place".to_owned();
    moved.annotations_mut().insert(place, "elsewhere".to_owned());
    for change in [
        Change::new("forged", &kept, vec![other]),
        Change::new("of another place", &kept, vec![moved]),
        Change::new("beside the right one", &[], vec![beside]),
    ] {
        change.clone().make(world.client()).await;
        let ended = world.run(Wish::plan()).await;
        let message = status(&ended).message;
        assert_eq!(
            ending(&ended),
            "Failed TFExecInitFailed",
            "{}: {message}",
            change.what
        );
        assert!(
            message.contains("that no run of this stack has on record"),
            "{message}"
        );
        change.undone().make(world.client()).await;
    }
    let next = world.run(Wish::plan()).await;
    assert_eq!(
        ending(&next),
        "Succeeded TerraformPlannedNoChanges",
        "{:?}",
        next.status
    );
}
