//! What a user sees when the API refuses a command, cannot be reached, or when there is no way to it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sluice_harness::closed_port::ClosedPort;
use sluice_harness::tls::Authority;

use crate::fixture::{PLAN, TIMEOUT, TestEnvironment, command, stderr_of};
use crate::proxy::{Fault, Proxy, write_kubeconfig};

/// Types commands and returns what a user sees. Each must end with exit code 1. `FILE` is the path of the kubeconfig.
async fn transcript(kubeconfig: &Path, commands: &[&[&str]]) -> String {
    let mut text = String::new();
    for arguments in commands {
        let (code, errors) = stderr_of(kubeconfig, arguments).await;
        assert_eq!(code, 1, "{arguments:?}: {errors}");
        let errors = errors.replace(&kubeconfig.display().to_string(), "FILE");
        let _ = write!(text, "$ sluice {}\n{errors}", arguments.join(" "));
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_what_to_do() {
    let environment = TestEnvironment::with_stacks().await;
    let proxy = Proxy::open(&environment).await;
    let forbidden = "terraforms.infra.contrib.fluxcd.io \"app\" is forbidden: User \"anna\" cannot get resource \"terraforms\" in API group \
                     \"infra.contrib.fluxcd.io\" in the namespace \"default\"";
    let mut text = String::new();
    for (code, message) in [
        (401, "Unauthorized"),
        (403, forbidden),
        (429, "too many requests"),
        (500, "etcdserver: leader changed"),
    ] {
        proxy.set(Fault::Answer(code, message, usize::MAX));
        let before = proxy.met();
        text += &transcript(proxy.kubeconfig(), &[&["suspend", "app"]]).await;
        assert!(proxy.met() > before, "{code}");
    }
    insta::assert_snapshot!(text, @r#"
    $ sluice suspend app
    sluice: cannot get terraform default/app: Unauthorized
      next: the credentials of the kubeconfig are wrong or have expired: log in again, or choose others with --kubeconfig or --context
    $ sluice suspend app
    sluice: cannot get terraform default/app: terraforms.infra.contrib.fluxcd.io "app" is forbidden: User "anna" cannot get resource "terraforms" in API group "infra.contrib.fluxcd.io" in the namespace "default"
      next: you may not get terraforms in namespace default: ask for the role sluice-view
    $ sluice suspend app
    sluice: cannot get terraform default/app: too many requests
      next: the API server is overloaded or fails: type the command again in a while
    $ sluice suspend app
    sluice: cannot get terraform default/app: etcdserver: leader changed
      next: the API server is overloaded or fails: type the command again in a while
    "#);
    assert_ne!(environment.stack("app").await["spec"]["suspend"], true);
}

/// The creation of a PlanApproval.
const CREATE: &str = "POST /apis/infra.sluice.dev/v1alpha1/namespaces/default/planapprovals";

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_is_not_admitted_is_not_written_as_an_id() {
    let environment = TestEnvironment::with_stacks().await;
    let proxy = Proxy::open(&environment).await;
    let policy = "planapprovals.infra.sluice.dev \"app-x\" is forbidden: ValidatingAdmissionPolicy 'freeze' with binding 'freeze' denied \
                  request: nothing is approved on Friday";
    let quota = "planapprovals.infra.sluice.dev \"app-x\" is forbidden: exceeded quota: objects";
    for (code, message) in [(403, policy), (403, quota), (422, "spec.comment: Invalid value")] {
        proxy.set(Fault::AnswerTo(CREATE, code, message));
        let (code, text) = stderr_of(proxy.kubeconfig(), &["approve", "app", "--yes"]).await;
        assert_eq!(code, 1, "{text}");
        assert!(text.contains(message), "{text}");
        assert_eq!(environment.stack("app").await["spec"]["approvePlan"], Value::Null);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_is_not_admitted_does_not_end_the_approval_of_all() {
    let environment = TestEnvironment::with_stacks().await;
    let proxy = Proxy::open(&environment).await;
    let status = environment.stack("app").await["status"].clone();
    environment.create_stack("web", &json!({}), &status).await;
    let policy = "planapprovals.infra.sluice.dev \"x\" is forbidden: ValidatingAdmissionPolicy 'freeze' denied request: not today";
    proxy.set(Fault::AnswerTo(CREATE, 403, policy));
    let (code, text) = stderr_of(proxy.kubeconfig(), &["approve", "--all", "--yes"]).await;
    assert_eq!(code, 1, "{text}");
    assert_eq!(text.matches(policy).count(), 2, "both were tried: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_create_approvals_approves_by_the_id() {
    let environment = TestEnvironment::with_stacks().await;
    let proxy = Proxy::open(&environment).await;
    let forbidden = "planapprovals.infra.sluice.dev is forbidden: User \"edda\" cannot create resource \"planapprovals\" in API group \
                     \"infra.sluice.dev\" in the namespace \"default\"";
    let status = environment.stack("app").await["status"].clone();
    for (name, code, message) in [
        ("forbidden", 403, forbidden),
        ("unknown", 404, "the server could not find the requested resource"),
        (
            "read-only",
            405,
            "the server does not allow this method on the requested resource",
        ),
    ] {
        environment.create_stack(name, &json!({}), &status).await;
        proxy.set(Fault::AnswerTo(CREATE, code, message));
        let (code, text) = stderr_of(proxy.kubeconfig(), &["approve", name, "--yes"]).await;
        assert_eq!(code, 0, "{text}");
        assert_eq!(environment.stack(name).await["spec"]["approvePlan"], PLAN);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_is_not_there_is_named_as_the_cause() {
    let closed = ClosedPort::reserve().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let server = format!("http://{}", closed.address().unwrap());
    let kubeconfig = write_kubeconfig(directory.path(), "closed", &server);
    let commands: [&[&str]; 2] = [&["get", "terraforms"], &["approve", "app", "--yes"]];
    insta::assert_snapshot!(transcript(&kubeconfig, &commands).await, @r"
    $ sluice get terraforms
    sluice: cannot list terraforms: Connection refused (os error 111)
      next: the API does not answer: check the server of the kubeconfig, and a proxy
    $ sluice approve app --yes
    sluice: cannot get terraform default/app: Connection refused (os error 111)
      next: the API does not answer: check the server of the kubeconfig, and a proxy
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_authority_is_not_trusted() {
    let environment = TestEnvironment::with_stacks().await;
    let text = std::fs::read_to_string(environment.kubeconfig()).unwrap();
    let mut config: Value = serde_yaml_ng::from_str(&text).unwrap();
    let authority = Authority::create().unwrap();
    config["clusters"][0]["cluster"]["certificate-authority-data"] = STANDARD.encode(authority.pem()).into();
    let path = environment.directory().join("foreign");
    std::fs::write(&path, config.to_string()).unwrap();
    let (code, text) = stderr_of(&path, &["get", "terraforms"]).await;
    assert_eq!(code, 1, "{text}");
    assert!(
        text.starts_with("sluice: cannot list terraforms: invalid peer certificate: "),
        "{text}"
    );
    assert!(
        text.ends_with(
            "\n  next: the kubeconfig does not trust the certificate of the API: check server and certificate-authority-data in it\n"
        ),
        "{text}"
    );
}

/// Writes a file into the directory.
fn write_file(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    let get: &[&str] = &["get", "terraforms"];
    let mut text = transcript(&folder.join("absent"), &[get]).await;
    text += &transcript(&write_file(folder, "empty", ""), &[get]).await;
    let good = write_kubeconfig(folder, "good", "http://127.0.0.1:1");
    text += &transcript(&good, &[&["get", "terraforms", "--context=prod"]]).await;
    let login = write_file(
        folder,
        "login",
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], \
         clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {exec: \
         {apiVersion: client.authentication.k8s.io/v1, command: no-such-login, interactiveMode: Never}}}]}",
    );
    text += &transcript(&login, &[get]).await;
    let huge = write_file(folder, "huge", "");
    let file = std::fs::OpenOptions::new().write(true).open(&huge).unwrap();
    // A sparse file: it takes no disk.
    file.set_len((64 << 20) + 1).unwrap();
    text += &transcript(&huge, &[get]).await;
    insta::assert_snapshot!(text, @r#"
    $ sluice get terraforms
    sluice: cannot use kubeconfig FILE: failed to read kubeconfig from '"FILE"': No such file or directory (os error 2)
      next: set KUBECONFIG or --kubeconfig; `sluice up` prints the path of its own
    $ sluice get terraforms
    sluice: cannot use kubeconfig FILE: failed to determine current context
      next: `kubectl config get-contexts` lists the contexts: name one of them with --context
    $ sluice get terraforms --context=prod
    sluice: cannot use kubeconfig FILE: failed to load current context: prod
      next: `kubectl config get-contexts` lists the contexts: name one of them with --context
    $ sluice get terraforms
    sluice: cannot run no-such-login, which the kubeconfig names for the credentials: No such file or directory (os error 2)
      next: install that program, or choose other credentials with --kubeconfig or --context
    $ sluice get terraforms
    sluice: cannot use kubeconfig FILE: it has 67108865 bytes, more than 67108864
      next: set KUBECONFIG or --kubeconfig; `sluice up` prints the path of its own
    "#);
    let (code, text) = stderr_of(&write_file(folder, "broken", "a: [\n"), get).await;
    assert_eq!(code, 1, "{text}");
    let broken = folder.join("broken").display().to_string();
    let front = format!("sluice: cannot use kubeconfig {broken}: failed to parse kubeconfig YAML: ");
    assert!(text.starts_with(&front), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_kubeconfig_the_file_is_named_with_the_next_step() {
    let home = tempfile::tempdir().unwrap();
    let mut status = command(home.path(), &["status"]);
    status
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env("HOME", home.path());
    let output = tokio::time::timeout(TIMEOUT, status.output()).await;
    let output = output.expect("the command ends").unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    let path = home.path().join(".kube/config").display().to_string();
    assert!(
        text.starts_with(&format!(
            "sluice: cannot read the kubeconfig {path}: No such file"
        )),
        "{text}"
    );
    assert!(
        text.contains("\n  next: set KUBECONFIG or --kubeconfig"),
        "{text}"
    );
}
