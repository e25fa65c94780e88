//! Tests over ssh with the real OpenSSH server.

mod algorithms;
mod connections;
mod hosts;
mod keys;
mod older_versions;
mod proxies;

use std::collections::BTreeMap;

use sluice_harness::git::Repository;
use sluice_harness::ssh::{Key, SshServer};
use sluice_runtime::http::Route;

use super::super::ssh::Algorithms;
use super::*;

/// A repository with one commit behind an OpenSSH server that accepts one key.
struct Ssh {
    server: SshServer,
    repository: Repository,
    commit: String,
    url: String,
    key: Key,
    transport: Transport,
    mirrors: Mirrors,
    _root: TempDir,
}

impl Ssh {
    fn new() -> Self {
        Self::with(vec![key("ed25519", 256)], &[])
    }

    /// Starts the server with these host keys and further lines of `sshd_config`.
    fn with(host_keys: Vec<Key>, lines: &[&str]) -> Self {
        let repository = Repository::create().unwrap();
        for number in 0..20 {
            repository
                .write(&format!("{number}/main.tf"), noise(number, 8192))
                .unwrap();
        }
        let commit = repository.commit("first").unwrap();
        let server = SshServer::start(host_keys, lines).unwrap();
        let key = key("ed25519", 256);
        server.authorize(&key).unwrap();
        let url = server.serve("app", &repository).unwrap();
        let root = TempDir::new().unwrap();
        Self {
            mirrors: Mirrors::new(root.path()).unwrap(),
            transport: Transport::new().unwrap(),
            server,
            repository,
            commit,
            url,
            key,
            _root: root,
        }
    }

    fn remote(&self) -> Remote {
        self.remote_with(&self.url, &self.key.private, "", &self.server.known_hosts())
    }

    fn remote_with(&self, url: &str, identity: &str, password: &str, known_hosts: &str) -> Remote {
        let secret = [
            ("identity", identity),
            ("password", password),
            ("known_hosts", known_hosts),
        ];
        let access = Access {
            address: address(url),
            credentials: credentials(url, &secret).unwrap(),
            tls: Arc::default(),
            proxy: None,
            owner: Owner::default(),
        };
        Remote {
            transport: self.transport.clone(),
            access: access.into(),
            timeout: DEADLINE,
            limits: Limits::default(),
        }
    }

    /// Looks up `main` on a new transport.
    async fn look_up_with(&self, algorithms: Algorithms, remote: Remote) -> Result<String, FetchError> {
        let transport = Transport::with_route(Route::Direct, algorithms).unwrap();
        let remote = Remote { transport, ..remote };
        Ok(bounded(head(&remote, &main())).await?.commit.to_string())
    }

    /// Looks up `main` with the default algorithms.
    async fn look_up(&self, remote: Remote) -> Result<String, FetchError> {
        self.look_up_with(Algorithms::default(), remote).await
    }

    async fn fetch(&self, remote: &Remote) -> Result<Checkout, FetchError> {
        bounded(async {
            let head = head(remote, &main()).await?;
            fetch(
                &self.mirrors.open(remote),
                remote,
                &head,
                &CancellationToken::new(),
            )
            .await
        })
        .await
    }

    /// Returns the client ports of all commands, one for each connection.
    fn connections(&self) -> Vec<u16> {
        let mut ports: Vec<_> = self.server.commands().iter().map(|ran| ran.connection).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

fn credentials(url: &str, secret: &[(&str, &str)]) -> Result<Credentials, CredentialsError> {
    let data: BTreeMap<_, _> = secret
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
        .collect();
    Credentials::resolve(&address(url), Some(&data))
}

fn address(url: &str) -> Address {
    Address::parse(url).unwrap()
}

fn key(kind: &str, bits: u32) -> Key {
    Key::generate(kind, bits).unwrap()
}
