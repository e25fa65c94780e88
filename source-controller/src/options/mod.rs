//! The flags of the source controller: Flux's names and defaults, and additional limits.

mod bucket;
mod gates;

use std::path::PathBuf;
use std::time::Duration;

pub use bucket::{BucketOptions, StorageBackend};
pub use gates::{Gate, Gates};
use sluice_runtime::args::{Common, Tracing, duration};
use sluice_runtime::redact::Secret;

use crate::archive::Algorithm;
use crate::git::ssh::{Algorithms, HostKeyAlgorithm, KeyExchange};
use crate::git::{DiskLimits, Limits};
use crate::identity::{CacheSettings, HostPattern, IdentityPolicy, TrustedHosts};
use crate::reconcile::DurationBounds;

/// Default of `--concurrent`, as Flux has it.
pub const CONCURRENT: u16 = 2;

/// Flags of the source controller.
#[derive(clap::Parser, Clone, Debug)]
#[command(
    name = "source-controller",
    version,
    about = "Turns Git revisions into checksummed artifacts over HTTP"
)]
pub struct Options {
    /// Flags common to all controllers.
    #[command(flatten)]
    pub common: Common<CONCURRENT>,
    /// Traces.
    #[command(flatten)]
    pub tracing: Tracing,
    /// Storage and file server.
    #[command(flatten)]
    pub storage: StorageOptions,
    /// Artifacts in a bucket.
    #[command(flatten)]
    pub bucket: BucketOptions,
    /// Size limits of repositories.
    #[command(flatten)]
    pub git: GitOptions,
    /// Bounds of the durations in specs.
    #[command(flatten)]
    pub durations: DurationOptions,
    /// Algorithms for ssh.
    #[command(flatten)]
    pub ssh: SshOptions,
    /// Identities at Git providers.
    #[command(flatten)]
    pub identity: IdentityOptions,
    /// Feature gates.
    #[command(flatten)]
    pub gates: Gates,
    /// Flags without effect.
    #[command(flatten)]
    pub ignored: IgnoredOptions,
}

/// Storage and file server.
#[derive(clap::Args, Clone, Debug)]
pub struct StorageOptions {
    /// Directory of artifacts; must exist.
    #[arg(long, env = "STORAGE_PATH", default_value = "/data")]
    pub storage_path: PathBuf,
    /// Address on which the file server listens.
    #[arg(long, env = "STORAGE_ADDRESS", default_value = ":9090")]
    pub storage_addr: String,
    /// Address of the file server for consumers; derived from --storage-addr if empty.
    #[arg(long, env = "STORAGE_ADV_ADDR", default_value = "")]
    pub storage_adv_addr: String,
    /// Additional host names accepted by the file server, comma-separated; `*` accepts any. If empty, any name is
    /// accepted, except that a server on loopback only accepts loopback names and the advertised one.
    #[arg(long, value_delimiter = ',')]
    pub storage_allowed_hosts: Vec<String>,
    /// Token in the URLs of artifacts, so that only readers of the API can fetch them. Not a flag, since all users of a
    /// machine can read the arguments of its processes.
    #[arg(skip)]
    pub artifact_token: Option<Secret<String>>,
    /// Name of this host, advertised if the file server listens on 0.0.0.0.
    #[arg(long, env = "HOSTNAME", default_value = "", hide = true)]
    pub hostname: String,
    /// Retention time of a superseded artifact, counted from supersession.
    #[arg(long, default_value = "1m", value_parser = duration)]
    pub artifact_retention_ttl: Duration,
    /// Maximum number of artifacts per object on a full disk. Otherwise only the retention time counts, so that
    /// consumers do not lose an artifact early.
    #[arg(long, default_value_t = 2)]
    pub artifact_retention_records: u32,
    /// Digest algorithm of new artifacts: sha256, sha384, sha512, blake3 or sha1 (which Flux's consumers reject).
    #[arg(long, default_value = "sha256")]
    pub artifact_digest_algo: Algorithm,
}

