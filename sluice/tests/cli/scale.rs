//! What commands ask of an API with 1,500 stacks: requests and bytes, which do not depend on the machine.

use std::process::Stdio;

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use sluice_api::run::TerraformRun;
use sluice_api::terraform::{Terraform, run_name};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::counter::{Count, Counter};
use crate::fixture::{TIMEOUT, TestEnvironment, ready, without_ages};

const STACKS: usize = 1_500;
/// Every tenth stack has a run.
const RUNS: usize = STACKS / 10;
/// The stacks with the label `team=net`. Each has a run.
const SELECTED: usize = 10;
/// Tasks that create stacks.
const WRITERS: usize = 8;
/// Bytes of the plan of each run.
const PLAN: usize = 16 << 10;
/// The most bytes of a stack. Its metadata, most of it managed fields, has about half of them.
const STACK: usize = 5_000;
/// The most bytes of a row of a table, with and without metadata. A run as a whole has more than [`PLAN`].
const ROW_WITH_METADATA: usize = 3_000;
const ROW: usize = 600;
/// The most bytes of a table without rows: the definitions of its columns.
const COLUMNS: usize = 4_000;

/// Commands about one stack or source, with the number of their requests.
const SINGLE: [(&[&str], usize); 14] = [
    (&["get", "terraforms", "app"], 1),
    (&["get", "terraforms", "app", "-o", "yaml"], 1),
    (&["get", "sources", "infra"], 1),
    (&["history", "app"], 2),
    (&["history", "app", "-o", "name"], 2),
    (&["tree", "app"], 3),
    (&["plan", "show", "app"], 3),
    (&["logs", "app"], 3),
    (&["diff", "app"], 2),
    (&["outputs", "app"], 1),
    (&["export", "app"], 1),
    (&["events", "app"], 5),
    (&["describe", "app"], 6),
    (&["state", "list", "app"], 3),
];

#[tokio::test(flavor = "multi_thread")]
async fn commands_ask_for_what_they_show() {
    let environment = TestEnvironment::with_stacks().await;
    let counter = Counter::open(&environment).await;
    let mut alone = Vec::new();
    for (arguments, requests) in SINGLE {
        let count = counter.run(arguments).await;
        assert_eq!(count.exchanges.len(), requests, "{arguments:?}: {count:#?}");
        check_urls(arguments, &count);
        alone.push(count.bytes());
    }
    create_stacks(&environment).await;
    for ((arguments, requests), before) in SINGLE.into_iter().zip(alone) {
        let count = counter.run(arguments).await;
        assert_eq!(count.exchanges.len(), requests, "{arguments:?}: {count:#?}");
        // Ages and versions have other digits.
        assert!(
            count.bytes() <= before + 256,
            "{arguments:?}: {} bytes, and {before} without the other stacks",
            count.bytes()
        );
    }
    views_of_all(&counter).await;
    views_of_a_team(&counter).await;
}

/// Views of all stacks: one request for each kind, and no plan.
async fn views_of_all(counter: &Counter) {
    let all = STACKS + 3;
    let stacks = view(counter, &["get", "terraforms"], 1).await.bytes();
    assert!(
        (all * 500..=all * STACK).contains(&stacks),
        "{stacks} bytes of {all} stacks"
    );
    let names = view(counter, &["get", "terraforms", "-o", "name"], 1)
        .await
        .bytes();
    assert!(names < stacks, "{names} bytes of names, {stacks} of stacks");
    view(counter, &["get"], 2).await;
    view(counter, &["status"], 2).await;
    let rows = view(counter, &["get", "runs"], 1).await.bytes();
    assert!(
        rows <= COLUMNS + (RUNS + 1) * ROW_WITH_METADATA,
        "{rows} bytes of {RUNS} runs"
    );
    let names = view(counter, &["get", "runs", "-o", "name"], 1).await.bytes();
    assert!(
        names <= (RUNS + 1) * ROW_WITH_METADATA,
        "{names} bytes of {RUNS} names"
    );
    let rows = view(counter, &["tree"], 3).await.bytes_of("/terraformruns");
    assert!(rows <= COLUMNS + (RUNS + 1) * ROW, "{rows} bytes of {RUNS} runs");
    // A whole run is what these bounds keep away.
    let whole = view(counter, &["get", "runs", "-o", "json"], 1).await.bytes();
    assert!(whole > RUNS * PLAN, "{whole} bytes of {RUNS} runs");
}

