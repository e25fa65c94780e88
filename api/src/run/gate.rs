//! The policy gate of a run that plans and applies in one go: asked after the plan is stored, before anything changes.
//! Pure; the runner reads the Terraform object afresh and calls it.

use super::{Action, TerraformRunSpec, TerraformRunStatus, Trigger};
use crate::terraform::approval::{Approval, Made, judge};
use crate::terraform::guard::Held;
use crate::terraform::{Terraform, TerraformSpec};

/// What the run does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It applies the plan.
    Apply,
    /// It ends here, and the plan waits.
    Hold(Hold),
}

/// Why a plan is not applied by the run that made it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hold {
    /// The run was only to plan.
    #[error("the run was only to plan")]
    NotAsked,
    /// The Terraform object is gone, or another one of the same name stands in its place.
    #[error("the Terraform object is gone")]
    Gone,
    /// The Terraform object was edited since the run was decided.
    #[error("the spec was changed to generation {now} since the run was decided for generation {planned}")]
    Edited {
        /// The generation that the run was decided for.
        planned: i64,
        /// The generation now.
        now: i64,
    },
    /// The Terraform object was suspended.
    #[error("the object is suspended")]
    Suspended,
    /// The Terraform object is being deleted, and this run is not its destroy; or the other way round.
    #[error("the deletion of the object changed what is to be done")]
    Deleting,
    /// The guard rails hold the plan.
    #[error("held: {0}")]
    Held(Held),
    /// The plan waits for approval.
    #[error("the plan waits for approval")]
    NotApproved(Approval),
}

/// Whether a run that plans and applies goes on to apply its plan, which has changes.
#[must_use]
pub fn gate(run: &TerraformRunSpec, terraform: Option<&Terraform>, made: Made<'_>) -> Gate {
    match standing(run, terraform) {
        Err(hold) => Gate::Hold(hold),
        // Asking for the destroy was the approval: `destroyResourcesOnDeletion` and the deletion itself.
        Ok(_) if run.trigger == Trigger::Deletion => Gate::Apply,
        Ok(spec) => match judge(spec, made) {
            approval if approval.applies() => Gate::Apply,
            Approval::Held(held) => Gate::Hold(Hold::Held(held)),
            approval => Gate::Hold(Hold::NotApproved(approval)),
        },
    }
}

/// The spec, when the run still is what the object asks for.
fn standing<'a>(run: &TerraformRunSpec, terraform: Option<&'a Terraform>) -> Result<&'a TerraformSpec, Hold> {
    if run.action != Action::PlanAndApply {
        return Err(Hold::NotAsked);
    }
    let same = |found: &&Terraform| found.metadata.uid.as_deref() == Some(run.terraform.uid.as_str());
    let found = terraform.filter(same).ok_or(Hold::Gone)?;
    let now = found.metadata.generation.unwrap_or_default();
    let deleting = found.metadata.deletion_timestamp.is_some();
    let destroys_on_deletion = run.destroy && found.spec.destroys_on_deletion();
    match run.trigger {
        _ if found.spec.suspend => Err(Hold::Suspended),
        // The API server raises the generation when a deletion begins, so generations are not compared here.
        Trigger::Deletion if deleting && destroys_on_deletion => Ok(&found.spec),
        Trigger::Deletion => Err(Hold::Deleting),
        _ if deleting => Err(Hold::Deleting),
        _ if now != run.terraform.generation => Err(Hold::Edited {
            planned: run.terraform.generation,
            now,
        }),
        // A run that destroys is never let through by an object that no longer asks for it, nor the reverse.
        _ if run.destroy != found.spec.destroy => Err(Hold::Edited {
            planned: run.terraform.generation,
            now,
        }),
        _ => Ok(&found.spec),
    }
}

/// Whether a run that applies a stored plan still may: the object as it is now approves that plan, guard rails included, and was
/// not edited since the decision: what is applied is never made of inputs that are no longer the spec's.
/// `plan` is what the run that made the plan says of it.
///
/// # Errors
/// Why not: the object that the decision was made on is an older one.
pub fn stands(
    run: &TerraformRunSpec,
    terraform: Option<&Terraform>,
    plan: Option<&TerraformRunStatus>,
) -> Result<(), Hold> {
    let same = |found: &&Terraform| found.metadata.uid.as_deref() == Some(run.terraform.uid.as_str());
    let found = terraform.filter(same).ok_or(Hold::Gone)?;
    if found.metadata.deletion_timestamp.is_some() {
        return Err(Hold::Deleting);
    }
    if found.spec.suspend {
        return Err(Hold::Suspended);
    }
    if run.destroy != found.spec.destroy {
        return Err(Hold::Edited {
            planned: run.terraform.generation,
            now: found.metadata.generation.unwrap_or_default(),
        });
    }
    let made = Made {
        id: run.plan.as_ref().map_or("", |plan| plan.id.as_str()),
        effects: plan.and_then(|plan| plan.effects.as_ref()),
        entries: plan
            .map(|plan| plan.change_entries.as_slice())
            .unwrap_or_default(),
    };
    match judge(&found.spec, made) {
        approval if approval.applies() => unedited(run, found),
        Approval::Held(held) => Err(Hold::Held(held)),
        approval => Err(Hold::NotApproved(approval)),
    }
}

