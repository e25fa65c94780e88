//! The effect of a plan (pure): what an approval is bound to, as one document with one canonical text and one digest.
//!
//! It covers what the plan was made from (inputs, downloaded modules, provider lock), what it will do (changed leaves only,
//! sensitive values as keyed digests), what unseen parts of it draw upon, and the stack's last started apply, which makes each
//! digest single-use. The same document is what people read ([`Effect::text`]). `docs/reference/plan-id.md` defines it for other
//! implementations.

mod leaves;
mod text;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use sluice_api::terraform::plan_id::EffectDigest;

use super::document::{Change, PlanDocument, ResourceChange};
use crate::canonical;

/// Names the form. Another form gives every plan another digest: what waits for approval must be approved anew.
const FORM: &str = "sluice.effect/2";

/// What a plan was made from, beside its JSON.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Digest of closure, variables, backend, workspace and targets.
    pub inputs: &'a str,
    /// Digest of the modules that `init` downloaded.
    pub modules: &'a str,
    /// Bytes of the provider lock file; empty when there is none.
    pub lock: &'a [u8],
    /// Name of the stack's last started apply run; empty before the first.
    pub last_apply: &'a str,
    /// Whether planning made files, which are made of data as often as not.
    pub made: bool,
    /// Key of the object's sensitive values.
    pub key: &'a [u8],
}

/// The effect of one plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect(Value);

impl Effect {
    /// Of a plan and what it was made from.
    #[must_use]
    pub fn new(plan: &PlanDocument, origin: &Origin<'_>) -> Self {
        let mut changes: Vec<_> = plan
            .resource_changes
            .iter()
            .filter(|change| change.is_effect())
            .collect();
        changes.sort_by(|a, b| (&a.address, &a.deposed).cmp(&(&b.address, &b.deposed)));
        let resources: Value = changes
            .into_iter()
            .map(|entry| resource(entry, origin.key))
            .collect();
        let outputs: Value = plan
            .output_changes
            .iter()
            .filter(|(_, change)| !change.is_no_op())
            .map(|(name, change)| output(name, change, origin.key))
            .collect();
        let other: Map<String, Value> = plan
            .other
            .iter()
            .map(|(name, value)| {
                (
                    name.clone(),
                    json!({ "sensitive": leaves::hashed(value, origin.key) }),
                )
            })
            .collect();
        let mut document = json!({
            "form": FORM,
            "inputs": origin.inputs,
            "modules": origin.modules,
            "lock": lock(origin.lock),
            "last_apply": origin.last_apply,
            "resources": resources,
            "outputs": outputs,
            "other": other,
        });
        if let Some(state) = plan.drawn_upon(origin.made) {
            let digest = keyed_text(origin.key, &canonical::json(&json!(state)));
            document["state"] = json!(format!("hmac-sha256:{digest}"));
        }
        Self(document)
    }

    /// The document. Sensitive values stand in it as keyed digests.
    #[must_use]
    pub const fn document(&self) -> &Value {
        &self.0
    }

    /// The text that is digested.
    #[must_use]
    pub fn canonical(&self) -> String {
        canonical::json(&self.0)
    }

    /// The first 160 bits of the SHA-256 of the canonical text.
    #[must_use]
    pub fn digest(&self) -> EffectDigest {
        let whole: [u8; 32] = Sha256::digest(self.canonical().as_bytes()).into();
        let mut first = [0; 20];
        first.copy_from_slice(&whole[..20]);
        EffectDigest::of_bytes(first)
    }

    /// The document for people: everything that the digest covers, sensitive values masked.
    #[must_use]
    pub fn text(&self) -> String {
        text::text(&self.0)
    }
}

/// The provider lock as its digest; empty when there is none.
fn lock(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        String::new()
    } else {
        format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
    }
}

/// One resource. Members that have nothing to say are left out.
fn resource(entry: &ResourceChange, key: &[u8]) -> Value {
    let change = &entry.change;
    // In their order: create-before-destroy is another effect than destroy-before-create.
    let mut told = json!({ "address": entry.address, "mode": entry.mode, "type": entry.type_,
        "provider": entry.provider_name, "actions": change.actions });
    let mut tell = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            told[name] = value;
        }
    };
    tell("deposed", entry.deposed.as_deref().map(Value::from));
    tell(
        "previous_address",
        entry.previous_address.as_deref().map(Value::from),
    );
    tell("reason", entry.action_reason.as_deref().map(Value::from));
    let id = change.before.get("id").filter(|id| !id.is_null());
    let marks = [&change.before_sensitive, &change.after_sensitive];
    let marks = marks.map(|marks| {
        if marks == &Value::Bool(true) {
            Some(marks)
        } else {
            marks.get("id")
        }
    });
    let hidden = marks.into_iter().find(|marks| leaves::has_true(*marks)).flatten();
    tell("id", id.map(|id| leaves::single(id, hidden, key)));
    tell(
        "importing",
        change
            .importing
            .as_ref()
            .map(|from| leaves::single(from, None, key)),
    );
    let forced = Some(&change.replace_paths).filter(|paths| !paths.is_null());
    tell(
        "replace_paths",
        forced.map(|paths| leaves::single(paths, None, key)),
    );
    // What goes is named by its id. Without one only what it holds tells it from another.
    let gone = change.actions == ["delete"] || change.actions == ["forget"];
    let named = gone && id.is_some();
    tell("changes", (!named).then(|| leaves::difference(change, key)));
    told
}

fn output(name: &str, change: &Change, key: &[u8]) -> Value {
    json!({ "name": name, "actions": change.actions, "changes": leaves::difference(change, key) })
}

/// The canonical text of a value's leaves, nothing of it marked.
pub(super) fn plain(value: &Value) -> String {
    canonical::json(&leaves::list(value, &[]))
}

/// HMAC-SHA-256 of a text under the object's key, in hex.
fn keyed_text(key: &[u8], text: &str) -> String {
    // RFC 2104 takes keys of any length: the error of this constructor cannot happen.
    Hmac::<Sha256>::new_from_slice(key).map_or_else(
        |_| String::new(),
        |mut mac| {
            mac.update(text.as_bytes());
            hex::encode(mac.finalize().into_bytes())
        },
    )
}

#[cfg(test)]
mod tests;