/// Size limits of repositories.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct GitOptions {
    /// Maximum size of one fetch, in bytes.
    #[arg(long, default_value_t = Limits::default().pack_bytes)]
    pub git_max_pack_bytes: u64,
    /// Maximum number of objects in one fetch.
    #[arg(long, default_value_t = Limits::default().pack.objects)]
    pub git_max_pack_objects: u32,
    /// Maximum unpacked size of the objects in one fetch, in bytes.
    #[arg(long, default_value_t = Limits::default().pack.unpacked_bytes)]
    pub git_max_unpacked_bytes: u64,
    /// Maximum size of an object stored as a delta, or used as the base of one, in bytes; two at a time are held in
    /// memory.
    #[arg(long, default_value_t = Limits::default().pack.delta_bytes)]
    pub git_max_delta_bytes: u64,
    /// Maximum size of one file, in bytes; a file that is stored as a delta is held in memory.
    #[arg(long, default_value_t = Limits::default().blob_bytes)]
    pub git_max_blob_bytes: u64,
    /// Maximum number of files and directories in one commit.
    #[arg(long, default_value_t = Limits::default().entries)]
    pub git_max_entries: u64,
    /// Maximum total size of the ignore files in one commit, in bytes.
    #[arg(long, default_value_t = Limits::default().ignore_bytes)]
    pub git_max_ignore_bytes: u64,
    /// Maximum number of patterns in the ignore files of one commit.
    #[arg(long, default_value_t = Limits::default().ignore_patterns)]
    pub git_max_ignore_patterns: u64,
    /// Maximum size of a list of refs, in bytes: of all tags for a semver range, or of all refs from a server without
    /// Git protocol 2.
    #[arg(long, default_value_t = Limits::default().refs_bytes)]
    pub git_max_refs_bytes: u64,
    /// Maximum size of all mirrors on disk, in bytes; the least recently used are removed. 0: unlimited.
    #[arg(long, default_value_t = 20 << 30)]
    pub git_mirrors_max_bytes: u64,
    /// Maximum size of the mirrors used by one namespace, in bytes; those used only by it are removed. 0: unlimited.
    #[arg(long, default_value_t = 10 << 30)]
    pub git_mirrors_max_bytes_per_namespace: u64,
}

impl GitOptions {
    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            pack_bytes: self.git_max_pack_bytes,
            pack: sluice_git_pack::Limits {
                objects: self.git_max_pack_objects,
                unpacked_bytes: self.git_max_unpacked_bytes,
                delta_bytes: self.git_max_delta_bytes,
            },
            blob_bytes: self.git_max_blob_bytes,
            entries: self.git_max_entries,
            ignore_bytes: self.git_max_ignore_bytes,
            ignore_patterns: self.git_max_ignore_patterns,
            refs_bytes: self.git_max_refs_bytes,
        }
    }

    /// Returns the size limits of mirrors.
    #[must_use]
    pub(crate) const fn disk_limits(&self) -> DiskLimits {
        DiskLimits {
            total: self.git_mirrors_max_bytes,
            namespace: self.git_mirrors_max_bytes_per_namespace,
        }
    }
}

/// Bounds of the durations in specs.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct DurationOptions {
    /// Maximum of `spec.timeout`.
    #[arg(long, default_value = "1h", value_parser = duration)]
    pub max_timeout: Duration,
    /// Minimum of `spec.interval`.
    #[arg(long, default_value = "1s", value_parser = duration)]
    pub min_interval: Duration,
    /// Maximum of `spec.interval`.
    #[arg(long, default_value = "8760h", value_parser = duration)]
    pub max_interval: Duration,
}

impl DurationOptions {
    /// Returns the bounds.
    #[must_use]
    pub const fn durations(&self) -> DurationBounds {
        DurationBounds {
            max_timeout: self.max_timeout,
            min_interval: self.min_interval,
            max_interval: self.max_interval,
        }
    }
}

/// Algorithms for ssh.
#[derive(clap::Args, Clone, Debug)]
pub struct SshOptions {
    /// Key exchange algorithms for ssh, in order of preference; empty for the defaults.
    #[arg(long, value_delimiter = ',')]
    pub ssh_kex_algos: Vec<KeyExchange>,
    /// Host key algorithms for ssh, in order of preference; empty for those of the keys in `known_hosts`. `ssh-rsa`
    /// allows SHA-1.
    #[arg(long, value_delimiter = ',')]
    pub ssh_hostkey_algos: Vec<HostKeyAlgorithm>,
}

impl SshOptions {
    /// Returns the algorithms.
    #[must_use]
    pub fn algorithms(&self) -> Algorithms {
        Algorithms {
            key_exchanges: self.ssh_kex_algos.clone(),
            host_keys: self.ssh_hostkey_algos.clone(),
        }
    }
}

