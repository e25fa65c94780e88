//! A fake HCP Terraform for a workspace with local runs: discovery, the workspace, its lock, its states.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sluice_harness::tls::{Authority, TlsOptions};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

/// The only organization and workspace.
pub(crate) const ORGANIZATION: &str = "org";
pub(crate) const WORKSPACE: &str = "net";
/// The accepted token.
pub(crate) const TOKEN: &str = "hunter2";

/// The running service.
pub(crate) struct Service {
    /// `localhost:<port>`.
    pub(crate) host: String,
    /// The PEM of its certificate authority.
    pub(crate) authority: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    states: Vec<Vec<u8>>,
    locked: bool,
    refused: usize,
}

impl Service {
    pub(crate) async fn start(folder: &std::path::Path) -> Self {
        let authority = Authority::create().unwrap();
        let terms = TlsOptions {
            http2: false,
            ..TlsOptions::default()
        };
        let acceptor = authority.acceptor(&terms).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = format!("localhost:{}", listener.local_addr().unwrap().port());
        let file = folder.join("authority.pem");
        std::fs::write(&file, authority.pem()).unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let (shared, name) = (Arc::clone(&state), host.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, state, host) = (acceptor.clone(), Arc::clone(&shared), name.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        // Clients may disconnect at any time.
                        drop(answer(stream, &state, &host).await);
                    }
                });
            }
        });
        Self {
            host,
            authority: file,
            state,
        }
    }

    /// Returns the latest state.
    pub(crate) fn state(&self) -> Value {
        let state = self.state.lock().unwrap();
        serde_json::from_slice(state.states.last().unwrap()).unwrap()
    }

    /// Returns the number of requests without the token.
    pub(crate) fn refused(&self) -> usize {
        self.state.lock().unwrap().refused
    }
}

struct Request {
    method: String,
    path: String,
    has_token: bool,
    body: Vec<u8>,
}

async fn answer(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    state: &Mutex<State>,
    host: &str,
) -> std::io::Result<()> {
    let request = read(&mut stream).await?;
    let (code, body) = respond(&request, &mut state.lock().unwrap(), host);
    let kind = if request.path.starts_with("/.well-known/") {
        "application/json"
    } else {
        "application/vnd.api+json"
    };
    let front = format!(
        "HTTP/1.1 {code} Said\r\nContent-Type: {kind}\r\nTFP-API-Version: 2.5\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(front.as_bytes()).await?;
    stream.write_all(&body).await?;
    stream.shutdown().await
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Request> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let length = field("content-length")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let mut body = bytes[end + 4..].to_vec();
    while body.len() < length && stream.read_buf(&mut body).await? > 0 {}
    let mut words = head.split_whitespace();
    let method = words.next().unwrap_or_default().to_owned();
    let path = words
        .next()
        .unwrap_or_default()
        .split('?')
        .next()
        .unwrap_or_default()
        .to_owned();
    Ok(Request {
        method,
        path,
        has_token: field("authorization").is_some_and(|value| value == format!("Bearer {TOKEN}")),
        body,
    })
}

fn respond(request: &Request, state: &mut State, host: &str) -> (u16, Vec<u8>) {
    let text = |value: Value| (200, value.to_string().into_bytes());
    let missing = || {
        (
            404,
            br#"{"errors":[{"status":"404","title":"not found"}]}"#.to_vec(),
        )
    };
    match request.path.as_str() {
        "/.well-known/terraform.json" => {
            return text(json!({ "tfe.v2": "/api/v2/", "tfe.v2.1": "/api/v2/", "tfe.v2.2": "/api/v2/" }));
        }
        "/json" => return (200, Vec::new()),
        "/state" if request.method == "PUT" => {
            if let Some(last) = state.states.last_mut() {
                last.clone_from(&request.body);
            }
            return (200, Vec::new());
        }
        "/state" => {
            return state
                .states
                .last()
                .map_or_else(missing, |state| (200, state.clone()));
        }
        _ => {}
    }
    if !request.has_token {
        state.refused += 1;
        return (
            401,
            br#"{"errors":[{"status":"401","title":"unauthorized"}]}"#.to_vec(),
        );
    }
    let path = request.path.strip_prefix("/api/v2/").unwrap_or_default();
    match path {
        "ping" => (204, Vec::new()),
        "organizations/org/entitlement-set" => {
            text(json!({ "data": { "id": "org-1", "type": "entitlement-sets",
            "attributes": { "operations": true, "state-storage": true } } }))
        }
        "organizations/org/workspaces/net" => text(workspace(state)),
        "workspaces/ws-1/actions/lock" | "workspaces/ws-1/actions/unlock" => {
            state.locked = path.ends_with("/lock");
            text(workspace(state))
        }
        "workspaces/ws-1/current-state-version" if state.states.is_empty() => missing(),
        "workspaces/ws-1/state-versions" => {
            state.states.push(Vec::new());
            text(version(state, host))
        }
        "workspaces/ws-1/current-state-version-outputs" => text(outputs(state)),
        path if path.starts_with("state-versions/") || path.ends_with("/current-state-version") => {
            text(version(state, host))
        }
        _ => missing(),
    }
}

fn workspace(state: &State) -> Value {
    json!({ "data": { "id": "ws-1", "type": "workspaces", "attributes": { "name": WORKSPACE, "execution-mode": "local",
        "operations": false, "locked": state.locked, "auto-apply": false, "terraform-version": "latest",
        "permissions": { "can-update": true, "can-lock": true, "can-unlock": true } } } })
}

fn version(state: &State, host: &str) -> Value {
    let serial = state.states.len();
    json!({ "data": { "id": format!("sv-{serial}"), "type": "state-versions", "attributes": { "serial": serial,
        "status": "finalized", "hosted-state-download-url": format!("https://{host}/state"),
        "hosted-state-upload-url": format!("https://{host}/state"),
        "hosted-json-state-upload-url": format!("https://{host}/json") } } })
}

fn outputs(state: &State) -> Value {
    let state: Value = state
        .states
        .last()
        .and_then(|state| serde_json::from_slice(state).ok())
        .unwrap_or_default();
    let members = state["outputs"].as_object().cloned().unwrap_or_default();
    let data: Vec<_> = members
        .iter()
        .map(|(name, output)| {
            json!({ "id": format!("wsout-{name}"), "type": "state-version-outputs", "attributes": { "name": name,
                "sensitive": false, "type": output["type"], "value": output["value"], "detailed-type": output["type"] } })
        })
        .collect();
    json!({ "data": data, "meta": { "pagination": { "current-page": 1, "total-pages": 1 } } })
}
