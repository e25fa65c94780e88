//! Logs of runs that one Secret does not hold.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use sluice_tf_core::run_log::{KEY, PART_LIMIT};
use tokio_util::sync::CancellationToken;

use crate::cli_wrapper::wrap_cli;
use crate::environment::{NAMESPACE, RunSetup, TestEnvironment, ending, status};
use crate::logs::{ReadCommand, in_pod, read_log, run_in_pod};

/// Lines of digests, of which compression leaves more than half: three parts.
fn digests() -> String {
    let line = |number: u32| format!("{}\n", hex::encode(Sha256::digest(number.to_be_bytes())));
    (0..34_000).map(line).collect::<Vec<_>>().concat()
}

/// Returns a directory with a CLI whose plan prints a text and fails.
fn printing_cli(env: &TestEnvironment, text: &str) -> PathBuf {
    env.commit(&[("main.tf", "output \"x\" { value = 1 }")]);
    let file = env.dir.path().join("printed");
    std::fs::write(&file, text).unwrap();
    let script = format!(
        "if [ \"$1\" = plan ]; then cat {}; echo 'Error: no' >&2; exit 1; fi",
        file.display()
    );
    wrap_cli(env, &script)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_three_parts_is_stored_as_a_whole() {
    let env = TestEnvironment::new("auto").await;
    let text = digests();
    let cli = printing_cli(&env, &text);
    let (run, _) = run_in_pod(&env, RunSetup::plan(), Some(&cli)).await;
    let (name, result) = (run.name_any(), status(&run));
    assert_eq!(ending(&run), "Failed TFExecPlanFailed", "{}", result.message);
    assert_eq!(
        (result.log_secret.clone(), result.log_error.as_str()),
        (format!("{name}-log"), "")
    );
    let api: Api<Secret> = Api::namespaced(env.client(), NAMESPACE);
    for suffix in ["", "-1", "-2"] {
        let secret = api.get(&format!("{name}-log{suffix}")).await.unwrap();
        assert_eq!(
            secret.owner_references()[0].uid,
            run.uid().unwrap(),
            "it is deleted with the run"
        );
        assert_eq!(secret.immutable, Some(true));
        assert!(secret.data.unwrap()[KEY].0.len() <= PART_LIMIT);
    }
    assert!(api.get_opt(&format!("{name}-log-3")).await.unwrap().is_none());
    let log = tokio::task::block_in_place(|| read_log(&env, &name, ReadCommand::AllParts));
    assert!(log.contains(&text), "{} of {} bytes", log.len(), text.len());
    assert!(log.starts_with("$ ") && log.trim_end().ends_with(&result.log_tail));
}

/// As when the runner dies between the first and the second part: what is stored is the beginning, and the run names it.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_whose_second_part_cannot_be_stored_has_its_first() {
    let env = TestEnvironment::new("auto").await;
    let text = digests();
    let cli = printing_cli(&env, &text);
    let name = env.prepare(RunSetup::plan()).await;
    let foreign: Secret =
        serde_json::from_value(json!({ "metadata": { "name": format!("{name}-log-1") } })).unwrap();
    let api: Api<Secret> = Api::namespaced(env.client(), NAMESPACE);
    api.create(&PostParams::default(), &foreign).await.unwrap();
    let (mut context, _) = in_pod(&env, &name);
    let path = context.environment.get_mut("PATH").unwrap();
    *path = format!("{}:{path}", cli.display());
    env.execute_run(&name, context, CancellationToken::new()).await;
    let run = env.get(&name).await;
    let result = status(&run);
    assert_eq!(ending(&run), "Failed TFExecPlanFailed", "{}", result.message);
    assert_eq!(result.log_secret, format!("{name}-log"));
    assert_eq!(
        result.log_error,
        format!(
            "the log from part 2 of 3 on is not stored: the Secret {name}-log-1 exists and is not of this run; delete it"
        )
    );
    let log = tokio::task::block_in_place(|| read_log(&env, &name, ReadCommand::OnePart));
    let (title, output) = log.split_once(" plan ").unwrap();
    let (_, output) = output.split_once('\n').unwrap();
    assert!(title.starts_with("$ ") && text.starts_with(output) && output.len() > 500_000);
}
