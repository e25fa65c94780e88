//! `sluice logs` of logs that are stored in Secrets.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use sluice_api::run::TerraformRun;
use sluice_tf_core::chunk;
use sluice_tf_core::run_log;

use crate::fixture::TestEnvironment;

const PARTS: [&str; 3] = [
    "$ tofu init\nInitialized\n$ tofu plan\nfirst\n",
    "second\n",
    "third\n$ tofu apply\nlast\n",
];

/// The run of a stack and its log in Secrets.
struct StoredLog {
    environment: TestEnvironment,
    run: TerraformRun,
}

impl StoredLog {
    /// Stores the first of these parts. The status of the run is what its runner or the controller has reported.
    async fn with_parts(parts: &[&str], stored: usize, status: &Value) -> Self {
        let environment = TestEnvironment::with_stacks().await;
        let name = environment.create_run("app", 4).await;
        environment.report(&name, status).await;
        let runs: Api<TerraformRun> = Api::namespaced(environment.client(), "default");
        let run = runs.get(&name).await.unwrap();
        let log = Self { environment, run };
        let parts = parts.iter().map(|part| chunk::compress(part.as_bytes()).unwrap());
        let secrets = run_log::secrets(&log.run, parts.collect());
        for secret in &secrets[..stored] {
            log.create(secret).await;
        }
        if status.get("logSecret").is_some() {
            let named = json!({ "logSecret": log.name("") });
            log.environment.report(&name, &named).await;
        }
        log
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.environment.client(), "default")
    }

    async fn create(&self, secret: &Secret) {
        let created = self.secrets().create(&PostParams::default(), secret).await;
        created.unwrap();
    }

    /// The name of a Secret of the log.
    fn name(&self, suffix: &str) -> String {
        let run = self.run.metadata.name.as_deref().unwrap();
        format!("{}{suffix}", run_log::secret_name(run))
    }

    /// Returns exit code, standard output and standard error of `sluice logs`.
    async fn read(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let arguments = [&["logs", "app"], arguments].concat();
        let output = self.environment.sluice(&arguments).await;
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    }
}

/// The status of a run whose log is stored.
fn stored() -> Value {
    json!({ "jobName": "job", "logSecret": "" })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_parts_of_a_log_are_printed_in_their_order() {
    let log = StoredLog::with_parts(&PARTS, 3, &stored()).await;
    let (code, text, errors) = log.read(&[]).await;
    assert_eq!((code, text, errors), (Some(0), PARTS.concat(), String::new()));
    let (_, text, _) = log.read(&["--phase", "plan"]).await;
    assert_eq!(text, "$ tofu plan\nfirst\nsecond\nthird\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_one_secret_is_printed() {
    let log = StoredLog::with_parts(&PARTS[..1], 1, &stored()).await;
    let (code, text, errors) = log.read(&[]).await;
    assert_eq!((code, text.as_str(), errors.as_str()), (Some(0), PARTS[0], ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_is_missing_is_named_in_its_place() {
    let log = StoredLog::with_parts(&PARTS, 3, &stored()).await;
    let name = log.name("-1");
    let deleted = log.secrets().delete(&name, &DeleteParams::default()).await;
    deleted.unwrap();
    let check = async || {
        let (code, text, errors) = log.read(&[]).await;
        assert_eq!(code, Some(1), "{errors}");
        assert_eq!(
            text,
            format!(
                "{}(part 2 of 3 of the log is missing here)\n{}",
                PARTS[0], PARTS[2]
            )
        );
        let expected = format!("its log is not complete; missing: part 2 of 3, secret {name}");
        assert!(errors.contains(&expected), "{errors}");
    };
    check().await;
    let foreign = json!({ "metadata": { "name": name }, "data": { "log.gz": "" } });
    log.create(&serde_json::from_value(foreign).unwrap()).await;
    check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_with_the_name_of_the_log_that_is_not_of_the_run_is_not_printed() {
    let log = StoredLog::with_parts(&PARTS, 0, &stored()).await;
    let name = log.name("");
    let compressed = chunk::compress(b"of another run").unwrap();
    let foreign = json!({ "metadata": { "name": name }, "data": { "log.gz": ByteString(compressed) } });
    log.create(&serde_json::from_value(foreign).unwrap()).await;
    let (code, text, errors) = log.read(&[]).await;
    assert_eq!((code, text.as_str()), (Some(1), ""), "{errors}");
    let expected = format!("secret {name} has the name of its log, and is not of this run");
    assert!(errors.contains(&expected), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_runner_stored_before_it_died_is_printed() {
    let lost = json!({ "phase": "Lost", "jobName": "job", "logTail": "the end" });
    let log = StoredLog::with_parts(&PARTS, 2, &lost).await;
    let (code, text, errors) = log.read(&[]).await;
    assert_eq!(code, Some(1), "{errors}");
    assert_eq!(
        text,
        format!(
            "{}{}(part 3 of 3 of the log is missing here)\n",
            PARTS[0], PARTS[1]
        )
    );
    assert!(errors.contains("missing: part 3 of 3"), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_died_before_it_stored_its_log_has_the_end_of_it() {
    let lost = json!({ "phase": "Lost", "jobName": "job", "logTail": "the end" });
    let log = StoredLog::with_parts(&PARTS, 0, &lost).await;
    assert_eq!(
        log.read(&[]).await,
        (Some(0), "the end\n".to_owned(), String::new())
    );
    // Of another run, or of none.
    let foreign = json!({ "metadata": { "name": log.name("") }, "data": { "log.gz": "" } });
    log.create(&serde_json::from_value(foreign).unwrap()).await;
    let (_, text, _) = log.read(&[]).await;
    assert_eq!(text, "the end\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_of_a_part_that_is_not_stored_is_shown() {
    let mut status = stored();
    status["logError"] = json!("the log from part 2 of 3 on is not stored: no");
    let log = StoredLog::with_parts(&PARTS, 1, &status).await;
    let (code, text, errors) = log.read(&[]).await;
    assert_eq!(code, Some(1), "{errors}");
    assert!(text.starts_with(PARTS[0]), "{text}");
    assert!(
        errors.starts_with("The log is not complete: the log from part 2 of 3 on is not stored: no\n"),
        "{errors}"
    );
    assert!(
        errors.contains("part 2 of 3") && errors.contains("part 3 of 3"),
        "{errors}"
    );
}
