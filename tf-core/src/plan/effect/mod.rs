//! The effect of a plan: the document that an approval covers, with one canonical text and one digest.
//!
//! It covers the inputs of the plan (stack inputs, downloaded modules, dependency lock file), its changes (changed leaves only, with
//! sensitive values as keyed digests), the values that its hidden inputs depend on, and the last started apply of the stack, which
//! makes each digest single-use. [`Effect::text`] shows the document to users. `docs/reference/plan-id.md` defines it for other
//! implementations.

mod leaves;
mod text;

use hmac::{Hmac, KeyInit, Mac};
pub(super) use leaves::has_true;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use sluice_api::terraform::plan_id::EffectDigest;

use super::document::{Change, PlanDocument, ResourceChange};
use crate::canonical;

/// Version of the document. A new version changes all digests, so pending plans need a new approval.
const FORM: &str = "sluice.effect/2";

/// The inputs of a plan except for its JSON.
#[derive(Clone, Copy, Debug)]
pub struct PlanInputs<'a> {
    /// Digest of closure, variables, backend, workspace and targets.
    pub inputs: &'a str,
    /// Digest of the downloaded modules.
    pub modules: &'a str,
    /// Content of the dependency lock file; empty if there is none.
    pub lock: &'a [u8],
    /// Name of the stack's last run that started an apply, or whose plan was rejected; empty before the first.
    pub last_apply: &'a str,
    /// Whether the plan generated files, which may depend on data sources.
    pub has_generated_files: bool,
    /// Key for digests of sensitive values.
    pub key: &'a [u8],
}

/// The effect of one plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect(Value);

impl Effect {
    /// Creates the effect of a plan.
    #[must_use]
    pub fn new(plan: &PlanDocument, inputs: &PlanInputs<'_>) -> Self {
        let mut changes: Vec<_> = plan
            .resource_changes
            .iter()
            .filter(|change| change.is_effect())
            .collect();
        changes.sort_by(|a, b| (&a.address, &a.deposed).cmp(&(&b.address, &b.deposed)));
        let resources: Value = changes
            .into_iter()
            .map(|entry| resource(entry, inputs.key))
            .collect();
        let outputs: Value = plan
            .output_changes
            .iter()
            .filter(|(_, change)| !change.is_no_op())
            .map(|(name, change)| output(name, change, inputs.key))
            .collect();
        let other: Map<String, Value> = plan
            .other
            .iter()
            .map(|(name, value)| {
                (
                    name.clone(),
                    json!({ "sensitive": leaves::hashed(value, inputs.key) }),
                )
            })
            .collect();
        let mut document = json!({
            "form": FORM,
            "inputs": inputs.inputs,
            "modules": inputs.modules,
            "lock": lock(inputs.lock),
            "last_apply": inputs.last_apply,
            "resources": resources,
            "outputs": outputs,
            "other": other,
        });
        if let Some(state) = plan.state_digests(inputs.has_generated_files) {
            let digest = keyed_digest(inputs.key, &canonical::json(&json!(state)));
            document["state"] = json!(format!("hmac-sha256:{digest}"));
        }
        Self(document)
    }

    /// Returns the document. It has keyed digests in place of sensitive values.
    #[must_use]
    pub const fn document(&self) -> &Value {
        &self.0
    }

    /// Returns the canonical text.
    #[must_use]
    pub fn canonical(&self) -> String {
        canonical::json(&self.0)
    }

    /// Returns the first 160 bits of the SHA-256 of the canonical text.
    #[must_use]
    pub fn digest(&self) -> EffectDigest {
        let hash: [u8; 32] = Sha256::digest(self.canonical().as_bytes()).into();
        let mut first = [0; 20];
        first.copy_from_slice(&hash[..20]);
        EffectDigest::of_bytes(first)
    }

    /// Returns the document for users, without sensitive values.
    #[must_use]
    pub fn text(&self) -> String {
        text::text(&self.0)
    }
}

/// Returns the digest of the dependency lock file; empty if there is none.
fn lock(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        String::new()
    } else {
        format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
    }
}

/// Returns the document of one resource, without empty members.
fn resource(entry: &ResourceChange, key: &[u8]) -> Value {
    let change = &entry.change;
    // The order matters: create-before-destroy is another effect than destroy-before-create.
    let mut document = json!({ "address": entry.address, "mode": entry.mode, "type": entry.type_,
        "provider": entry.provider_name, "actions": change.actions });
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            document[name] = value;
        }
    };
    add("deposed", entry.deposed.as_deref().map(Value::from));
    add(
        "previous_address",
        entry.previous_address.as_deref().map(Value::from),
    );
    add("reason", entry.action_reason.as_deref().map(Value::from));
    let id = change.before.get("id").filter(|id| !id.is_null());
    let marks = [&change.before_sensitive, &change.after_sensitive];
    let marks = marks.map(|marks| {
        if marks == &Value::Bool(true) {
            Some(marks)
        } else {
            marks.get("id")
        }
    });
    let sensitive = marks.into_iter().find(|marks| has_true(*marks)).flatten();
    add("id", id.map(|id| leaves::single(id, sensitive, key)));
    add(
        "importing",
        change
            .importing
            .as_ref()
            .map(|from| leaves::single(from, None, key)),
    );
    let forced = Some(&change.replace_paths).filter(|paths| !paths.is_null());
    add(
        "replace_paths",
        forced.map(|paths| leaves::single(paths, None, key)),
    );
    // The id identifies a removed object. Without an id, its values do.
    let is_removed = change.actions == ["delete"] || change.actions == ["forget"];
    let is_identified = is_removed && id.is_some();
    add(
        "changes",
        (!is_identified).then(|| leaves::difference(change, key)),
    );
    document
}

fn output(name: &str, change: &Change, key: &[u8]) -> Value {
    json!({ "name": name, "actions": change.actions, "changes": leaves::difference(change, key) })
}

/// Returns the canonical text of the leaves of an unmarked value.
pub(super) fn canonical_leaves(value: &Value) -> String {
    canonical::json(&leaves::list(value, &[]))
}

/// Returns the HMAC-SHA-256 of a text, in hex.
fn keyed_digest(key: &[u8], text: &str) -> String {
    // HMAC accepts keys of any length, so this constructor does not fail.
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
