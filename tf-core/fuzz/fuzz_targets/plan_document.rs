//! Parses any bytes as the JSON of a plan; effect, summary and text are deterministic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_tf_core::plan::{document, effect, ignored_drift, summary};
use sluice_tf_core::redaction::Redactor;

fuzz_target!(|data: &[u8]| {
    let Ok(plan) = document::parse(data) else { return };
    let inputs = effect::PlanInputs {
        inputs: "inputs",
        modules: "",
        lock: b"",
        last_apply: "",
        has_generated_files: data.len() % 2 == 1,
        key: b"key",
    };
    let effect = effect::Effect::new(&plan, &inputs);
    assert_eq!(effect.digest(), effect::Effect::new(&plan, &inputs).digest());
    let _ = (effect.text(), summary::summarize(&plan));
    assert_eq!(ignored_drift::count(&plan, &[]).ignored, 0);
    let mut secrets = Redactor::default();
    secrets.add_plan(&plan);
    let _ = secrets.redact(&effect.canonical());
});
