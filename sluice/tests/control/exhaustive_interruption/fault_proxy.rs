//! A proxy of the API that names and counts the requests of controller, runners and CLI, and injects a fault into one of them. The
//! path begins with the client: `/as/controller`, `/as/<process id of the runner>`.

use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http::header::USER_AGENT;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::fault_state::{Actor, Fault, FaultState};

/// Delay of an event: longer than a reconciliation with its writes.
const LATE: Duration = Duration::from_millis(700);
/// When a watch with a lost event ends, so that its client lists again.
const EXPIRES: Duration = Duration::from_secs(2);

type Failed = std::io::Error;
type Answer = Response<UnsyncBoxBody<Bytes, Failed>>;

/// The proxy.
#[derive(Clone)]
pub(crate) struct FaultProxy {
    client: Client,
    fault_state: FaultState,
}

impl FaultProxy {
    /// Opens a proxy of the API; returns its URL.
    pub(crate) async fn open(client: Client, fault_state: FaultState) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let gate = Self { client, fault_state };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let gate = gate.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let gate = gate.clone();
                        async move { gate.pass(request).await }
                    });
                    let served = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                    // Broken connections are intended.
                    drop(served);
                });
            }
        });
        address
    }

    async fn pass(&self, request: Request<Incoming>) -> Result<Answer, Failed> {
        let (mut head, body) = request.into_parts();
        let uri = head.uri.to_string();
        let (who, rest) = uri
            .strip_prefix("/as/")
            .and_then(|rest| rest.split_once('/'))
            .ok_or_else(|| Failed::other("the request names no client"))?;
        let agent = head
            .headers
            .get(USER_AGENT)
            .map(|agent| String::from_utf8_lossy(agent.as_bytes()).into_owned());
        let is_cli = agent.is_some_and(|agent| agent.contains("Terraform") || agent.contains("OpenTofu"));
        let actor = match who.parse() {
            Err(_) => Actor::Controller,
            Ok(process) if is_cli => Actor::Cli(process),
            Ok(process) => Actor::Runner(process),
        };
        if let Actor::Runner(process) | Actor::Cli(process) = actor {
            self.fault_state.add_runner(process);
        }
        head.uri = format!("/{rest}").parse().map_err(Failed::other)?;
        let bytes = body.collect().await.map_err(Failed::other)?.to_bytes();
        let path = head.uri.path().to_owned();
        let query = head.uri.query().unwrap_or_default().to_owned();
        if head.method == Method::GET {
            let answer = self.send(Request::from_parts(head, Body::from(bytes))).await?;
            let watches = actor == Actor::Controller && query.contains("watch=");
            let kind = ["terraforms", "terraformruns"]
                .into_iter()
                .find(|kind| watches && path.ends_with(&format!("/{kind}")));
            return Ok(match kind {
                Some(kind) => self.watch_response(answer, kind),
                None => answer.map(|body| body.map_err(Failed::other).boxed_unsync()),
            });
        }
        let fault = name(actor, &head.method, &path, &bytes).and_then(|name| self.fault_state.step(&name));
        if fault == Some(Fault::Refused) {
            return Ok(forbidden_response());
        }
        self.before(actor, fault)?;
        let answer = self.send(Request::from_parts(head, Body::from(bytes))).await?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.map_err(Failed::other)?.to_bytes();
        self.after(actor, fault)?;
        let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
        Ok(Response::from_parts(head, body))
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, Failed> {
        self.client.send(request).await.map_err(Failed::other)
    }

    fn before(&self, actor: Actor, fault: Option<Fault>) -> Result<(), Failed> {
        match fault {
            Some(Fault::Before) => self.fault_state.kill(actor),
            Some(Fault::MachineBefore) => self.fault_state.stop_machine(),
            Some(Fault::CutBefore) => {}
            _ => return Ok(()),
        }
        Err(Failed::other("injected fault before the write"))
    }

    fn after(&self, actor: Actor, fault: Option<Fault>) -> Result<(), Failed> {
        match fault {
            Some(Fault::After) => self.fault_state.kill(actor),
            Some(Fault::MachineAfter) => self.fault_state.stop_machine(),
            Some(Fault::CutAfter) => {}
            _ => return Ok(()),
        }
        Err(Failed::other("injected fault after the write"))
    }

    /// Returns a watch, in which one event may be delayed or lost.
    fn watch_response(&self, answer: Response<Body>, kind: &'static str) -> Answer {
        let fault_state = self.fault_state.clone();
        let events = stream::unfold(
            (lines(answer.into_body()).boxed(), false),
            move |(mut events, end)| {
                let fault_state = fault_state.clone();
                async move {
                    if end {
                        return None;
                    }
                    let line = events.next().await?;
                    match event(&line, kind).and_then(|name| fault_state.step(&name)) {
                        Some(Fault::Late) => tokio::time::sleep(LATE).await,
                        Some(Fault::Lost) => {
                            tokio::time::sleep(EXPIRES).await;
                            return Some((expired_watch_event(), (events, true)));
                        }
                        _ => {}
                    }
                    Some((line, (events, false)))
                }
            },
        );
        let frames = events.map(|line| Ok::<_, Failed>(http_body::Frame::data(line)));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }
}

