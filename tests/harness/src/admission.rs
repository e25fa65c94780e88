//! An admission webhook over TLS on loopback that admits every object, and holds its answers at a gate.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::git::Gate;
use crate::tls::{Authority, CertificateError, TlsOptions};

/// Why a webhook could not be started.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// No free port on loopback.
    #[error("cannot listen on loopback: {0}")]
    Listen(#[from] io::Error),
    /// A certificate cannot be created.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// A webhook with a certificate for 127.0.0.1. Dropping it closes its port.
#[derive(Debug)]
pub struct Webhook {
    address: SocketAddr,
    authority: Authority,
    gate: Gate,
    accepting: JoinHandle<()>,
}

impl Webhook {
    /// Starts a webhook whose gate is closed.
    ///
    /// # Errors
    /// When no port is free or no certificate can be created.
    pub async fn start() -> Result<Self, WebhookError> {
        let authority = Authority::create()?;
        let acceptor = authority.acceptor(&TlsOptions {
            http2: false,
            ..TlsOptions::default()
        })?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let gate = Gate::default();
        let shared = gate.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, gate) = (acceptor.clone(), shared.clone());
                tokio::spawn(async move {
                    let Ok(socket) = acceptor.accept(socket).await else {
                        return;
                    };
                    let service = service_fn(move |request| {
                        let gate = gate.clone();
                        async move { Ok::<_, Infallible>(answer(request, &gate).await) }
                    });
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), service);
                    drop(connection.await);
                });
            }
        });
        Ok(Self {
            address,
            authority,
            gate,
            accepting,
        })
    }

    /// Returns its address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the certificate of its authority.
    #[must_use]
    pub fn authority_pem(&self) -> &str {
        self.authority.pem()
    }

    /// Returns the gate at which the answers wait.
    #[must_use]
    pub const fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Admits the object of an `AdmissionReview` (admission.k8s.io/v1) when the gate is open.
async fn answer(request: Request<Incoming>, gate: &Gate) -> Response<Full<Bytes>> {
    let body = request.into_body().collect().await;
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    gate.pass().await;
    let mut response = Response::new(Full::new(Bytes::from(admission(&review).to_string())));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Returns the review with the answer that admits its object.
fn admission(review: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": { "uid": review["request"]["uid"], "allowed": true },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_admitted_under_the_uid_of_its_request() {
        let review = json!({ "kind": "AdmissionReview", "request": { "uid": "u-1", "name": "outputs" } });
        let answer = admission(&review);
        assert_eq!(answer["response"], json!({ "uid": "u-1", "allowed": true }));
    }
}