/// Identities at Git providers.
#[derive(clap::Args, Clone, Debug)]
pub struct IdentityOptions {
    /// ServiceAccount of objects with a provider but without a ServiceAccount; requires the feature gate
    /// `ObjectLevelWorkloadIdentity`.
    #[arg(long, default_value = "")]
    pub default_service_account: String,
    /// Hosts that may receive the controller's own identity with `provider: azure`: names, `*.` and a domain, or `*`
    /// for all. Not applied to objects with their own ServiceAccount.
    #[arg(long, value_delimiter = ',', default_value = TrustedHosts::DEFAULT)]
    pub controller_identity_hosts: Vec<HostPattern>,
    /// Maximum number of cached provider tokens; 0 disables the cache.
    #[arg(long, default_value_t = 100)]
    pub token_cache_max_size: usize,
    /// Maximum caching time of a token; values above 1h count as 1h.
    #[arg(long, default_value = "1h", value_parser = duration)]
    pub token_cache_max_duration: Duration,
}

impl IdentityOptions {
    /// Returns the policy for objects.
    ///
    /// # Errors
    /// A default ServiceAccount is set, but its feature gate is disabled.
    pub fn policy(&self, gates: &Gates) -> Result<IdentityPolicy, String> {
        let object_level = gates.is_open(Gate::ObjectLevelWorkloadIdentity);
        let default_account =
            Some(self.default_service_account.clone()).filter(|account| !account.is_empty());
        if default_account.is_some() && !object_level {
            return Err(
                "--default-service-account needs --feature-gates=ObjectLevelWorkloadIdentity=true".to_owned(),
            );
        }
        Ok(IdentityPolicy {
            object_level,
            default_account,
            hosts: self.controller_identity_hosts.clone().into(),
        })
    }

    /// Returns the settings of the token cache.
    #[must_use]
    pub const fn cache(&self) -> CacheSettings {
        CacheSettings {
            size: self.token_cache_max_size,
            max_age: self.token_cache_max_duration,
        }
    }
}

/// Flags of Flux for kinds and features that are not implemented. They are accepted, so that deployments need no
/// change, and have no effect.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Accepted for compatibility, without effect")]
pub struct IgnoredOptions {
    /// Maximum size of a Helm index, in bytes.
    #[arg(long, default_value_t = 52_428_800)]
    pub helm_index_max_size: u64,
    /// Maximum size of a Helm chart, in bytes.
    #[arg(long, default_value_t = 10_485_760)]
    pub helm_chart_max_size: u64,
    /// Maximum size of a file in a Helm chart, in bytes.
    #[arg(long, default_value_t = 5_242_880)]
    pub helm_chart_file_max_size: u64,
    /// Maximum number of cached Helm indexes.
    #[arg(long, default_value_t = 0)]
    pub helm_cache_max_size: u32,
    /// Caching time of a Helm index.
    #[arg(long, default_value = "15m", value_parser = duration)]
    pub helm_cache_ttl: Duration,
    /// Interval for removing expired Helm indexes.
    #[arg(long, default_value = "1m", value_parser = duration)]
    pub helm_cache_purge_interval: Duration,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn parse(args: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from([&["source-controller"], args].concat())
    }

    #[test]
    fn the_flags_of_fluxs_deployment_are_accepted() {
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
        assert_eq!(options.durations.durations(), DurationBounds::default());
    }

    #[test]
    fn ssh_algorithms_are_parsed_by_name_and_errors_list_the_known_ones() {
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
            assert!(error.contains("supported:") && error.contains(known), "{error}");
        }
    }

    #[test]
    fn values_refused_by_flux_are_refused() {
        for invalid in [
            "--feature-gates=OptimizedGitClones=true",
            "--artifact-digest-algo=md5",
            "--insecure-allow-http",
            "--artifact-retention-ttl=never",
        ] {
            assert!(parse(&[invalid]).is_err(), "{invalid}");
        }
        let account = "--default-service-account=x";
        let policy = |args: &[&str]| {
            let options = parse(args).unwrap();
            options.identity.policy(&options.gates)
        };
        assert!(policy(&[account]).is_err());
        let open = "--feature-gates=ObjectLevelWorkloadIdentity=true";
        assert_eq!(
            policy(&[account, open]).unwrap().default_account.as_deref(),
            Some("x")
        );
        assert_eq!(policy(&[]).unwrap(), IdentityPolicy::default());
    }
}

#[cfg(test)]
mod table;