/// Whether the spec is the one that the run was decided for. Any edit may have changed what the plan was made of, which only the
/// controller can tell: it looks at the new spec, and where its inputs are the plan's, the plan is applied by the next run.
fn unedited(run: &TerraformRunSpec, found: &Terraform) -> Result<(), Hold> {
    let (planned, now) = (
        run.terraform.generation,
        found.metadata.generation.unwrap_or_default(),
    );
    if planned == now {
        Ok(())
    } else {
        Err(Hold::Edited { planned, now })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::PlanEffects;
    use serde_json::{Value, json};

    const EFFECT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn run(trigger: &str, change: &[(&str, Value)]) -> TerraformRunSpec {
        let mut spec = json!({
            "terraform": { "name": "app", "uid": "u1", "generation": 3 }, "action": "PlanAndApply", "trigger": trigger,
            "source": { "kind": "GitRepository", "namespace": "ns", "name": "repo" }, "attempt": 1, "deadline": "2h",
        });
        for (field, value) in change {
            spec[*field] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    fn terraform(change: &[(&str, Value)]) -> Terraform {
        let mut object = json!({
            "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": { "name": "app", "namespace": "ns", "uid": "u1", "generation": 3 },
            "spec": { "interval": "1h", "sourceRef": { "kind": "GitRepository", "name": "repo" }, "approvePlan": "auto" },
        });
        for (pointer, value) in change {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    fn asked(run: &TerraformRunSpec, terraform: Option<&Terraform>) -> Gate {
        let id = format!("plan-main-b8e362c206-{EFFECT}");
        gate(
            run,
            terraform,
            Made {
                id: &id,
                effects: Some(&PlanEffects {
                    updates: 1,
                    ..PlanEffects::default()
                }),
                entries: &[],
            },
        )
    }

    #[test]
    fn the_policy_of_the_object_as_it_is_now_decides() {
        let edited = Gate::Hold(Hold::Edited { planned: 3, now: 4 });
        let waits = |approval| Gate::Hold(Hold::NotApproved(approval));
        for (change, wanted) in [
            (vec![], Gate::Apply),
            (vec![("/spec/approvePlan", json!(""))], waits(Approval::Wait)),
            (
                vec![("/spec/approvePlan", json!("disable"))],
                waits(Approval::Disabled),
            ),
            (vec![("/spec/approvePlan", json!(EFFECT))], Gate::Apply),
            (vec![("/spec/planOnly", json!(true))], waits(Approval::PlanOnly)),
            (
                vec![("/spec/approvePlan", json!("")), ("/spec/force", json!(true))],
                Gate::Apply,
            ),
            (vec![("/spec/suspend", json!(true))], Gate::Hold(Hold::Suspended)),
            (vec![("/metadata/generation", json!(4))], edited),
            (vec![("/metadata/uid", json!("u2"))], Gate::Hold(Hold::Gone)),
            (
                vec![("/spec/destroy", json!(true))],
                Gate::Hold(Hold::Edited { planned: 3, now: 3 }),
            ),
            (
                vec![("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))],
                Gate::Hold(Hold::Deleting),
            ),
        ] {
            assert_eq!(
                asked(&run("Revision", &[]), Some(&terraform(&change))),
                wanted,
                "{change:?}"
            );
        }
        assert_eq!(asked(&run("Revision", &[]), None), Gate::Hold(Hold::Gone));
    }

    #[test]
    fn a_run_that_only_plans_never_applies() {
        for action in ["Plan", "Apply", "Unlock"] {
            let run = run("Revision", &[("action", json!(action))]);
            assert_eq!(asked(&run, Some(&terraform(&[]))), Gate::Hold(Hold::NotAsked));
        }
    }

    #[test]
    fn the_guard_rails_hold_what_auto_would_apply() {
        let held = |policy: Value| {
            let stack = terraform(&[("/spec/autoApply", policy)]);
            matches!(
                asked(&run("Revision", &[]), Some(&stack)),
                Gate::Hold(Hold::Held(_))
            )
        };
        assert!(held(json!({ "hold": ["update"] })));
        assert!(held(json!({ "maxChanges": 0 })));
        assert!(!held(json!({ "hold": ["delete"] })));
        // Asking for the destroy of a deleted object is its approval.
        let gone = ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        let stack = terraform(&[
            gone,
            ("/spec/destroyResourcesOnDeletion", json!(true)),
            ("/spec/autoApply", json!({ "maxChanges": 0 })),
        ]);
        assert_eq!(
            asked(&run("Deletion", &[("destroy", json!(true))]), Some(&stack)),
            Gate::Apply
        );
    }

    #[test]
    fn a_deletion_destroys_only_what_was_asked_to_be_destroyed() {
        let gone = ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        let consent = ("/spec/destroyResourcesOnDeletion", json!(true));
        let manual = ("/spec/approvePlan", json!(""));
        let destroy = run("Deletion", &[("destroy", json!(true))]);
        let later = ("/metadata/generation", json!(4));
        for (change, wanted) in [
            (vec![gone.clone(), consent.clone(), manual, later], Gate::Apply),
            (vec![gone.clone()], Gate::Hold(Hold::Deleting)),
            (vec![consent.clone()], Gate::Hold(Hold::Deleting)),
        ] {
            assert_eq!(asked(&destroy, Some(&terraform(&change))), wanted, "{change:?}");
        }
        let no_destroy = run("Deletion", &[]);
        assert_eq!(
            asked(&no_destroy, Some(&terraform(&[gone, consent]))),
            Gate::Hold(Hold::Deleting)
        );
    }

    #[test]
    fn a_stored_plan_is_not_applied_with_inputs_that_are_no_longer_the_specs() {
        let id = format!("plan-main-b8e362c206-{EFFECT}");
        let vars = [
            ("/spec/vars", json!([{ "name": "size", "value": 2 }])),
            ("/metadata/generation", json!(4)),
        ];
        // Whoever decides: `auto` over a drift or behind a hold, or a person by the plan's id.
        for (trigger, approve) in [("Drift", "auto"), ("Approval", "auto"), ("Approval", id.as_str())] {
            let apply = run(
                trigger,
                &[
                    ("action", json!("Apply")),
                    ("plan", json!({ "id": id, "run": "app-1" })),
                ],
            );
            let approved = ("/spec/approvePlan", json!(approve));
            let asked = |change: &[(&str, Value)]| stands(&apply, Some(&terraform(change)), None);
            assert_eq!(
                asked(std::slice::from_ref(&approved)),
                Ok(()),
                "{trigger} {approve}"
            );
            let [edit, generation] = vars.clone();
            let edited = Err(Hold::Edited { planned: 3, now: 4 });
            assert_eq!(
                asked(&[approved, edit, generation]),
                edited,
                "{trigger} {approve}"
            );
        }
    }

    #[test]
    fn a_stored_plan_is_applied_only_while_its_approval_stands() {
        let id = format!("plan-main-b8e362c206-{EFFECT}");
        let apply = run(
            "Approval",
            &[
                ("action", json!("Apply")),
                ("plan", json!({ "id": id, "run": "app-1" })),
            ],
        );
        let plan: TerraformRunStatus =
            serde_json::from_value(json!({ "effects": { "deletes": 1 } })).unwrap();
        let allows = |change: &[(&str, Value)]| {
            let mut all = vec![("/spec/approvePlan", json!(id))];
            all.extend_from_slice(change);
            stands(&apply, Some(&terraform(&all)), Some(&plan)).is_ok()
        };
        assert!(allows(&[]));
        assert!(allows(&[("/spec/approvePlan", json!("auto"))]));
        for change in [
            ("/spec/approvePlan", json!("")),
            (
                "/spec/approvePlan",
                json!(format!("plan-main-b8e362c206-{}", EFFECT.replace('0', "1"))),
            ),
            ("/spec/planOnly", json!(true)),
            ("/spec/suspend", json!(true)),
            ("/spec/destroy", json!(true)),
            ("/metadata/generation", json!(9)),
            ("/metadata/uid", json!("another")),
            ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ] {
            assert!(!allows(std::slice::from_ref(&change)), "{change:?}");
        }
        assert!(stands(&apply, None, Some(&plan)).is_err());
        // A guard rail that was put up since the decision takes the word from auto, and not from a person.
        let (auto, held) = (
            ("/spec/approvePlan", json!("auto")),
            ("/spec/autoApply", json!({ "hold": ["delete"] })),
        );
        assert!(allows(std::slice::from_ref(&held)) && !allows(&[auto.clone(), held.clone()]));
        assert!(allows(&[
            auto.clone(),
            ("/spec/autoApply", json!({ "hold": ["create"] }))
        ]));
        let unknown = stands(&apply, Some(&terraform(&[auto, held])), None);
        assert!(
            matches!(unknown, Err(Hold::Held(_))),
            "what it does is not on record"
        );
    }
}
