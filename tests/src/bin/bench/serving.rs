//! Measures downloads from the file server of source-controller, and from nginx where it is installed, with the same client in
//! the same run.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use kube::api::PostParams;
use serde_json::json;
use sluice_harness::compared;
use sluice_tests::BoxError;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::controller::{Controller, definitions, free_address, own_program};
use crate::results::{Goal, Results, Row, Unit, number};
use crate::slow::{self, READERS};
use crate::usage::PeakMemory;

/// A measured file.
struct File {
    title: &'static str,
    name: &'static str,
    bytes: usize,
    connections: usize,
    /// The least ratio to nginx.
    limit: f64,
}

/// The small file and the large one.
const FILES: [File; 2] = [
    File {
        title: "downloads of 3.9 KB over 64 connections",
        name: "small.tar.gz",
        bytes: 3_900,
        connections: 64,
        limit: 0.9,
    },
    File {
        title: "downloads of 66 MB over 8 connections",
        name: LARGE,
        bytes: 66_000_000,
        connections: 8,
        limit: 1.0,
    },
];
/// The name of the large file.
const LARGE: &str = "large.tar.gz";
/// The folder of the files below the root.
const FOLDER: &str = "gitrepository/default/bench";
/// Duration of each measurement.
const OBSERVED: Duration = Duration::from_secs(3);
/// Timeout of the start of nginx.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most private memory with [`READERS`] slow readers.
const MEMORY_OF_READERS: u64 = 64 << 20;

/// Measures both servers in turn.
pub(crate) async fn measure(rounds: usize, results: &mut Results) -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    let controller = Controller::start(&own_program()?, folder.path(), definitions()?).await?;
    // The object of the files: files without one are removed at the start.
    let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "bench" },
        "spec": { "url": "https://example.com/bench", "interval": "1h", "suspend": true } });
    let source = serde_json::from_value(source)?;
    controller
        .sources()
        .create(&PostParams::default(), &source)
        .await?;
    let files = folder.path().join("storage").join(FOLDER);
    std::fs::create_dir_all(&files)?;
    for File { name, bytes, .. } in &FILES {
        let content: Vec<u8> = (0..*bytes)
            .map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1])
            .collect();
        std::fs::write(files.join(name), content)?;
    }
    let nginx = Nginx::start(folder.path()).await;
    for file in &FILES {
        let path = format!("/{FOLDER}/{}", file.name);
        let (mut own, mut other) = (Vec::new(), Vec::new());
        for _ in 0..rounds.max(1) {
            own.push(download(controller.artifacts, &path, file.connections).await?);
            if let Ok(nginx) = &nginx {
                other.push(download(nginx.address, &path, file.connections).await?);
            }
        }
        let name = match &nginx {
            Ok(_) => "nginx, one worker, sendfile".to_owned(),
            Err(error) => format!("nginx does not run: {error}"),
        };
        let row = Row::new(file.title, Unit::BytesPerSecond, own).beside(name, other);
        results.add(row.goal(Goal::RatioAtLeast(file.limit)));
    }
    let mut memory = Vec::new();
    for _ in 0..rounds.max(1) {
        let watched = PeakMemory::watch(controller.id()?);
        slow::read(controller.artifacts, &format!("/{FOLDER}/{LARGE}")).await?;
        memory.push(number(watched.end()));
    }
    let title = format!("private memory with {READERS} slow readers of 66 MB");
    let row = Row::new(title, Unit::Bytes, memory);
    results.add(row.goal(Goal::AtMost(number(MEMORY_OF_READERS))));
    controller.end().await
}

/// Bytes per second.
type Rate = f64;

/// Downloads a file again and again over this number of connections; returns the rate of the bodies.
async fn download(address: SocketAddr, path: &str, connections: usize) -> Result<Rate, BoxError> {
    let began = Instant::now();
    let clients = (0..connections).map(|_| {
        let path = path.to_owned();
        tokio::spawn(async move { client(address, &path, began + OBSERVED).await })
    });
    let mut bytes = 0;
    for client in clients.collect::<Vec<_>>() {
        bytes += client.await??;
    }
    Ok(u32::try_from(bytes >> 10).map_or(f64::MAX, f64::from) * 1024.0 / began.elapsed().as_secs_f64())
}

/// Sends requests over one connection until `end`; returns the bytes of the bodies.
async fn client(address: SocketAddr, path: &str, end: Instant) -> Result<u64, BoxError> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n");
    let mut buffer = vec![0; 256 * 1024];
    let mut bytes = 0;
    while Instant::now() < end {
        stream.write_all(request.as_bytes()).await?;
        let count = stream.read(&mut buffer).await?;
        // The head of a response comes in one piece.
        let end_of_head = buffer[..count].windows(4).position(|four| four == b"\r\n\r\n");
        let head = end_of_head.ok_or("a response without a head")? + 4;
        let length = content_length(&buffer[..head]).ok_or("a response without a length")?;
        let mut left = (head + length).saturating_sub(count);
        while left > 0 {
            let count = stream.read(&mut buffer).await?;
            if count == 0 {
                return Err("the response ended early".into());
            }
            left = left.saturating_sub(count);
        }
        bytes += length as u64;
    }
    Ok(bytes)
}

/// Returns the length in the head of a successful response.
fn content_length(head: &[u8]) -> Option<usize> {
    let head = std::str::from_utf8(head).ok()?;
    let mut lines = head.lines();
    lines.next()?.contains(" 200 ").then_some(())?;
    lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse().ok())?
    })
}

/// nginx with one worker and sendfile.
struct Nginx {
    address: SocketAddr,
    _child: Child,
}

impl Nginx {
    /// Starts it on the storage below `folder`. It is downloaded where it is not installed.
    async fn start(folder: &Path) -> Result<Self, BoxError> {
        let program = compared::nginx()?;
        let address = free_address()?;
        let (root, home) = (folder.join("storage"), folder.join("nginx"));
        std::fs::create_dir_all(&home)?;
        let config = format!(
            "user root;\nworker_processes 1;\ndaemon off;\npid {home}/pid;\nerror_log stderr;\nevents {{ worker_connections 1024; }}\n\
             http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  keepalive_requests 10000000;\n\
             client_body_temp_path {home}/body;\n  proxy_temp_path {home}/proxy;\n  fastcgi_temp_path {home}/fastcgi;\n\
             uwsgi_temp_path {home}/uwsgi;\n  scgi_temp_path {home}/scgi;\n\
             server {{ listen {address}; root {root}; }}\n}}\n",
            home = home.display(),
            root = root.display(),
        );
        std::fs::write(home.join("nginx.conf"), config)?;
        // Before it reads its configuration, it would write its errors below `/var/log`.
        let child = Command::new(program)
            .args(["-e", "stderr"])
            .arg("-p")
            .arg(&home)
            .arg("-c")
            .arg(home.join("nginx.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let started = async {
            while TcpStream::connect(address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, started)
            .await
            .map_err(|_| "nginx did not start")?;
        Ok(Self {
            address,
            _child: child,
        })
    }
}
