//! An API that is slow, away for a while, or loses connections; and Ctrl-C while a command waits.

use std::time::Instant;

use kube::api::{Patch, PatchParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader, Lines};
use tokio::process::Child;

use crate::act::{answer, requested};
use crate::fixture::{TIMEOUT, TestEnvironment, ready, start, stderr_of};
use crate::proxy::{Fault, Proxy};
use crate::terminal;

/// The lines of an output.
struct Output<R>(Lines<BufReader<R>>);

impl<R: AsyncRead + Unpin> Output<R> {
    fn new(stream: R) -> Self {
        Self(BufReader::new(stream).lines())
    }

    /// Returns the next line that begins with this text.
    async fn line(&mut self, front: &str) -> String {
        loop {
            let line = tokio::time::timeout(TIMEOUT, self.0.next_line()).await;
            let line = line.expect("a line in time").unwrap();
            let line = line.unwrap_or_else(|| panic!("the output ends before {front:?}"));
            if line.starts_with(front) {
                return line;
            }
        }
    }

    /// Returns all that follows.
    async fn rest(self) -> String {
        let mut text = String::new();
        let mut stream = self.0.into_inner();
        let reading = stream.read_to_string(&mut text);
        tokio::time::timeout(TIMEOUT, reading)
            .await
            .expect("the output ends")
            .unwrap();
        text
    }
}

/// Returns the exit code of a command when it has ended.
async fn code(mut command: Child) -> Option<i32> {
    let ended = tokio::time::timeout(TIMEOUT, command.wait()).await;
    ended.expect("the command ends").unwrap().code()
}

/// Presses Ctrl-C in the terminal of a command.
fn interrupt(command: &Child) {
    let id = command.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    kill_process(id.unwrap(), Signal::INT).unwrap();
}

