//! Commands that look: what a user sees in a terminal, and what a script gets.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::fixture::{TIMEOUT, TestEnvironment, ready, without_ages};
use crate::terminal;

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_namespace_says_how_to_begin() {
    let environment = TestEnvironment::start().await;
    let output = environment.sluice(&["status"]).await;
    assert_eq!(output.stdout, b"0 stacks; 0 sources\n");
    let advice = String::from_utf8(output.stderr).unwrap();
    assert!(
        advice.contains("sluice create source git --help") && advice.contains("-A"),
        "{advice}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_to_show_is_no_data() {
    let environment = TestEnvironment::start().await;
    environment.create_stack("new", &json!({}), &json!({})).await;
    let output = environment.sluice(&["get", "sources"]).await;
    assert_eq!(output.stdout, b"");
    let both = environment.stdout(&["get"]).await;
    assert!(
        both.starts_with("NAME "),
        "no table, no line between tables: {both}"
    );
    let output = environment.sluice(&["history", "new"]).await;
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(0), b"".as_slice())
    );
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "terraform default/new has no run yet.\n"
    );
    let output = environment.sluice(&["logs", "new"]).await;
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "sluice: terraform default/new: it has no run yet\n  next: sluice describe new\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn stacks_have_a_state_in_one_word() {
    let environment = TestEnvironment::with_stacks().await;
    let text = without_ages(&environment.stdout(&["get", "terraforms"]).await);
    insta::assert_snapshot!(text, @r"
    NAME   STATE            APPLIED   AGE   MESSAGE
    app    AwaitsApproval   -         (age) Plan generated
    db     Failed           -         (age) error running Plan: exit status 1
    net    Ready            -         (age) Applied
    ");
    let sources = without_ages(&environment.stdout(&["get", "sources", "-o", "wide"]).await);
    assert!(
        sources.contains("main@sha1:b8e362c206 ") && sources.contains("https://git.example/infra.git"),
        "{sources}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_prints_what_changes() {
    let environment = TestEnvironment::with_stacks().await;
    let mut watch = environment.spawn(&["get", "terraforms", "-w"]);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut line_of_net = async || loop {
        let line = tokio::time::timeout(TIMEOUT, lines.next_line())
            .await
            .expect("a line");
        let line = line.unwrap().expect("the watch goes on");
        if line.starts_with("net ") {
            return line;
        }
    };
    assert!(line_of_net().await.contains("Ready"));
    let failed = json!({ "status": ready("False", "TFExecPlanFailed", "exit status 1") });
    let stacks = environment.stacks();
    stacks
        .patch_status("net", &PatchParams::default(), &Patch::Merge(failed))
        .await
        .unwrap();
    let changed = line_of_net().await;
    assert!(
        changed.contains("Failed") && changed.contains("exit status 1"),
        "{changed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_data_for_scripts() {
    let environment = TestEnvironment::with_stacks().await;
    let list: Value = serde_json::from_str(&environment.stdout(&["get", "tf", "-o", "json"]).await).unwrap();
    assert_eq!(list["kind"], "List");
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
    let one: Value =
        serde_json::from_str(&environment.stdout(&["get", "tf", "app", "-o", "json"]).await).unwrap();
    assert_eq!(
        (&one["kind"], &one["metadata"]["name"]),
        (&"Terraform".into(), &"app".into())
    );
    let selected = environment.stdout(&["get", "sources", "-o", "json"]).await;
    let selected: Value = serde_json::from_str(&selected).unwrap();
    assert_eq!(
        (&selected["kind"], &selected["items"][0]["kind"]),
        (&"List".into(), &"GitRepository".into()),
        "a list of one object is a list"
    );
    let both: Value = serde_json::from_str(&environment.stdout(&["get", "-o", "json"]).await).unwrap();
    let kinds: Vec<_> = both["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| object["kind"].clone())
        .collect();
    assert_eq!(kinds, ["GitRepository", "Terraform", "Terraform", "Terraform"]);
    let names = environment.stdout(&["get", "tf", "-o", "name"]).await;
    assert_eq!(
        names,
        "terraform.infra.contrib.fluxcd.io/app\nterraform.infra.contrib.fluxcd.io/db\nterraform.infra.contrib.fluxcd.io/net\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_screen_says_what_needs_the_user() {
    let environment = TestEnvironment::with_stacks().await;
    insta::assert_snapshot!(environment.stdout(&["status"]).await, @r"
    Wait for your approval (1)
      default/app   sluice approve app -n default

    Failed (1)
      default/db   TFExecPlanFailed: error running Plan: exit status 1

    3 stacks: 1 Ready, 1 Failed, 1 AwaitsApproval; 1 source
    ");
    insta::assert_snapshot!(without_ages(&environment.stdout(&["tree"]).await), @r"
    GitRepository default/infra  main@sha1:b8e362c206f0d1c9a7e5b3d1f9e7c5a3b1d9f7e5
    ├─ default/net  Ready
    ├─ default/db  Failed  after net
    └─ default/app  AwaitsApproval  after db
       └─ run 3  Succeeded  Plan (Revision)  +1 ~0 -1  (age) 
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_has_colours_and_no_line_is_wider_than_it() {
    let environment = TestEnvironment::with_stacks().await;
    let colours = regex::Regex::new("\u{1b}\\[[0-9;]*m").unwrap();
    for columns in [80, 160] {
        let session = terminal::run(&environment, columns, &["get", "terraforms"], "", "");
        assert_eq!(session.code, 0, "{}", session.text);
        assert!(
            session.text.contains("\u{1b}[31mFailed\u{1b}[0m"),
            "{}",
            session.text
        );
        let plain = colours.replace_all(&session.text, "");
        assert!(
            plain
                .lines()
                .all(|line| line.chars().count() <= usize::from(columns)),
            "{plain}"
        );
    }
    let plain = terminal::run(&environment, 80, &["get", "terraforms", "--no-color"], "", "");
    assert!(!plain.text.contains('\u{1b}'), "{}", plain.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_table_is_wider_than_its_terminal() {
    let environment = TestEnvironment::with_stacks().await;
    for arguments in [
        ["get"].as_slice(),
        &["get", "-o", "wide"],
        &["get", "runs"],
        &["history", "app"],
        &["version"],
        &["check"],
        &["check", "--pre"],
    ] {
        for columns in [80, 160] {
            let arguments = [arguments, &["--no-color"]].concat();
            let session = terminal::run(&environment, columns, &arguments, "", "");
            assert_eq!(session.code, 0, "{}", session.text);
            let widest = session.text.lines().map(|line| line.chars().count()).max();
            assert!(
                widest <= Some(usize::from(columns)),
                "{arguments:?}: {}",
                session.text
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overview_a_tree_a_description_and_a_difference_are_reports_with_a_version() {
    let environment = TestEnvironment::with_stacks().await;
    let commands: [(&[&str], &str); 4] = [
        (&["status"], "StatusReport"),
        (&["tree"], "TreeReport"),
        (&["describe", "app"], "StackReport"),
        (&["diff", "app"], "DiffReport"),
    ];
    let mut reports = Vec::new();
    for (arguments, kind) in commands {
        let json = environment.stdout(&[arguments, &["-o", "json"]].concat()).await;
        let report: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&report["apiVersion"], &report["kind"]),
            (&json!("cli.sluice.dev/v1alpha1"), &json!(kind))
        );
        let yaml = environment.stdout(&[arguments, &["-o", "yaml"]].concat()).await;
        assert_eq!(serde_yaml_ng::from_str::<Value>(&yaml).unwrap()["kind"], kind);
        reports.push(report);
    }
    let [status, tree, stack, diff] = reports.as_slice() else {
        panic!("{reports:?}")
    };
    assert_eq!(status["stacks"][0]["name"], "app");
    assert_eq!(tree["items"][0]["stacks"][2]["lastRun"]["number"], 3);
    assert_eq!(stack["plannedRun"]["status"]["changes"], "+1 ~0 -1");
    assert_eq!(diff["changes"][0]["address"], "terraform_data.old");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_line_of_a_tree_a_description_an_overview_or_a_migration_is_wider_than_the_terminal() {
    let environment = TestEnvironment::with_stacks().await;
    let message = "error running Plan: exit status 1: no valid credential sources for the provider were found in any of the places";
    let others: Vec<_> = (0..9)
        .map(|number| json!({ "name": format!("network-{number}") }))
        .collect();
    let long = "team-platform-network-of-the-production-environment";
    environment
        .create_stack(
            long,
            &json!({ "dependsOn": others }),
            &ready("False", "TFExecPlanFailed", message),
        )
        .await;
    environment.create_run(long, 7).await;
    let commands: [&[&str]; 5] = [
        &["status"],
        &["tree"],
        &["tree", long],
        &["describe", long],
        &["migrate"],
    ];
    for columns in [80, 160] {
        for arguments in commands {
            let session = terminal::run(
                &environment,
                columns,
                &[arguments, &["--no-color"]].concat(),
                "",
                "",
            );
            assert_eq!(session.code, 0, "{}", session.text);
            // Commands to copy stay whole.
            let texts = session.text.lines().filter(|line| !line.contains("kubectl"));
            let widest = texts.map(|line| line.chars().count()).max();
            assert!(
                widest <= Some(usize::from(columns)),
                "{arguments:?}: {}",
                session.text
            );
        }
        // A description is not cut: its messages are broken between words.
        let session = terminal::run(&environment, columns, &["describe", long, "--no-color"], "", "");
        let words: Vec<&str> = session.text.split_whitespace().collect();
        assert!(words.join(" ").contains(message), "{}", session.text);
    }
    assert!(environment.stdout(&["describe", long]).await.contains(message));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_narrow_terminal_leaves_columns_of_the_history_out() {
    let environment = TestEnvironment::with_stacks().await;
    for (columns, headings) in [
        (80, "RUN AGE TRIGGER REVISION SUBJECT PHASE CHANGES"),
        (
            160,
            "RUN AGE ACTION TRIGGER REVISION SUBJECT PHASE CHANGES DURATION APPROVED BY MESSAGE",
        ),
    ] {
        let session = terminal::run(&environment, columns, &["history", "app", "--no-color"], "", "");
        assert_eq!(session.code, 0, "{}", session.text);
        let lines: Vec<_> = session.text.lines().collect();
        let shown: Vec<_> = lines[0].split_whitespace().collect();
        assert_eq!(shown.join(" "), headings);
        assert!(lines[1].contains("   Add a bucket   "), "{}", session.text);
        let widest = lines.iter().map(|line| line.chars().count()).max();
        assert!(widest <= Some(usize::from(columns)), "{}", session.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_printed_as_a_whole_or_by_phase() {
    let environment = TestEnvironment::with_stacks().await;
    assert_eq!(
        environment.stdout(&["logs", "app"]).await,
        "$ tofu plan\nPlan: 1 to add, 1 to destroy\n"
    );
    assert_eq!(
        environment
            .stdout(&["logs", "app", "--run", "3", "--phase", "apply"])
            .await,
        ""
    );
    let missing = environment.sluice(&["logs", "app", "--run", "9"]).await;
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(missing.stderr).unwrap(),
        "sluice: terraform default/app: it has no run 9, or the run is not retained any more\n  next: sluice history app\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_does_not_exist_is_named_with_the_next_command() {
    let environment = TestEnvironment::start().await;
    let output = environment.sluice(&["describe", "web"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"");
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "sluice: terraform default/web does not exist\n  next: sluice get terraforms -n default\n"
    );
    let usage = environment.sluice(&["get", "stacks", "--bogus"]).await;
    assert_eq!(usage.status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_context_of_a_flag_counts_without_the_flag_of_a_kubeconfig() {
    let environment = TestEnvironment::with_stacks().await;
    environment.add_context("team", "team");
    let other = environment
        .sluice(&["get", "terraforms", "--context", "team"])
        .await;
    assert!(other.status.success(), "{other:?}");
    let note = String::from_utf8(other.stderr).unwrap();
    assert_eq!(note, "There is no Terraform in the namespace team.\n");
    let absent = environment
        .sluice(&["get", "terraforms", "--context", "absent"])
        .await;
    assert_eq!(absent.status.code(), Some(1));
    let error = String::from_utf8(absent.stderr).unwrap();
    assert!(error.contains("context: absent"), "{error}");
}
