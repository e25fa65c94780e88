//! A server on a Git repository: the API, and people who push to it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use sluice_embedded::{ApiServer, GitOptions, Store};

use crate::fixture::{WIDGETS, eventually, ok, server_on, widget, widget_definition};

/// Runs git in a directory.
fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@b.example"])
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn repository(dir: &Path) -> PathBuf {
    git(
        dir,
        &[
            "init",
            "--quiet",
            "--bare",
            "--initial-branch=main",
            "objects.git",
        ],
    );
    dir.join("objects.git")
}

fn server(dir: &Path, repository: &Path) -> ApiServer {
    let options = GitOptions {
        repository: repository.to_owned(),
        branch: "main".to_owned(),
        subdir: String::new(),
        interval: Duration::from_millis(50),
        local: dir.join("local.redb"),
    };
    server_on(Store::git(options, &[widget_definition()]).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_and_people_write_the_same_files() {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let client = server(dir.path(), &repository).client();
    ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    let status = json!({"status": {"phase": "Ready"}});
    ok(&client, "PATCH", &format!("{WIDGETS}/a/status"), Some(&status)).await;
    let commits = || git(&repository, &["rev-list", "--count", "main"]);
    assert_eq!(commits().trim(), "2", "nothing else is in the repository");
    ok(&client, "PATCH", &format!("{WIDGETS}/a/status"), Some(&status)).await;
    assert_eq!(
        commits().trim(),
        "2",
        "a write that changes nothing makes no commit"
    );

    git(dir.path(), &["clone", "--quiet", "objects.git", "clone"]);
    let clone = dir.path().join("clone");
    let file = clone.join("example.dev/v1/widgets/default/a.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("# Mine.\n{}", text.replace("size: 1", "size: 2"))).unwrap();
    git(&clone, &["commit", "--quiet", "-am", "Grow"]);
    git(&clone, &["push", "--quiet", "origin", "HEAD:main"]);
    let path = format!("{WIDGETS}/a");
    let path = path.as_str();
    eventually("the edit is served", || async {
        ok(&client, "GET", path, None).await["spec"]["size"] == 2
    })
    .await;
    let object = ok(&client, "GET", path, None).await;
    assert_eq!(object["metadata"]["generation"], 2);
    assert_eq!(object["status"]["phase"], "Ready");

    ok(&client, "PATCH", path, Some(&json!({"spec": {"color": "green"}}))).await;
    git(&clone, &["pull", "--quiet", "origin", "main"]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.starts_with("# Mine.\n") && text.contains("color: green"),
        "{text}"
    );
}
