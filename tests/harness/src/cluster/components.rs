//! Flags, ports and keys of each component of the control plane.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use rcgen::KeyPair;

use super::{ClusterError, system};
use crate::tls::{Authority, CertificateError, Identity};

/// Ports on loopback.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    etcd: u16,
    peers: u16,
    pub(super) api: u16,
}

impl Ports {
    /// Finds three free ports; all are bound at the same time, so that they differ.
    pub(super) fn free() -> io::Result<Self> {
        let listeners = [(); 3].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let mut ports = listeners.iter().map(|listener| match listener {
            Ok(listener) => listener.local_addr().map(|address| address.port()),
            Err(error) => Err(io::Error::from(error.kind())),
        });
        let mut next = || {
            ports
                .next()
                .unwrap_or_else(|| Err(io::ErrorKind::AddrNotAvailable.into()))
        };
        Ok(Self {
            etcd: next()?,
            peers: next()?,
            api: next()?,
        })
    }
}

/// The authority and the certificates that this process uses; the others are in files.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) authority: Authority,
    pub(super) admin: Identity,
}

impl Keys {
    pub(super) fn create(folder: &Path) -> Result<Self, ClusterError> {
        let authority = Authority::create()?;
        let hosts = ["localhost", "127.0.0.1", "kubernetes.default.svc"];
        let api = authority.issue("kube-apiserver", "tests", &hosts)?;
        let admin = authority.issue("admin", "system:masters", &[])?;
        let accounts = KeyPair::generate().map_err(CertificateError::from)?;
        let files = [
            ("ca.crt", authority.pem().to_owned()),
            ("api.crt", api.certificate),
            ("api.key", api.key),
            ("accounts.key", accounts.serialize_pem()),
            ("accounts.pub", accounts.public_key_pem()),
        ];
        for (name, contents) in files {
            std::fs::write(folder.join(name), contents).map_err(system("write keys"))?;
        }
        Ok(Self { authority, admin })
    }
}

/// Returns the flags of a single member without fsync: its data only has to last as long as the tests.
pub(super) fn etcd(ports: Ports, data: &Path) -> Vec<String> {
    let (clients, peers) = (
        format!("http://127.0.0.1:{}", ports.etcd),
        format!("http://127.0.0.1:{}", ports.peers),
    );
    vec![
        "--name=tests".into(),
        format!("--data-dir={}", data.display()),
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=tests={peers}"),
    ]
}

pub(super) fn apiserver(ports: Ports, folder: &Path) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    vec![
        format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={}", ports.api),
        // Nothing in this cluster uses the `kubernetes` service: there are no endpoints, and the documentation address
        // only satisfies the check that it is not loopback.
        "--advertise-address=192.0.2.1".into(),
        "--endpoint-reconciler-type=none".into(),
        format!("--tls-cert-file={}", file("api.crt")),
        format!("--tls-private-key-file={}", file("api.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--service-account-key-file={}", file("accounts.pub")),
        format!("--service-account-signing-key-file={}", file("accounts.key")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
        "--authorization-mode=RBAC".into(),
        "--profiling=false".into(),
        "--v=1".into(),
    ]
}

/// Enables only the controllers that deletion needs. Raises the client limits, which would delay the garbage collector.
pub(super) fn controllers(kubeconfig: &Path) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        "--leader-elect=false".into(),
        "--bind-address=127.0.0.1".into(),
        "--secure-port=0".into(),
        "--controllers=garbage-collector-controller,namespace-controller".into(),
        "--kube-api-qps=1000".into(),
        "--kube-api-burst=1000".into(),
        "--profiling=false".into(),
    ]
}
