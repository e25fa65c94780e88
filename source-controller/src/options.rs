//! The flags of the source controller: Flux's names and defaults, and a few of its own for limits.

mod gates;
mod identity;

use std::path::PathBuf;
use std::time::Duration;

use sluice_runtime::args::{Common, duration};
use sluice_runtime::redact::Secret;

use crate::archive::Algorithm;
use crate::git::ssh::{Algorithms, HostKeyAlgorithm, KeyExchange};
use crate::git::{Limits, Room};
use crate::reconcile::Times;

pub use gates::{Gate, Gates};
pub use identity::IdentityOptions;

/// Flags of the program.
#[derive(clap::Parser, Clone, Debug)]
#[command(
    name = "source-controller",
    version,
    about = "Turns Git revisions into checksummed artifacts over HTTP"
)]
pub struct Options {
    /// What all controllers have.
    #[command(flatten)]
    pub common: Common<2>,
    /// Artifacts: where they are kept and how they are served.
    #[command(flatten)]
    pub storage: StorageOptions,
    /// What a remote may send.
    #[command(flatten)]
    pub git: GitOptions,
    /// What objects may ask for.
    #[command(flatten)]
    pub times: TimeOptions,
    /// What is offered to ssh servers.
    #[command(flatten)]
    pub ssh: SshOptions,
    /// Identities towards the providers of Git hosts.
    #[command(flatten)]
    pub identity: IdentityOptions,
    /// Feature gates.
    #[command(flatten)]
    pub gates: Gates,
    /// Flags of kinds and features that are not there yet.
    #[command(flatten)]
    pub accepted: Accepted,
}

/// Where artifacts are kept and how they are served.
#[derive(clap::Args, Clone, Debug)]
pub struct StorageOptions {
    /// Directory of artifacts; must exist.
    #[arg(long, env = "STORAGE_PATH", default_value = "/data")]
    pub storage_path: PathBuf,
    /// Address that the file server binds.
    #[arg(long, env = "STORAGE_ADDRESS", default_value = ":9090")]
    pub storage_addr: String,
    /// Address of the file server as consumers reach it; empty: derived from --storage-addr.
    #[arg(long, env = "STORAGE_ADV_ADDR", default_value = "")]
    pub storage_adv_addr: String,
    /// Names besides the advertised one under which the file server answers, comma-separated; `*`: any. Empty: any, except
    /// that a server on loopback answers only for loopback names and the advertised one.
    #[arg(long, value_delimiter = ',')]
    pub storage_allowed_hosts: Vec<String>,
    /// What the URLs of artifacts carry, so that only readers of the API can fetch them. It is no flag: all users of a
    /// machine can read the arguments of its programs.
    #[arg(skip)]
    pub artifact_token: Option<Secret<String>>,
    /// Name of this machine, advertised if the file server binds 0.0.0.0.
    #[arg(long, env = "HOSTNAME", default_value = "", hide = true)]
    pub hostname: String,
    /// How long a superseded artifact is kept, counted from when it was superseded.
    #[arg(long, default_value = "1m", value_parser = duration)]
    pub artifact_retention_ttl: Duration,
    /// How many artifacts of an object stay on a disk that is full. Otherwise the time alone decides, so that no consumer
    /// finds its artifact gone early.
    #[arg(long, default_value_t = 2)]
    pub artifact_retention_records: u32,
    /// Algorithm of new artifacts' digests: sha256, sha384, sha512, blake3 or sha1 (which Flux's consumers refuse).
    #[arg(long, default_value = "sha256")]
    pub artifact_digest_algo: Algorithm,
}

