//! What `spec.approvePlan` says about the plan that waits. Pure, and the only place that knows.

use super::TerraformSpec;
use super::guard::{self, Held};
use super::plan_id::{EffectDigest, PlanId};
use crate::run::{Change, PlanEffects};

/// The fields that decide what happens with a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    /// `spec.approvePlan`.
    pub approve_plan: &'a str,
    /// `spec.force`.
    pub force: bool,
    /// `spec.planOnly`.
    pub plan_only: bool,
    /// `spec.destroy`.
    pub destroy: bool,
}

impl<'a> From<&'a TerraformSpec> for Ask<'a> {
    fn from(spec: &'a TerraformSpec) -> Self {
        Self {
            approve_plan: &spec.approve_plan,
            force: spec.force,
            plan_only: spec.plan_only,
            destroy: spec.destroy,
        }
    }
}

/// What happens with a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Approval {
    /// `disable`: nothing is planned or applied, drift is only reported.
    Disabled,
    /// `force`: applied without asking.
    Forced,
    /// `planOnly`: made, never applied.
    PlanOnly,
    /// `auto`: applied without asking.
    Auto,
    /// Nobody has said anything yet, or there is nothing to approve.
    Wait,
    /// `replan-…`: another plan is asked for.
    Replan,
    /// Exactly this plan is approved.
    Approves(PlanId),
    /// It would be applied without asking, but `autoApply` holds it: it waits for an approval by its id.
    Held(Held),
    /// Something was said that does not approve the plan that waits.
    NotThis(Mismatch),
}

impl Approval {
    /// Whether the plan that waits may be applied.
    #[must_use]
    pub const fn applies(&self) -> bool {
        matches!(self, Self::Forced | Self::Auto | Self::Approves(_))
    }
}

/// Why an approval is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Neither a full id nor a full effect digest: a prefix, an id of tofu-controller, or something else.
    #[error("approvePlan {0:?} does not hold the whole id")]
    Incomplete(String),
    /// A full id, of another effect.
    #[error("approvePlan names another plan, with the effect {0}")]
    OtherEffect(EffectDigest),
    /// The waiting plan was made by tofu-controller: it has no effect digest and cannot be approved.
    #[error("the waiting plan {0:?} has no effect digest and must be made again")]
    UnboundPlan(String),
}

/// A plan that was made, as the rules of the spec see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made<'a> {
    /// Its id.
    pub id: &'a str,
    /// What it does; absent where that was not recorded.
    pub effects: Option<&'a PlanEffects>,
    /// Its changes, perhaps not all of them.
    pub entries: &'a [Change],
}

/// What the spec says about this plan, guard rails included: what `auto` or `force` would apply and `autoApply` holds is
/// applied only when `approvePlan` names it.
#[must_use]
pub fn judge(spec: &TerraformSpec, plan: Made<'_>) -> Approval {
    let by_spec = decide(Ask::from(spec), plan.id);
    let Some(policy) = spec
        .auto_apply
        .as_ref()
        .filter(|_| matches!(by_spec, Approval::Auto | Approval::Forced))
    else {
        return by_spec;
    };
    match guard::held(policy, plan.effects, plan.entries) {
        None => by_spec,
        Some(held) => match compare(&spec.approve_plan, plan.id) {
            approves @ Approval::Approves(_) => approves,
            _ => Approval::Held(held),
        },
    }
}

/// What the spec says about the plan with this id; an empty id means that none waits. Guard rails are not looked at: see
/// [`judge`].
///
/// Effect digests are compared in full; what stands before them in an id is not looked at.
#[must_use]
pub fn decide(ask: Ask<'_>, pending: &str) -> Approval {
    match ask.approve_plan {
        "disable" => Approval::Disabled,
        // `force` overrides `planOnly` as upstream, but never destroys what `planOnly` withholds.
        _ if ask.force && !(ask.plan_only && ask.destroy) => Approval::Forced,
        _ if ask.plan_only => Approval::PlanOnly,
        "" => Approval::Wait,
        "auto" => Approval::Auto,
        _ if pending.is_empty() => Approval::Wait,
        text if text.starts_with("replan") => replan(text, pending),
        text => compare(text, pending),
    }
}

