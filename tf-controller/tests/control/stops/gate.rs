//! The way to the API: every call of the controller, the runners and the CLI goes through here, is named and counted, and one
//! of them is cut. The path begins with who calls: `/as/controller`, `/as/<process of the runner>`.

use super::fate::{Actor, Fate, Side};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http::{Method, Request, Response, StatusCode, header::USER_AGENT};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpListener;

/// How long an event is held back: longer than a pass and its writes take.
const LATE: Duration = Duration::from_millis(700);
/// When a watch that lost an event ends, so that its reader lists again.
const EXPIRES: Duration = Duration::from_secs(2);

type Failed = std::io::Error;
type Answer = Response<UnsyncBoxBody<Bytes, Failed>>;

/// The gate.
#[derive(Clone)]
pub(crate) struct Gate {
    client: Client,
    fate: Fate,
}

impl Gate {
    /// Opens one in front of the API; gives its address.
    pub(crate) async fn open(client: Client, fate: Fate) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let gate = Self { client, fate };
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
                    // A connection that is cut is what this is for.
                    drop(served);
                });
            }
        });
        address
    }

    async fn pass(&self, request: Request<Incoming>) -> Result<Answer, Failed> {
        let (mut head, body) = request.into_parts();
        let whole = head.uri.to_string();
        let (who, rest) = whole
            .strip_prefix("/as/")
            .and_then(|rest| rest.split_once('/'))
            .ok_or_else(|| Failed::other("nobody calls"))?;
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
            self.fate.saw_runner(process);
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
                Some(kind) => self.watched(answer, kind),
                None => answer.map(|body| body.map_err(Failed::other).boxed_unsync()),
            });
        }
        let side = name(actor, &head.method, &path, &bytes).and_then(|name| self.fate.step(&name));
        if side == Some(Side::Refused) {
            return Ok(refused());
        }
        self.before(actor, side)?;
        let answer = self.send(Request::from_parts(head, Body::from(bytes))).await?;
        let (head, body) = answer.into_parts();
        let whole = body.collect().await.map_err(Failed::other)?.to_bytes();
        self.after(actor, side)?;
        let body = Full::new(whole).map_err(|never| match never {}).boxed_unsync();
        Ok(Response::from_parts(head, body))
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, Failed> {
        self.client.send(request).await.map_err(Failed::other)
    }

    fn before(&self, actor: Actor, side: Option<Side>) -> Result<(), Failed> {
        match side {
            Some(Side::Before) => self.fate.kill(actor),
            Some(Side::MachineBefore) => self.fate.stop_machine(),
            Some(Side::CutBefore) => {}
            _ => return Ok(()),
        }
        Err(Failed::other("cut before the write"))
    }

    fn after(&self, actor: Actor, side: Option<Side>) -> Result<(), Failed> {
        match side {
            Some(Side::After) => self.fate.kill(actor),
            Some(Side::MachineAfter) => self.fate.stop_machine(),
            Some(Side::CutAfter) => {}
            _ => return Ok(()),
        }
        Err(Failed::other("cut after the write"))
    }

    /// A watch, one event of which may come late or not at all.
    fn watched(&self, answer: Response<Body>, kind: &'static str) -> Answer {
        let fate = self.fate.clone();
        let events = stream::unfold(
            (lines(answer.into_body()).boxed(), false),
            move |(mut events, over)| {
                let fate = fate.clone();
                async move {
                    if over {
                        return None;
                    }
                    let line = events.next().await?;
                    match event(&line, kind).and_then(|name| fate.step(&name)) {
                        Some(Side::Late) => tokio::time::sleep(LATE).await,
                        Some(Side::Lost) => {
                            tokio::time::sleep(EXPIRES).await;
                            return Some((expired(), (events, true)));
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

/// A body cut into lines.
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

fn refused() -> Answer {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "not allowed here", "reason": "Forbidden", "code": 403 });
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = StatusCode::FORBIDDEN;
    answer
}

fn expired() -> Bytes {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410 });
    Bytes::from(format!("{}\n", json!({ "type": "ERROR", "object": status })))
}

/// The name of a watch event; none for what is no change.
fn event(line: &[u8], kind: &str) -> Option<String> {
    let event: Value = serde_json::from_slice(line).ok()?;
    let change = event["type"].as_str().filter(|change| *change != "BOOKMARK")?;
    let status = &event["object"]["status"];
    let hint = status["phase"]
        .as_str()
        .map_or_else(|| ready(&status["conditions"]), str::to_owned);
    Some(format!("event {kind} {change} {hint}"))
}

/// The name of a write; none for one outside of namespaces.
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
