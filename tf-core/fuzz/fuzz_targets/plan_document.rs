//! Any bytes are a plan's JSON or not; what is one has an effect, a summary and a text, the same each time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_tf_core::plan::{document, effect, ignored, summary};
use sluice_tf_core::secrets::Secrets;

fuzz_target!(|data: &[u8]| {
    let Ok(plan) = document::parse(data) else { return };
    let origin = effect::Origin {
        inputs: "inputs",
        modules: "",
        lock: b"",
        last_apply: "",
        made: data.len() % 2 == 1,
        key: b"key",
    };
    let effect = effect::Effect::new(&plan, &origin);
    assert_eq!(effect.digest(), effect::Effect::new(&plan, &origin).digest());
    let _ = (effect.text(), summary::summarize(&plan));
    assert_eq!(ignored::ignored(&plan, &[]).ignored, 0);
    let mut secrets = Secrets::default();
    secrets.learn_plan(&plan);
    let _ = secrets.hide(&effect.canonical());
});