/// `re<the waiting id, or its beginning>` asks for another plan in its place, as upstream's client writes it; so does
/// `replan-` before it, as people do.
fn replan(text: &str, pending: &str) -> Approval {
    let names_it = ["re", "replan-"]
        .iter()
        .filter_map(|front| text.strip_prefix(front))
        .any(|rest| pending.starts_with(rest));
    if names_it {
        Approval::Replan
    } else {
        Approval::Wait
    }
}

/// Compares an id, or a bare effect digest, with the waiting plan.
fn compare(text: &str, pending: &str) -> Approval {
    let Ok(waiting) = pending.parse::<PlanId>() else {
        return Approval::NotThis(Mismatch::UnboundPlan(excerpt(pending)));
    };
    let asked = text
        .parse::<PlanId>()
        .map(|id| id.effect().clone())
        .or_else(|_| text.parse::<EffectDigest>());
    match asked {
        Ok(effect) if effect == *waiting.effect() => Approval::Approves(waiting),
        Ok(effect) => Approval::NotThis(Mismatch::OtherEffect(effect)),
        Err(_) => Approval::NotThis(Mismatch::Incomplete(excerpt(text))),
    }
}

/// As much of a foreign text as a message can bear.
fn excerpt(text: &str) -> String {
    text.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EFFECT: &str = "0123456789abcdef0123456789abcdef01234567";
    const OTHER: &str = "1123456789abcdef0123456789abcdef01234567";

    fn pending() -> String {
        format!("plan-main-b8e362c206-{EFFECT}")
    }

    fn ask(approve_plan: &str) -> Ask<'_> {
        Ask {
            approve_plan,
            force: false,
            plan_only: false,
            destroy: false,
        }
    }

    #[test]
    fn words_mean_what_upstream_means() {
        for (word, waiting, approval) in [
            ("", "", Approval::Wait),
            ("", pending().as_str(), Approval::Wait),
            ("auto", "", Approval::Auto),
            ("auto", &pending(), Approval::Auto),
            ("auto", "plan-main-b8e362c206", Approval::Auto),
            ("disable", &pending(), Approval::Disabled),
            ("replan-main-b8e362c206", &pending(), Approval::Replan),
            ("replan", &pending(), Approval::Replan),
            ("replan-plan-main-b8e36", &pending(), Approval::Replan),
            ("replan-plan-other", &pending(), Approval::Wait),
            ("replan-other", &pending(), Approval::Wait),
            ("replan-main-b8e362c206", "", Approval::Wait),
            (&pending(), "", Approval::Wait),
        ] {
            assert_eq!(decide(ask(word), waiting), approval, "{word:?} {waiting:?}");
        }
    }

    #[test]
    fn only_the_whole_effect_digest_approves() {
        let approves = Approval::Approves(pending().parse().unwrap());
        let incomplete = |text: &str| Approval::NotThis(Mismatch::Incomplete(text.to_owned()));
        let other = || Approval::NotThis(Mismatch::OtherEffect(OTHER.parse().unwrap()));
        for (text, approval) in [
            (pending(), approves.clone()),
            (EFFECT.to_owned(), approves.clone()),
            (format!("plan-moved-0000000000-{EFFECT}"), approves.clone()),
            (format!("plan-main-b8e362c206-{OTHER}"), other()),
            (OTHER.to_owned(), other()),
            ("plan-main-b8e362c206".into(), incomplete("plan-main-b8e362c206")),
            ("p".into(), incomplete("p")),
            (EFFECT[..39].into(), incomplete(&EFFECT[..39])),
            (EFFECT.to_uppercase(), incomplete(&EFFECT.to_uppercase())),
            ("yes".into(), incomplete("yes")),
            ("AUTO".into(), incomplete("AUTO")),
        ] {
            assert_eq!(decide(ask(&text), &pending()), approval, "{text}");
        }
    }

    #[test]
    fn a_plan_of_tofu_controller_cannot_be_approved_by_its_id() {
        let unbound = "plan-main-b8e362c206";
        assert_eq!(
            decide(ask(unbound), unbound),
            Approval::NotThis(Mismatch::UnboundPlan(unbound.into()))
        );
    }

    #[test]
    fn force_and_plan_only_come_before_approval() {
        for (approve_plan, force, plan_only, destroy, approval) in [
            ("", true, false, false, Approval::Forced),
            ("", true, false, true, Approval::Forced),
            ("", true, true, false, Approval::Forced),
            ("", true, true, true, Approval::PlanOnly),
            ("auto", false, true, false, Approval::PlanOnly),
            (pending().as_str(), false, true, false, Approval::PlanOnly),
            ("disable", true, false, false, Approval::Disabled),
        ] {
            let asked = Ask {
                approve_plan,
                force,
                plan_only,
                destroy,
            };
            assert_eq!(decide(asked, &pending()), approval, "{asked:?}");
        }
    }

    #[test]
    fn what_is_held_is_applied_only_by_its_id() {
        use serde_json::json;
        let spec = |change: serde_json::Value| {
            let mut spec = serde_json::json!({ "interval": "1h", "approvePlan": "auto", "autoApply": { "hold": ["delete"] },
                "sourceRef": { "kind": "GitRepository", "name": "x" } });
            for (field, value) in change.as_object().unwrap() {
                spec[field] = value.clone();
            }
            serde_json::from_value::<TerraformSpec>(spec).unwrap()
        };
        let deletes = PlanEffects {
            deletes: 1,
            ..PlanEffects::default()
        };
        let creates = PlanEffects {
            creates: 1,
            ..PlanEffects::default()
        };
        let id = pending();
        let judged = |change: serde_json::Value, effects: Option<&PlanEffects>| {
            judge(
                &spec(change),
                Made {
                    id: &id,
                    effects,
                    entries: &[],
                },
            )
        };
        let held = |approval: Approval| matches!(approval, Approval::Held(_));
        assert!(held(judged(json!({}), Some(&deletes))));
        assert!(held(judged(json!({}), None)), "what is not recorded is held");
        assert_eq!(judged(json!({}), Some(&creates)), Approval::Auto);
        assert_eq!(
            judged(json!({ "autoApply": null }), Some(&deletes)),
            Approval::Auto
        );
        assert!(held(judged(
            json!({ "approvePlan": "", "force": true }),
            Some(&deletes)
        )));
        assert!(judged(json!({ "approvePlan": id }), Some(&deletes)).applies());
        assert!(judged(json!({ "approvePlan": id, "force": true }), Some(&deletes)).applies());
        assert!(held(judged(
            json!({ "approvePlan": OTHER, "force": true }),
            Some(&deletes)
        )));
        assert_eq!(
            judged(json!({ "planOnly": true }), Some(&deletes)),
            Approval::PlanOnly
        );
        assert_eq!(
            judged(json!({ "approvePlan": "disable" }), Some(&deletes)),
            Approval::Disabled
        );
    }

    proptest! {
        #[test]
        fn no_beginning_of_an_id_approves(length in 0usize..61) {
            prop_assert!(!decide(ask(&pending()[..length]), &pending()).applies());
        }

        #[test]
        fn no_other_text_approves(text in "(plan-)?[a-z0-9-]{0,60}") {
            let applies = decide(ask(&text), &pending()).applies();
            prop_assert_eq!(applies, text == "auto" || text.ends_with(EFFECT) && text.starts_with("plan-"));
        }
    }
}
