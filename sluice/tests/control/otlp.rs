//! Traces of `sluice up`: one from the poll of a source to the apply of its stack.

use std::convert::Infallible;
use std::path::Path;
use std::process::Stdio;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use rustix::process::{Pid, Signal, kill_process};
use sluice_harness::cli::search_path;
use sluice_harness::directory::TestDirectory;
use sluice_harness::git::{GitServer, Repository};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::environment::TIMEOUT;

const TOKEN: &str = "collector-token";

/// A span with the name of its service.
struct Received {
    service: String,
    span: Span,
}

impl Received {
    fn attribute(&self, key: &str) -> Option<&str> {
        let mut attributes = self.span.attributes.iter();
        let found = attributes.find(|attribute| attribute.key == key)?;
        text(found.value.as_ref()?.value.as_ref()?)
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

/// Starts a collector that accepts requests with [`TOKEN`]; returns its URL and the spans that it receives.
async fn collector() -> (String, UnboundedReceiver<Received>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, received) = unbounded_channel();
    let service = service_fn(move |request| receive(request, sender.clone()));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service.clone()));
        }
    });
    (url, received)
}

async fn receive(
    request: Request<Incoming>,
    spans: UnboundedSender<Received>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.uri().path(), "/v1/traces");
    assert_eq!(request.headers()["authorization"], TOKEN);
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let export = ExportTraceServiceRequest::decode(body).unwrap();
    for part in export.resource_spans {
        let attributes = part.resource.unwrap().attributes;
        let name = attributes
            .iter()
            .find(|attribute| attribute.key == "service.name");
        let value = name.unwrap().value.clone().unwrap().value.unwrap();
        let service = text(&value).unwrap().to_owned();
        for span in part.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            let service = service.clone();
            drop(spans.send(Received { service, span }));
        }
    }
    Ok(Response::new(Full::default()))
}

/// Writes a source and a stack that is applied without an approval.
fn write_manifests(folder: &Path, url: &str) {
    let manifests = format!(
        "apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {{name: code, namespace: default}}
spec: {{url: '{url}', interval: 1m, ref: {{branch: main}}}}
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {{name: net, namespace: default}}
spec: {{interval: 1h, path: ./, approvePlan: auto, sourceRef: {{kind: GitRepository, name: code}}}}
"
    );
    std::fs::write(folder.join("manifests.yaml"), manifests).unwrap();
}

fn up(folder: &Path, collector: &str) -> Child {
    let log = std::fs::File::create(folder.join("log")).unwrap();
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["up", "--quiet", "-f"])
        .arg(folder.join("manifests.yaml"))
        .arg("--state")
        .arg(folder.join("state"))
        .env("PATH", search_path().unwrap())
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector)
        .env("OTEL_EXPORTER_OTLP_HEADERS", format!("authorization={TOKEN}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Ends the program as Ctrl-C does.
async fn end(mut child: Child) {
    let id = child.id().unwrap().cast_signed();
    kill_process(Pid::from_raw(id).unwrap(), Signal::INT).unwrap();
    let ended = timeout(TIMEOUT, child.wait()).await.expect("sluice ends");
    assert!(ended.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_begins_with_the_poll_and_ends_with_the_apply() {
    let (git, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    let module = "resource \"terraform_data\" \"a\" {}\n";
    let commit = repository.commit_files(&[("main.tf", module)], "first").unwrap();
    let folder = TestDirectory::create().unwrap();
    write_manifests(folder.path(), &git.serve("code", &repository));
    let (url, mut received) = collector().await;
    let program = up(folder.path(), &url);
    let log = || std::fs::read_to_string(folder.path().join("log")).unwrap();
    let mut spans: Vec<Received> = Vec::new();
    while !spans.iter().any(|span| span.span.name.starts_with("run ")) {
        let span = timeout(TIMEOUT, received.recv()).await;
        spans.push(
            span.unwrap_or_else(|_| panic!("no span of a run:\n{}", log()))
                .unwrap(),
        );
    }
    end(program).await;
    while let Ok(span) = received.try_recv() {
        spans.push(span);
    }
    let named = |name: &str| {
        let found = spans.iter().find(|span| span.span.name == name);
        found.unwrap_or_else(|| panic!("no span {name}"))
    };
    let (root, run) = (named("reconcile GitRepository"), named("run PlanAndApply"));
    assert_eq!(root.service, "source-controller");
    assert_eq!(run.service, "tf-controller");
    assert!(root.span.parent_span_id.is_empty());
    assert_eq!(run.span.parent_span_id, root.span.span_id);
    for span in &spans {
        assert_eq!(span.span.trace_id, root.span.trace_id, "{}", span.span.name);
    }
    for (name, parent) in [
        ("lookup", root),
        ("fetch", root),
        ("pack", root),
        ("publish", root),
        ("Initializing", run),
        ("Planning", run),
        ("Applying", run),
    ] {
        assert_eq!(named(name).span.parent_span_id, parent.span.span_id, "{name}");
    }
    assert!(root.span.end_time_unix_nano <= run.span.end_time_unix_nano);
    assert_eq!(run.attribute("vcs.ref.head.revision"), Some(&*commit));
    assert_eq!(run.attribute("sluice.run.phase"), Some("Succeeded"));
    assert!(!log().contains(TOKEN), "{}", log());
}