/// What a remote may send.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct GitOptions {
    /// Most bytes of one fetch.
    #[arg(long, default_value_t = Limits::default().pack_bytes)]
    pub git_max_pack_bytes: u64,
    /// Most objects of one fetch.
    #[arg(long, default_value_t = Limits::default().pack_objects)]
    pub git_max_pack_objects: u32,
    /// Most bytes that the objects of one fetch have unpacked.
    #[arg(long, default_value_t = Limits::default().unpacked_bytes)]
    pub git_max_unpacked_bytes: u64,
    /// Most bytes of one object that is stored as a difference, or that others are stored as differences to; two at a time
    /// are held in memory.
    #[arg(long, default_value_t = Limits::default().delta_bytes)]
    pub git_max_delta_bytes: u64,
    /// Most bytes of one file; it is held in memory as a whole.
    #[arg(long, default_value_t = Limits::default().blob_bytes)]
    pub git_max_blob_bytes: u64,
    /// Most files and directories of one commit.
    #[arg(long, default_value_t = Limits::default().entries)]
    pub git_max_entries: u64,
    /// Most bytes of all ignore files of one commit together.
    #[arg(long, default_value_t = Limits::default().ignore_bytes)]
    pub git_max_ignore_bytes: u64,
    /// Most bytes of one list of refs: of all tags for a version constraint, of all refs from a server without Git protocol 2.
    #[arg(long, default_value_t = Limits::default().refs_bytes)]
    pub git_max_refs_bytes: u64,
    /// Most bytes of all mirrors on disk; beyond them the least recently used go. 0: no bound.
    #[arg(long, default_value_t = 20 << 30)]
    pub git_mirrors_max_bytes: u64,
    /// Most bytes of the mirrors that objects of one namespace read; beyond them those go that it alone reads. 0: no bound.
    #[arg(long, default_value_t = 10 << 30)]
    pub git_mirrors_max_bytes_per_namespace: u64,
}

impl GitOptions {
    /// As limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            pack_bytes: self.git_max_pack_bytes,
            pack_objects: self.git_max_pack_objects,
            unpacked_bytes: self.git_max_unpacked_bytes,
            delta_bytes: self.git_max_delta_bytes,
            blob_bytes: self.git_max_blob_bytes,
            entries: self.git_max_entries,
            ignore_bytes: self.git_max_ignore_bytes,
            refs_bytes: self.git_max_refs_bytes,
        }
    }

    /// As bounds on mirrors.
    #[must_use]
    pub const fn room(&self) -> Room {
        Room {
            total: self.git_mirrors_max_bytes,
            namespace: self.git_mirrors_max_bytes_per_namespace,
        }
    }
}

/// What objects may ask for.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct TimeOptions {
    /// Longest `spec.timeout` that counts.
    #[arg(long, default_value = "1h", value_parser = duration)]
    pub max_timeout: Duration,
    /// Shortest `spec.interval` that counts.
    #[arg(long, default_value = "1s", value_parser = duration)]
    pub min_interval: Duration,
    /// Longest `spec.interval` that counts.
    #[arg(long, default_value = "8760h", value_parser = duration)]
    pub max_interval: Duration,
}

impl TimeOptions {
    /// As bounds.
    #[must_use]
    pub const fn times(&self) -> Times {
        Times {
            timeout: self.max_timeout,
            shortest: self.min_interval,
            longest: self.max_interval,
        }
    }
}

/// What is offered to ssh servers.
#[derive(clap::Args, Clone, Debug)]
pub struct SshOptions {
    /// Key exchange algorithms for ssh, best first; empty: the usual ones.
    #[arg(long, value_delimiter = ',')]
    pub ssh_kex_algos: Vec<KeyExchange>,
    /// Host key algorithms for ssh, best first; empty: those of the keys in `known_hosts`. `ssh-rsa` allows SHA-1.
    #[arg(long, value_delimiter = ',')]
    pub ssh_hostkey_algos: Vec<HostKeyAlgorithm>,
}

impl SshOptions {
    /// As they are offered.
    #[must_use]
    pub fn algorithms(&self) -> Algorithms {
        Algorithms {
            key_exchanges: self.ssh_kex_algos.clone(),
            host_keys: self.ssh_hostkey_algos.clone(),
        }
    }
}