/// Creates an active run of the stack `app`, newer than its others.
async fn active_run(environment: &TestEnvironment) -> String {
    let run = environment.create_run("app", 4).await;
    environment.set_phase(&run, "Planning").await;
    run
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_terminal_shows_what_a_slow_api_is_asked_for() {
    let environment = TestEnvironment::start().await;
    let proxy = Proxy::open(&environment).await;
    proxy.set(Fault::Hold);
    let deadline = Instant::now() + TIMEOUT;
    let arguments = ["get", "terraforms", "--request-timeout=3s"];
    let mut slow = terminal::start(proxy.kubeconfig(), 80, &arguments);
    let is_shown = slow.wait_for("terraforms: waiting for the API", deadline);
    assert!(is_shown, "{}", slow.text());
    let session = terminal::end(slow, deadline);
    assert_eq!(session.code, 1, "{}", session.text);
    insta::assert_snapshot!(terminal::seen(&session.text, 80), @r"
    sluice: cannot list terraforms: no complete response from the API within 3s
      next: the API does not answer: check the server of the kubeconfig, and a proxy
    ");
    assert_eq!(proxy.met(), 1);
    // A script sees no progress.
    let arguments = ["get", "terraforms", "--request-timeout=1500ms"];
    let (code, text) = stderr_of(proxy.kubeconfig(), &arguments).await;
    assert!(code == 1 && !text.contains("waiting for"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_at_its_timeout_although_the_api_is_silent() {
    let environment = TestEnvironment::with_stacks().await;
    let proxy = Proxy::open(&environment).await;
    let arguments = ["reconcile", "net", "--wait", "--timeout=5s"];
    let mut waiting = start(proxy.kubeconfig(), &arguments);
    let mut notes = Output::new(waiting.stderr.take().unwrap());
    notes.line("waiting for terraform default/net: ").await;
    proxy.set(Fault::Hold);
    proxy.cut();
    assert_eq!(code(waiting).await, Some(4));
    let text = notes.rest().await;
    assert!(
        text.contains("terraform default/net was not ready after 5 s"),
        "{text}"
    );
    assert!(proxy.met() > 0, "the command asked again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_after_lost_connections_and_ends_when_it_is_refused() {
    let environment = TestEnvironment::with_stacks().await;
    let proxy = Proxy::open(&environment).await;
    let mut watch = start(proxy.kubeconfig(), &["get", "terraforms", "-w"]);
    let mut lines = Output::new(watch.stdout.take().unwrap());
    let mut notes = Output::new(watch.stderr.take().unwrap());
    assert!(lines.line("net ").await.contains("Ready"));
    proxy.lose_connections().await;
    notes
        .line("The watch is interrupted: the API does not answer")
        .await;
    let failed = Patch::Merge(json!({ "status": ready("False", "TFExecPlanFailed", "exit status 1") }));
    let stacks = environment.stacks();
    stacks
        .patch_status("net", &PatchParams::default(), &failed)
        .await
        .unwrap();
    assert!(lines.line("net ").await.contains("exit status 1"));
    proxy.set(Fault::Answer(401, "Unauthorized", usize::MAX));
    proxy.cut();
    assert_eq!(code(watch).await, Some(1));
    let text = notes.rest().await;
    assert!(
        text.contains("sluice: cannot watch terraforms: Unauthorized\n  next: the credentials"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_goes_on_after_lost_connections() {
    let environment = TestEnvironment::with_stacks().await;
    let proxy = Proxy::open(&environment).await;
    let before = requested(&environment).await;
    let mut waiting = start(proxy.kubeconfig(), &["reconcile", "net", "--wait"]);
    let mut notes = Output::new(waiting.stderr.take().unwrap());
    notes.line("waiting for terraform default/net: ").await;
    proxy.lose_connections().await;
    let applied = ready("True", "TerraformAppliedSucceed", "Applied");
    answer(&environment, &before, applied).await;
    assert_eq!(code(waiting).await, Some(0));
    let text = notes.rest().await;
    assert!(text.ends_with("terraform default/net: Applied\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_log_goes_on_after_lost_connections_and_has_each_line_once() {
    let environment = TestEnvironment::with_stacks().await;
    let run = active_run(&environment).await;
    let proxy = Proxy::open(&environment).await;
    let mut logs = start(proxy.kubeconfig(), &["logs", "app", "-f"]);
    let mut lines = Output::new(logs.stdout.take().unwrap());
    let mut notes = Output::new(logs.stderr.take().unwrap());
    lines.line("Plan: 1 to add, 1 to destroy").await;
    proxy.lose_connections().await;
    notes.line("The log is interrupted, trying again: ").await;
    let tail = "$ tofu plan\nPlan: 1 to add, 1 to destroy\nSaved the plan\n";
    let ended = json!({ "phase": "Succeeded", "message": "planned", "logTail": tail });
    environment.report(&run, &ended).await;
    assert_eq!(code(logs).await, Some(0));
    assert_eq!(lines.rest().await, "Saved the plan\n");
    let text = notes.rest().await;
    assert!(text.ends_with("Run 4 Succeeded: planned\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_approval_the_log_of_its_apply_is_followed() {
    let environment = TestEnvironment::with_stacks().await;
    let approved = environment.sluice(&["approve", "app", "--yes"]).await;
    assert!(approved.status.success(), "{approved:?}");
    let mut logs = start(&environment.kubeconfig(), &["logs", "app", "-f"]);
    let lines = Output::new(logs.stdout.take().unwrap());
    let mut notes = Output::new(logs.stderr.take().unwrap());
    let awaited = notes.line("plan-main-").await;
    assert!(
        awaited.contains(" is approved, waiting for the run of its apply: "),
        "{awaited}"
    );
    let run = environment.create_apply("app", 4).await;
    notes.line("Run 4 Applying").await;
    let tail = "$ tofu apply\nApply complete!\n";
    let ended = json!({ "phase": "Succeeded", "message": "applied", "logTail": tail });
    environment.report(&run, &ended).await;
    assert_eq!(code(logs).await, Some(0));
    // The log of the plan is not in it.
    assert_eq!(lines.rest().await, tail);
    let text = notes.rest().await;
    assert!(text.ends_with("Run 4 Succeeded: applied\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_the_waiting_and_not_the_run() {
    let environment = TestEnvironment::with_stacks().await;
    let mut waiting = start(&environment.kubeconfig(), &["reconcile", "net", "--wait"]);
    let mut notes = Output::new(waiting.stderr.take().unwrap());
    notes.line("waiting for terraform default/net: ").await;
    let stack = environment.stack("net").await;
    interrupt(&waiting);
    assert_eq!(code(waiting).await, Some(1));
    assert_eq!(
        notes.rest().await,
        "sluice: interrupted; terraform default/net goes on without this command\n  next: sluice get terraforms net -n default\n"
    );
    assert_eq!(environment.stack("net").await, stack, "the request stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_a_followed_log_and_not_the_run() {
    let environment = TestEnvironment::with_stacks().await;
    let run = active_run(&environment).await;
    let mut logs = start(&environment.kubeconfig(), &["logs", "app", "-f"]);
    let mut notes = Output::new(logs.stderr.take().unwrap());
    notes.line("Run 4 Planning").await;
    // With its second line, the command is known to receive the signal.
    environment.set_phase(&run, "Applying").await;
    notes.line("Run 4 Applying").await;
    interrupt(&logs);
    assert_eq!(code(logs).await, Some(1));
    assert_eq!(
        notes.rest().await,
        "\nThe run goes on. `sluice logs app -f` comes back.\n"
    );
    let run = environment.runs().get(&run).await.unwrap();
    assert_eq!(run.data["status"]["phase"], "Applying");
    assert_eq!(run.metadata.annotations, None, "the run is not cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_api_is_asked_again() {
    let environment = TestEnvironment::with_stacks().await;
    let proxy = Proxy::open(&environment).await;
    proxy.set(Fault::Answer(429, "too many requests", 2));
    let mut list = start(proxy.kubeconfig(), &["get", "terraforms", "-o", "json"]);
    let lines = Output::new(list.stdout.take().unwrap());
    let text = lines.rest().await;
    assert_eq!(code(list).await, Some(0));
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["items"].as_array().map(Vec::len), Some(3), "{text}");
    assert_eq!(proxy.met(), 2);
}