/// Views of some stacks: the API selects them, and their runs by their names.
async fn views_of_a_team(counter: &Counter) {
    let stacks = view(counter, &["get", "terraforms", "-l", "team=net"], 1).await;
    assert!(stacks.bytes() <= SELECTED * STACK, "{stacks:#?}");
    let status = view(counter, &["status", "-l", "team=net"], 2).await;
    assert!(status.bytes() <= (SELECTED + 1) * STACK, "{status:#?}");
    let tree = view(counter, &["tree", "-l", "team=net"], 3).await;
    let rows = tree.bytes_of("/terraformruns");
    assert!(
        (SELECTED * 100..=COLUMNS + SELECTED * ROW).contains(&rows),
        "{rows} bytes of {SELECTED} runs"
    );
}

/// Runs a command that shows many objects. It accepts what a kube-apiserver has in its cache, and asks for no pages.
async fn view(counter: &Counter, arguments: &[&str], requests: usize) -> Count {
    let count = counter.run(arguments).await;
    assert_eq!(count.exchanges.len(), requests, "{arguments:?}: {count:#?}");
    check_urls(arguments, &count);
    for exchange in &count.exchanges {
        let url = &exchange.request;
        assert!(url.contains("resourceVersion=0"), "{arguments:?}: {url}");
    }
    count
}

/// Requests are about objects of the namespace: nothing is discovered. A list with a selector has no limit, with which a kube-apiserver
/// before 1.34 reads all objects of the kind from etcd. Only requests at the same time open further connections.
fn check_urls(arguments: &[&str], count: &Count) {
    for exchange in &count.exchanges {
        let url = &exchange.request;
        assert!(
            url.starts_with("GET /api") && url.contains("/namespaces/default/"),
            "{arguments:?}: {url}"
        );
        assert!(!url.contains("limit="), "{arguments:?}: {url}");
    }
    assert!(
        (1..=count.exchanges.len()).contains(&count.connections),
        "{arguments:?}: {count:#?}"
    );
}

