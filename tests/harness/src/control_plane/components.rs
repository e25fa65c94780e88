//! Keys of a control plane, and the flags that its components have wherever they run.

use std::io;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};

use rcgen::KeyPair;

use super::{ComponentError, system};
use crate::tls::{Authority, CertificateError, Identity};

/// The authority and the certificates that this process uses; the others are in files.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) authority: Authority,
    pub(crate) admin: Identity,
}

impl Keys {
    /// Creates an authority, and writes its certificate and the keys that [`apiserver`] needs. The API is served under the names
    /// `hosts`.
    pub(crate) fn create(folder: &Path, hosts: &[&str]) -> Result<Self, ComponentError> {
        let authority = Authority::create()?;
        let admin = authority.issue("admin", "system:masters", &[])?;
        let accounts = KeyPair::generate().map_err(CertificateError::from)?;
        let keys = Self { authority, admin };
        write(folder, "ca.crt", keys.authority.pem())?;
        write(folder, "accounts.key", &accounts.serialize_pem())?;
        write(folder, "accounts.pub", &accounts.public_key_pem())?;
        keys.issue(folder, "api", ("kube-apiserver", "tests"), hosts)?;
        Ok(keys)
    }

    /// Issues a certificate for a name in a group, and writes it with its key to `{file}.crt` and `{file}.key`.
    pub(crate) fn issue(
        &self,
        folder: &Path,
        file: &str,
        (name, group): (&str, &str),
        hosts: &[&str],
    ) -> Result<(), ComponentError> {
        let issued = self.authority.issue(name, group, hosts)?;
        write(folder, &format!("{file}.crt"), &issued.certificate)?;
        write(folder, &format!("{file}.key"), &issued.key)
    }
}

fn write(folder: &Path, name: &str, contents: &str) -> Result<(), ComponentError> {
    std::fs::write(folder.join(name), contents).map_err(system("write keys"))
}

/// When etcd responds to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Before it is on the disk: the data only has to last as long as the tests.
    Process,
    /// After fsync, as in production.
    Disk,
}

/// Returns the flags of an etcd with a single member, at two ports of loopback.
pub(crate) fn etcd(folder: &Path, clients: u16, peers: u16, durability: Durability) -> Vec<String> {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let (clients, peers) = (url(clients), url(peers));
    let mut flags = vec![
        "--name=tests".into(),
        format!("--data-dir={}", folder.join("etcd").display()),
        "--log-level=warn".into(),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=tests={peers}"),
    ];
    if durability == Durability::Process {
        flags.push("--unsafe-no-fsync".into());
    }
    flags
}

/// Returns the flags of a kube-apiserver at this address, with the keys of [`Keys::create`] and the port for clients of [`etcd`].
pub(crate) fn apiserver(folder: &Path, address: SocketAddrV4, etcd: u16) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        format!("--bind-address={}", address.ip()),
        format!("--secure-port={}", address.port()),
        // In MB. A load test writes more than the default of 100, and nothing reads a rotated file.
        "--audit-log-maxsize=4096".into(),
        format!("--tls-cert-file={}", file("api.crt")),
        format!("--tls-private-key-file={}", file("api.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--service-account-key-file={}", file("accounts.pub")),
        format!("--service-account-signing-key-file={}", file("accounts.key")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        "--profiling=false".into(),
        "--v=1".into(),
    ]
}

/// The requests of ServiceAccounts other than Kubernetes' own, without bodies.
const AUDIT_POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    nonResourceURLs: ['*']
  - level: None
    userGroups: ['system:serviceaccounts:kube-system']
  - level: Metadata
    userGroups: ['system:serviceaccounts']
  - level: None
";

fn audit_file(folder: &Path) -> PathBuf {
    folder.join("audit.log")
}

/// Returns the complete lines of the audit log: the server may be writing the last one.
pub(crate) fn audit_log(folder: &Path) -> io::Result<String> {
    let mut log = std::fs::read(audit_file(folder))?;
    let end = log.iter().rposition(|byte| *byte == b'\n');
    log.truncate(end.map_or(0, |at| at + 1));
    String::from_utf8(log).map_err(io::Error::other)
}

/// Writes the audit policy. Returns the flags of a kube-apiserver for a log that has an event before its request is answered.
pub(crate) fn audit(folder: &Path) -> Result<[String; 3], ComponentError> {
    let written = std::fs::write(folder.join("audit.yaml"), AUDIT_POLICY);
    written.map_err(system("write the audit policy"))?;
    Ok([
        format!("--audit-policy-file={}", folder.join("audit.yaml").display()),
        format!("--audit-log-path={}", audit_file(folder).display()),
        "--audit-log-mode=blocking".into(),
    ])
}

/// Returns the flags of a component that is a client of the API, at this port of loopback. Raises the client limits: at the default
/// of 20 requests per second the garbage collector and the first pod wait some seconds longer.
pub(crate) fn api_client(kubeconfig: &Path, port: u16) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        "--leader-elect=false".into(),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        "--kube-api-qps=1000".into(),
        "--kube-api-burst=1000".into(),
        "--profiling=false".into(),
        "--v=1".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_durable_etcd_syncs_its_writes() {
        let syncs = |durability: Durability| {
            let flags = etcd(Path::new("folder"), 1, 2, durability);
            !flags.iter().any(|flag| flag == "--unsafe-no-fsync")
        };
        assert!(syncs(Durability::Disk));
        assert!(!syncs(Durability::Process));
    }

    #[test]
    fn the_audit_log_ends_with_its_last_complete_line() {
        let folder = tempfile::tempdir().unwrap();
        for (written, read) in [
            (&b"one\ntwo\n"[..], "one\ntwo\n"),
            (b"one\ntw", "one\n"),
            // The first byte of a character.
            (b"one\n\xc3", "one\n"),
            (b"on", ""),
            (b"", ""),
        ] {
            std::fs::write(audit_file(folder.path()), written).unwrap();
            assert_eq!(audit_log(folder.path()).unwrap(), read);
        }
    }
}