/// Flags of Flux that concern kinds and features which are not there yet. They are accepted, so that a deployment need
/// not be edited, and have no effect.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Accepted for compatibility, without effect")]
pub struct Accepted {
    /// Bytes of a Helm index.
    #[arg(long, default_value_t = 52_428_800)]
    pub helm_index_max_size: u64,
    /// Bytes of a Helm chart.
    #[arg(long, default_value_t = 10_485_760)]
    pub helm_chart_max_size: u64,
    /// Bytes of a file in a Helm chart.
    #[arg(long, default_value_t = 5_242_880)]
    pub helm_chart_file_max_size: u64,
    /// Helm indexes kept.
    #[arg(long, default_value_t = 0)]
    pub helm_cache_max_size: u32,
    /// How long a Helm index is kept.
    #[arg(long, default_value = "15m", value_parser = duration)]
    pub helm_cache_ttl: Duration,
    /// How often old Helm indexes are dropped.
    #[arg(long, default_value = "1m", value_parser = duration)]
    pub helm_cache_purge_interval: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Rules;
    use clap::Parser as _;

    fn parse(args: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from([&["source-controller"], args].concat())
    }

    #[test]
    fn the_deployment_of_flux_is_accepted_as_it_stands() {
        let options = parse(&[
            "--events-addr=http://notification-controller.flux-system.svc.cluster.local./",
            "--watch-all-namespaces",
            "--log-level=info",
            "--log-encoding=json",
            "--enable-leader-election",
            "--storage-path=/data",
            "--storage-adv-addr=source-controller.flux-system.svc.cluster.local.",
            "--feature-gates=CacheSecretsAndConfigMaps=true",
            "--helm-cache-ttl=15m",
        ])
        .unwrap();
        assert_eq!(options.storage.storage_addr, ":9090");
        assert_eq!(options.common.concurrency.concurrent, 2);
        assert_eq!(options.git.limits(), Limits::default());
        assert_eq!(options.times.times(), Times::default());
    }

    #[test]
    fn algorithms_for_ssh_are_taken_by_name_and_unknown_names_list_the_known_ones() {
        let options = parse(&[
            "--ssh-kex-algos=curve25519-sha256,diffie-hellman-group14-sha1",
            "--ssh-hostkey-algos=rsa-sha2-512,ssh-rsa",
        ])
        .unwrap();
        let algorithms = options.ssh.algorithms();
        assert_eq!(
            (algorithms.key_exchanges.len(), algorithms.host_keys.len()),
            (2, 2)
        );
        assert_eq!(parse(&[]).unwrap().ssh.algorithms(), Algorithms::default());
        for (flag, known) in [
            (
                "--ssh-kex-algos=curve25519-sha256,x",
                "mlkem768x25519-sha256, curve25519-sha256",
            ),
            ("--ssh-hostkey-algos=ssh-dss", "ssh-ed25519, ecdsa-sha2-nistp256"),
        ] {
            let error = parse(&[flag]).unwrap_err().to_string();
            assert!(error.contains("known are:") && error.contains(known), "{error}");
        }
    }

    #[test]
    fn what_flux_refuses_is_refused() {
        for bad in [
            "--feature-gates=OptimizedGitClones=true",
            "--artifact-digest-algo=md5",
            "--insecure-allow-http",
            "--artifact-retention-ttl=never",
        ] {
            assert!(parse(&[bad]).is_err(), "{bad}");
        }
        let account = "--default-service-account=x";
        let rules = |args: &[&str]| {
            let options = parse(args).unwrap();
            options.identity.rules(&options.gates)
        };
        assert!(rules(&[account]).is_err());
        let open = "--feature-gates=ObjectLevelWorkloadIdentity=true";
        assert_eq!(
            rules(&[account, open]).unwrap().default_account.as_deref(),
            Some("x")
        );
        assert_eq!(rules(&[]).unwrap(), Rules::default());
    }
}

#[cfg(test)]
mod table;
