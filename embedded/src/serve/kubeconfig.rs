//! The kubeconfig of a server.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::ServeError;
use super::credentials::{Credentials, write_private};

const FILE: &str = "kubeconfig";
const NAME: &str = "sluice";

/// Writes the kubeconfig into `dir`.
pub(super) fn write(dir: &Path, addr: SocketAddr, credentials: &Credentials) -> Result<PathBuf, ServeError> {
    let path = dir.join(FILE);
    let text = text(addr, &credentials.ca_pem, "default", credentials.token.reveal())?;
    write_private(&path, &text).map_err(|source| ServeError::File {
        path: path.clone(),
        source,
    })?;
    Ok(path)
}

/// Returns a kubeconfig with this token and default namespace.
pub(super) fn text(
    addr: SocketAddr,
    ca_pem: &str,
    namespace: &str,
    token: &str,
) -> Result<String, ServeError> {
    let config = document(addr, ca_pem, namespace, token);
    serde_yaml_ng::to_string(&config).map_err(|error| ServeError::Tls(error.to_string()))
}

fn document(addr: SocketAddr, ca_pem: &str, namespace: &str, token: &str) -> Value {
    // Clients cannot connect to the unspecified address.
    let server = if addr.ip().is_unspecified() {
        format!("https://127.0.0.1:{}", addr.port())
    } else {
        format!("https://{addr}")
    };
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": NAME,
        "clusters": [{"name": NAME, "cluster": {"server": server, "certificate-authority-data": STANDARD.encode(ca_pem)}}],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": namespace}}],
    })
}

/// Returns the port in the kubeconfig in `dir`, if there is one.
pub(super) fn port(dir: &Path) -> Option<u16> {
    let config: Value = serde_yaml_ng::from_str(&fs::read_to_string(dir.join(FILE)).ok()?).ok()?;
    let server = config["clusters"][0]["cluster"]["server"].as_str()?;
    server.rsplit_once(':')?.1.parse().ok()
}