/// Creates stacks with the status that the controller gives them, several at a time.
async fn create_stacks(environment: &TestEnvironment) {
    let mut writers = JoinSet::new();
    for first in 0..WRITERS {
        let client = environment.client();
        writers.spawn(async move {
            for number in (first..STACKS).step_by(WRITERS) {
                create_stack(&client, number).await;
            }
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
}

async fn create_stack(client: &Client, number: usize) {
    let stacks: Api<Terraform> = Api::namespaced(client.clone(), "default");
    let name = format!("stack-{number:04}");
    let is_selected = number.is_multiple_of(STACKS / SELECTED);
    let labels = if is_selected {
        json!({"team": "net"})
    } else {
        json!({})
    };
    let stack = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
        "metadata": { "name": name, "labels": labels },
        "spec": { "interval": "1m", "path": format!("stacks/{number}"), "approvePlan": "auto",
            "sourceRef": { "kind": "GitRepository", "name": "infra" } } });
    let stack = serde_json::from_value(stack).unwrap();
    let created = stacks.create(&PostParams::default(), &stack).await.unwrap();
    let mut status = ready("True", "TerraformAppliedSucceed", "Applied successfully");
    status["lastAppliedRevision"] = json!("main@sha1:b8e362c206f0d1c9a7e5b3d1f9e7c5a3b1d9f7e5");
    let patch = Patch::Merge(json!({ "status": status }));
    let params = PatchParams::default();
    stacks.patch_status(&name, &params, &patch).await.unwrap();
    if number.is_multiple_of(STACKS / RUNS) {
        create_run(client, &created).await;
    }
}

/// Creates the first run of a stack, with a plan.
async fn create_run(client: &Client, stack: &Terraform) {
    let runs: Api<TerraformRun> = Api::namespaced(client.clone(), "default");
    let (stack, uid) = (stack.name_any(), stack.uid().unwrap());
    let name = run_name(&stack, &uid, 1);
    let run: Value = json!({ "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "TerraformRun",
        "metadata": { "name": name, "labels": { "infra.sluice.dev/terraform": stack } },
        "spec": { "action": "PlanAndApply", "attempt": 1, "deadline": "1h", "trigger": "Revision",
            "source": { "kind": "GitRepository", "name": "infra", "namespace": "default" },
            "terraform": { "generation": 1, "name": stack, "uid": uid } } });
    let run = serde_json::from_value(run).unwrap();
    runs.create(&PostParams::default(), &run).await.unwrap();
    let status = json!({ "phase": "Succeeded", "changes": "+1 ~0 -0", "message": "Applied", "hasChanges": true,
        "humanPlan": "p".repeat(PLAN) });
    let patch = Patch::Merge(json!({ "status": status }));
    let params = PatchParams::default();
    runs.patch_status(&name, &params, &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_the_api_says_what_whole_runs_say() {
    let environment = TestEnvironment::with_stacks().await;
    let revision = "main@sha1:b8e362c206f0d1c9a7e5b3d1f9e7c5a3b1d9f7e5";
    let history = cells_of_the_first_row(&environment.stdout(&["history", "app"]).await);
    let [number, _, rest @ ..] = history.as_slice() else {
        panic!("{history:?}");
    };
    assert_eq!(number, "3");
    let expected = [
        "Plan",
        "Revision",
        "main@sha1:b8e362c206",
        "Add a bucket",
        "Succeeded",
        "+1 ~0 -1",
        "42s",
        "-",
        "-",
    ];
    assert_eq!(rest, expected);
    let row = cells_of_the_first_row(&environment.stdout(&["get", "runs", "-A", "-o", "wide"]).await);
    assert_eq!(row[..2], ["default", row[1].as_str()]);
    assert_eq!(
        row[2..8],
        ["app", "Plan", "Revision", "Succeeded", "+1 ~0 -1", "42s"]
    );
    assert_eq!(row[10], "main@sha1:b8e362c206", "{row:?}");
    let whole = environment.stdout(&["get", "runs", &row[1], "-o", "wide"]).await;
    let whole = cells_of_the_first_row(&whole);
    // The age, at 8, may be a second more.
    assert_eq!((&whole[..7], &whole[8..]), (&row[1..8], &row[9..]));
    let tree = without_ages(&environment.stdout(&["tree", "app"]).await);
    let expected = format!(
        "GitRepository default/infra  {revision}\n└─ default/app  AwaitsApproval  after db\n   \
         └─ run 3  Succeeded  Plan (Revision)  +1 ~0 -1  (age) \n"
    );
    assert_eq!(tree, expected);
}

/// Returns the cells of the first row below the headings. Between two columns are at least three spaces.
fn cells_of_the_first_row(table: &str) -> Vec<String> {
    let row = table.lines().nth(1).unwrap_or_default();
    let cells = row.split("   ").map(str::trim).filter(|cell| !cell.is_empty());
    cells.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_few_threads_on_any_number_of_cores() {
    let environment = TestEnvironment::with_stacks().await;
    let mut watch = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["get", "terraforms", "-w"])
        .env("KUBECONFIG", environment.kubeconfig())
        // What a runtime takes for the number of cores.
        .env("TOKIO_WORKER_THREADS", "16")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let first = tokio::time::timeout(TIMEOUT, lines.next_line()).await;
    let first = first.expect("a line").unwrap().unwrap();
    assert!(first.starts_with("NAME"), "{first}");
    let threads = std::fs::read_dir(format!("/proc/{}/task", watch.id().unwrap())).unwrap();
    let threads = threads.count();
    assert!((2..=3).contains(&threads), "{threads} threads");
}
