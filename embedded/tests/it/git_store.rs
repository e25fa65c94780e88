//! A server on a Git repository: the API, and users who push to it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use http::Request;
use serde_json::json;
use sluice_embedded::{ApiServer, GitOptions, StatusLocation, Store};
use sluice_harness::git::{GitServer, run_git};
use sluice_harness::ssh::{Key, SshServer};

use crate::fixture::{WIDGETS, call, eventually, ok, server_on, widget, widget_definition};
use crate::watch::watch;

/// File of the widget `a`.
const FILE: &str = "example.dev/v1/widgets/default/a.yaml";

pub(crate) fn git(directory: &Path, arguments: &[&str]) -> String {
    run_git(directory, arguments).unwrap()
}

pub(crate) fn repository(dir: &Path) -> PathBuf {
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

/// Returns the options of a store on a bare repository, with its local file in a directory.
pub(crate) fn options(dir: &Path, repository: &Path) -> GitOptions {
    GitOptions {
        repository: repository.to_owned(),
        remote: None,
        branch: "main".to_owned(),
        status: StatusLocation::default(),
        subdir: String::new(),
        interval: Duration::from_millis(50),
        signing_key: None,
        shared: BTreeSet::new(),
        local: dir.join("local.redb"),
    }
}

pub(crate) fn server(dir: &Path, repository: &Path) -> ApiServer {
    server_on(Store::git(options(dir, repository), &[widget_definition()]).unwrap())
}

/// A clone of a user.
pub(crate) struct Checkout(pub(crate) PathBuf);

impl Checkout {
    /// Clones what [`repository`] made.
    pub(crate) fn new(dir: &Path) -> Self {
        Self::from_url(dir, "objects.git")
    }

    fn from_url(dir: &Path, url: &str) -> Self {
        git(dir, &["clone", "--quiet", url, "clone"]);
        Self(dir.join("clone"))
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.join(file)).unwrap()
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Commits everything, and pushes it on top of the commits of the server.
    pub(crate) fn push(&self) {
        git(&self.0, &["add", "--all"]);
        git(&self.0, &["commit", "--quiet", "-m", "By hand"]);
        git(&self.0, &["pull", "--quiet", "--rebase", "origin", "main"]);
        git(&self.0, &["push", "--quiet", "origin", "HEAD:main"]);
    }

    /// Edits the file of the widget `a`, and pushes the edit.
    fn edit(&self, edit: impl FnOnce(&str) -> String) {
        self.write(FILE, &edit(&self.read(FILE)));
        self.push();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_and_people_write_the_same_files() {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let client = server(dir.path(), &repository).client();
    ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    let status = json!({"status": {"phase": "Ready"}});
    ok(&client, "PATCH", &format!("{WIDGETS}/a/status"), Some(&status)).await;
    let commits = || {
        let count = |branch: &str| git(&repository, &["rev-list", "--count", "--first-parent", branch]);
        ["main", "main-status"].map(|branch| count(branch).trim().to_owned())
    };
    // The journal has a first commit without files.
    assert_eq!(commits(), ["1", "3"], "nothing else is in the repository");
    assert_eq!(
        git(
            &repository,
            &[
                "log",
                "-2",
                "--first-parent",
                "--format=%s %(trailers:key=Reason,key=User,separator=;)",
                "main-status"
            ]
        ),
        "update widgets default/a status Reason: patch;User: admin\ncreate widgets default/a Reason: create;User: admin\n"
    );
    let file = git(
        &repository,
        &["show", "main-status:widgets.example.dev/default/a.yaml"],
    );
    assert!(file.ends_with("status:\n  phase: Ready\n"), "{file}");
    ok(&client, "PATCH", &format!("{WIDGETS}/a/status"), Some(&status)).await;
    assert_eq!(
        commits(),
        ["1", "3"],
        "a write that changes nothing makes no commit"
    );

    let clone = Checkout::new(dir.path());
    clone.edit(|text| format!("# Mine.\n{}", text.replace("size: 1", "size: 2")));
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
    git(&clone.0, &["pull", "--quiet", "origin", "main"]);
    let text = clone.read(FILE);
    assert!(
        text.starts_with("# Mine.\n") && text.contains("color: green"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_edit_is_an_event_of_the_object() {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let client = server(dir.path(), &repository).client();
    ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    Checkout::new(dir.path()).edit(|text| text.replace("size: 1", "size: ["));
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=a";
    eventually("the Event is there", || async {
        let list = ok(&client, "GET", events, None).await;
        !list["items"].as_array().unwrap().is_empty()
    })
    .await;
    let list = ok(&client, "GET", events, None).await;
    let event = &list["items"][0];
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["reason"], "InvalidFile");
    assert!(event["message"].as_str().unwrap().starts_with(FILE), "{event}");
    let object = ok(&client, "GET", &format!("{WIDGETS}/a"), None).await;
    assert_eq!(object["spec"]["size"], 1, "it stays as it was");
    assert_eq!(event["involvedObject"]["uid"], object["metadata"]["uid"]);
    assert_eq!(
        git(&repository, &["rev-list", "--count", "main"]).trim(),
        "2",
        "the Event is local"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminating_object_ends_when_its_file_loses_the_finalizers() {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let client = server(dir.path(), &repository).client();
    let mut held = widget("a", 1);
    held["metadata"]["finalizers"] = json!(["example.dev/hold"]);
    ok(&client, "POST", WIDGETS, Some(&held)).await;
    let path = format!("{WIDGETS}/a");
    let path = path.as_str();
    ok(&client, "DELETE", path, None).await;
    let object = ok(&client, "GET", path, None).await;
    assert!(object["metadata"]["deletionTimestamp"].is_string(), "{object}");
    Checkout::new(dir.path()).edit(|text| {
        let lines = text
            .lines()
            .filter(|line| !line.contains("finalizers:") && !line.contains("example.dev/hold"));
        let released: Vec<&str> = lines.collect();
        released.join("\n") + "\n"
    });
    eventually("the object is gone", || async {
        call(&client, "GET", path, None).await.code == 404
    })
    .await;
    let files = git(&repository, &["ls-tree", "-r", "--name-only", "main"]);
    assert_eq!(files, "", "and its file");
}

/// Creates an SSH key pair and returns the file of its private key.
fn ssh_key(dir: &Path, name: &str, passphrase: &str) -> PathBuf {
    let path = dir.join(name);
    let created = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-C", "sluice", "-N", passphrase, "-f"])
        .arg(&path)
        .status();
    assert!(created.unwrap().success(), "ssh-keygen");
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn git_verifies_the_signatures_of_commits() {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let signed_with = |key: PathBuf| {
        let options = GitOptions {
            signing_key: Some(key),
            ..options(dir.path(), &repository)
        };
        Store::git(options, &[widget_definition()])
    };
    let locked = ssh_key(dir.path(), "locked", "s3cret");
    let error = signed_with(locked).unwrap_err().to_string();
    assert!(error.contains("it has a passphrase"), "{error}");
    let key = ssh_key(dir.path(), "key", "");
    let public = std::fs::read_to_string(key.with_extension("pub")).unwrap();
    let allowed = dir.path().join("allowed_signers");
    std::fs::write(&allowed, format!("sluice@localhost {public}")).unwrap();
    let client = server_on(signed_with(key).unwrap()).client();
    ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    let grow = json!({"spec": {"size": 2}});
    ok(&client, "PATCH", &format!("{WIDGETS}/a"), Some(&grow)).await;
    let setting = format!("gpg.ssh.allowedSignersFile={}", allowed.display());
    for commit in ["main", "main~1"] {
        git(&repository, &["-c", &setting, "verify-commit", commit]);
    }
    let signature = ["-c", setting.as_str(), "log", "--format=%G? %GS", "main"];
    assert_eq!(
        git(&repository, &signature),
        "G sluice@localhost\nG sluice@localhost\n"
    );
    let journal = [
        "-c",
        setting.as_str(),
        "log",
        "--first-parent",
        "--format=%G?",
        "main-status",
    ];
    assert_eq!(git(&repository, &journal), "G\nG\nG\n", "also the first commit");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_on_another_host_is_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let host = GitServer::start().await.unwrap();
    let url = host.serve_git_dir("objects", &repository);
    let options = GitOptions {
        remote: Some(url.clone()),
        ..options(dir.path(), &dir.path().join("store.git"))
    };
    let open = || Store::git(options.clone(), &[widget_definition()]);
    let refused = open().unwrap_err().to_string();
    assert!(
        refused.contains(&url) && refused.contains("`git push` failed"),
        "only reading is allowed: {refused}"
    );
    git(&repository, &["config", "http.receivepack", "true"]);
    let client = server_on(open().unwrap()).client();
    ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    assert_eq!(git(&repository, &["rev-list", "--count", "main"]).trim(), "1");

    let mut events = watch(&client, &format!("{WIDGETS}?watch=1")).await;
    assert_eq!(events.next_name().await, ("ADDED".to_owned(), "a".to_owned()));
    Checkout::from_url(dir.path(), &url).edit(|text| text.replace("size: 1", "size: 2"));
    assert_eq!(events.next_name().await, ("MODIFIED".to_owned(), "a".to_owned()));

    host.withdraw("objects");
    let path = format!("{WIDGETS}/a");
    let path = path.as_str();
    let green = json!({"spec": {"color": "green"}});
    let failed = call(&client, "PATCH", path, Some(&green)).await;
    assert_eq!(failed.code, 500, "{failed:?}");
    let object = ok(&client, "GET", path, None).await;
    assert_eq!(object["spec"], json!({"size": 2, "color": "red"}), "reads go on");
    assert_eq!(host.serve_git_dir("objects", &repository), url);
    eventually("writes are accepted again", || async {
        call(&client, "PATCH", path, Some(&green)).await.code == 200
    })
    .await;
    assert_eq!(git(&repository, &["rev-list", "--count", "main"]).trim(), "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_repository_that_is_away_is_in_the_verbose_text_of_readyz() {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let options = GitOptions {
        remote: Some(format!("file://{}", repository.display())),
        ..options(dir.path(), &dir.path().join("store.git"))
    };
    let client = server_on(Store::git(options, &[widget_definition()]).unwrap()).client();
    let ready = async |query: &str| {
        let request = Request::get(format!("/readyz{query}"));
        let request = request.body(Vec::new()).unwrap();
        client.request_text(request).await.unwrap()
    };
    let well = "[+]ping ok\n[+]store ok\nreadyz check passed\n";
    assert_eq!(ready("?verbose").await, well);
    let away = dir.path().join("away.git");
    std::fs::rename(&repository, &away).unwrap();
    eventually("the outage is shown", || async {
        let text = ready("?verbose").await;
        text.contains("\n[-]store-remote failed, reads go on: `git ls-remote` failed")
            && text.ends_with("\nreadyz check passed\n")
    })
    .await;
    assert_eq!(ready("").await, "ok");
    std::fs::rename(&away, &repository).unwrap();
    eventually("the end of the outage is shown", || async {
        ready("?verbose").await == well
    })
    .await;
}

#[test]
fn an_unknown_ssh_host_is_refused_without_a_question() {
    let dir = tempfile::tempdir().unwrap();
    let host = SshServer::start(vec![Key::generate("ed25519", 256).unwrap()], &[]).unwrap();
    let options = GitOptions {
        remote: Some(host.url("/objects.git")),
        ..options(dir.path(), &dir.path().join("store.git"))
    };
    let error = Store::git(options, &[]).unwrap_err().to_string();
    assert!(error.contains("requested strict checking"), "{error}");
    assert!(host.commands().is_empty(), "nobody logged in");
}

/// Opens the store again as soon as the tasks of the previous server have ended.
async fn open_when_released(dir: &Path, repository: &Path) -> Store {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        match Store::git(options(dir, repository), &[widget_definition()]) {
            Ok(store) => return store,
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error}"),
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_resumes_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let client = server(dir.path(), &repository).client();
    let created = ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    Checkout::new(dir.path()).edit(|text| text.replace("size: 1", "size: 2"));
    let path = format!("{WIDGETS}/a");
    let path = path.as_str();
    eventually("the edit is served", || async {
        ok(&client, "GET", path, None).await["spec"]["size"] == 2
    })
    .await;
    ok(&client, "PATCH", path, Some(&json!({"spec": {"size": 3}}))).await;
    drop(client);
    let client = server_on(open_when_released(dir.path(), &repository).await).client();
    let version = created["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = watch(&client, &format!("{WIDGETS}?watch=1&resourceVersion={version}")).await;
    for size in [2, 3] {
        let (type_, object) = events.next().await.unwrap();
        assert_eq!(
            (type_.as_str(), &object["spec"]["size"]),
            ("MODIFIED", &json!(size))
        );
    }
}
