//! Ports of the control plane, and the flags that its components have on loopback only.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::path::Path;

use crate::control_plane::{self, Durability};

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

/// The names under which the API is served.
pub(super) const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "kubernetes.default.svc"];

pub(super) fn etcd(ports: Ports, folder: &Path, durability: Durability) -> Vec<String> {
    control_plane::etcd(folder, ports.etcd, ports.peers, durability)
}

pub(super) fn apiserver(ports: Ports, folder: &Path) -> Vec<String> {
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, ports.api);
    let mut flags = control_plane::apiserver(folder, address, ports.etcd);
    flags.extend([
        // Nothing in this cluster uses the `kubernetes` service: there are no endpoints, and the documentation address
        // only satisfies the check that it is not loopback.
        "--advertise-address=192.0.2.1".into(),
        "--endpoint-reconciler-type=none".into(),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
        "--authorization-mode=RBAC".into(),
    ]);
    flags
}

/// The controllers that deletion needs.
pub(super) const DELETION_CONTROLLERS: &str = "garbage-collector-controller,namespace-controller";
/// The controller that creates the pods of Jobs.
pub(super) const JOB_CONTROLLER: &str = "job-controller";

/// Enables only these controllers. Nothing asks the process: it has no port.
pub(super) fn controllers(kubeconfig: &Path, names: &str) -> Vec<String> {
    let mut flags = control_plane::api_client(kubeconfig, 0);
    flags.push(format!("--controllers={names}"));
    flags
}
