//! The flags of artifacts in a bucket. There is no flag for credentials: all users of a machine can read the arguments of its processes.

use crate::storage::bucket::Bucket;

/// Where artifacts are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum StorageBackend {
    /// In the directory of `--storage-path`.
    #[default]
    Local,
    /// In a bucket of S3 or a compatible server.
    S3,
    /// In a bucket of Google Cloud Storage.
    Gcs,
    /// In a container of Azure Blob Storage.
    Azure,
}

/// Artifacts in a bucket.
#[derive(clap::Args, Clone, Debug)]
pub struct BucketOptions {
    /// Where artifacts are stored: local, s3, gcs or azure. With a bucket, every replica serves artifacts, and --storage-path is a cache.
    /// Credentials come from the environment or the identity of the pod.
    #[arg(long, env = "STORAGE_BACKEND", value_enum, default_value_t)]
    pub storage_backend: StorageBackend,
    /// Name of the bucket, or of the container of Azure.
    #[arg(long, env = "STORAGE_BUCKET", default_value = "")]
    pub storage_bucket: String,
    /// URL of the server; that of the provider if empty.
    #[arg(long, env = "STORAGE_BUCKET_ENDPOINT", default_value = "")]
    pub storage_bucket_endpoint: String,
    /// Region of the bucket, for s3; that of the environment if empty.
    #[arg(long, env = "STORAGE_BUCKET_REGION", default_value = "")]
    pub storage_bucket_region: String,
    /// What all keys in the bucket begin with. Installations that share a bucket need different ones.
    #[arg(long, env = "STORAGE_BUCKET_PREFIX", default_value = "")]
    pub storage_bucket_prefix: String,
    /// Maximum size of the artifacts of a bucket in --storage-path, in bytes; the least recently used are removed. 0: unlimited.
    #[arg(long, default_value_t = 5 << 30)]
    pub storage_cache_max_bytes: u64,
    /// A bucket that is open, instead of that of the flags. For programs that contain the controller, and tests.
    #[arg(skip)]
    pub open_bucket: Option<Bucket>,
}