/// Splits a body into lines.
fn lines(body: Body) -> impl Stream<Item = Bytes> + Send {
    let pieces = body.into_data_stream();
    stream::unfold((pieces, Vec::new()), |(mut pieces, mut held)| async move {
        loop {
            if let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                let rest = held.split_off(end + 1);
                return Some((Bytes::from(held), (pieces, rest)));
            }
            held.extend_from_slice(&pieces.next().await?.ok()?);
        }
    })
}

fn forbidden_response() -> Answer {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "not allowed here", "reason": "Forbidden", "code": 403 });
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = StatusCode::FORBIDDEN;
    answer
}

fn expired_watch_event() -> Bytes {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410 });
    Bytes::from(format!("{}\n", json!({ "type": "ERROR", "object": status })))
}

/// Returns the name of a watch event; `None` if it is not a change.
fn event(line: &[u8], kind: &str) -> Option<String> {
    let event: Value = serde_json::from_slice(line).ok()?;
    let change = event["type"].as_str().filter(|change| *change != "BOOKMARK")?;
    let status = &event["object"]["status"];
    let hint = status["phase"]
        .as_str()
        .map_or_else(|| ready(&status["conditions"]), str::to_owned);
    Some(format!("event {kind} {change} {hint}"))
}

/// Returns the name of a write; `None` outside of namespaces.
fn name(actor: Actor, method: &Method, path: &str, body: &[u8]) -> Option<String> {
    let mut parts = path.split("/namespaces/").nth(1)?.split('/').skip(1);
    let resource = parts.next()?;
    let (object, sub) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let named = body["metadata"]["name"].as_str().unwrap_or(object);
    let hint = match resource {
        "terraforms" if sub == "status" => ready(&body["status"]["conditions"]),
        "terraformruns" => body["status"]["phase"].as_str().unwrap_or_default().to_owned(),
        "terraforms" => named.to_owned(),
        "events" => body["reason"].as_str().unwrap_or_default().to_owned(),
        _ if named.ends_with("-bundle") => "bundle".to_owned(),
        _ => named.split('-').next().unwrap_or_default().to_owned(),
    };
    let who = match actor {
        Actor::Controller => "controller",
        Actor::Runner(_) => "runner",
        Actor::Cli(_) => "cli",
    };
    let sub = if sub.is_empty() {
        String::new()
    } else {
        format!("/{sub}")
    };
    Some(
        format!("{who} {method} {resource}{sub} {hint}")
            .trim_end()
            .to_owned(),
    )
}

fn ready(conditions: &Value) -> String {
    let all = conditions.as_array().map(Vec::as_slice).unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == "Ready");
    let text = |key: &str| {
        found
            .and_then(|ready| ready[key].as_str())
            .unwrap_or("-")
            .to_owned()
    };
    format!("{}/{}", text("status"), text("reason"))
}
