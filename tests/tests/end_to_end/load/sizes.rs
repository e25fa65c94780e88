//! What an installation of one size needs, as a row of the table "Sizes" of docs/operations.md.

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client, ResourceExt as _};
use sluice_tests::BoxError;

use super::measurement::{Account, Measurement, ratio};
use super::objects::{NAMESPACE_PREFIX, Size};
use super::{IDLE_INTERVALS, Load, QUIET};

/// The kinds of the objects that belong to a stack: group, version, kind.
const KINDS: [(&str, &str, &str); 7] = [
    ("infra.contrib.fluxcd.io", "v1alpha2", "Terraform"),
    ("infra.sluice.dev", "v1alpha1", "TerraformRun"),
    ("", "v1", "Secret"),
    ("", "v1", "ConfigMap"),
    ("", "v1", "Event"),
    ("", "v1", "Pod"),
    ("batch", "v1", "Job"),
];

/// What an installation needs. Where there are two numbers, the first one is of source-controller and the second one of tf-controller.
struct Sizes {
    size: Size,
    /// The highest resident memory in bytes.
    memory: [u64; 2],
    /// Requests to the API server at the first start.
    first_requests: [usize; 2],
    /// Requests of both while nothing changes, and for how long nothing does.
    idle: (usize, Duration),
    /// Bytes of the artifacts and mirrors of all sources.
    storage: u64,
    /// Bytes of the objects of all stacks.
    objects: u64,
}

impl Sizes {
    /// Returns the row of the table.
    fn row(&self) -> String {
        let Size { stacks, sources, .. } = self.size;
        let [memory, memory_of_tf] = self.memory.map(|bytes| bytes.div_ceil(1 << 20));
        let per_source = ratio(self.first_requests[0], sources);
        let per_stack = ratio(self.first_requests[1], stacks);
        let (requests, time) = self.idle;
        let hourly = (requests as u64 * 3600).div_ceil(time.as_secs().max(1));
        let (storage, objects) = (kibibytes(self.storage, sources), kibibytes(self.objects, stacks));
        format!(
            "| {stacks} | {sources} | {memory} MiB | {memory_of_tf} MiB | {per_source} | {per_stack} | {hourly} | {storage} KiB | {objects} KiB |"
        )
    }
}

impl Load {
    /// Prints the row of the table in docs/operations.md.
    pub(super) async fn print_sizes(&self, parts: [&Measurement; 4]) {
        let [first, idle, ..] = parts;
        let peak = |account: Account| {
            let memory = parts.iter().filter_map(|part| part.memory.get(account.name));
            memory.map(|memory| memory.peak).max().unwrap_or_default()
        };
        let accounts = self.accounts();
        let idle_requests = accounts.map(|account| idle.requests_of(account));
        let idle_time = self.size.interval.mul_f64(IDLE_INTERVALS) + QUIET;
        let sizes = Sizes {
            size: self.size,
            memory: accounts.map(peak),
            first_requests: accounts.map(|account| first.requests_of(account)),
            idle: (idle_requests.iter().sum(), idle_time),
            storage: bytes_below(&self.env.folder.path().join("artifacts")).unwrap(),
            objects: bytes_of_objects(&self.client).await.unwrap(),
        };
        assert!(sizes.storage > 0 && sizes.objects > 0, "nothing is stored");
        eprintln!("The row of docs/operations.md#sizes:\n{}", sizes.row());
    }
}

/// Returns the kibibytes of each of so many objects, rounded up.
fn kibibytes(bytes: u64, objects: usize) -> u64 {
    bytes.div_ceil(1024 * objects.max(1) as u64)
}

/// Returns the bytes of the files below a folder. What is deleted meanwhile does not count.
fn bytes_below(folder: &Path) -> io::Result<u64> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut sum = 0;
    for entry in entries {
        let entry = entry?;
        sum += match entry.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path())?,
            metadata => metadata?.len(),
        };
    }
    Ok(sum)
}

/// Returns the bytes of the objects of all stacks, as JSON.
async fn bytes_of_objects(client: &Client) -> Result<u64, BoxError> {
    let mut sum = 0;
    for (group, version, kind) in KINDS {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        for object in api.list(&ListParams::default()).await?.items {
            let namespace = object.namespace().unwrap_or_default();
            if namespace.starts_with(NAMESPACE_PREFIX) {
                sum += serde_json::to_vec(&object)?.len() as u64;
            }
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../../docs/operations.md");

    #[test]
    fn a_measurement_is_a_row_of_the_page() {
        let sizes = Sizes {
            size: Size {
                stacks: 1500,
                sources: 1000,
                interval: Duration::from_mins(1),
            },
            memory: [40 << 20, (63 << 20) + 1],
            first_requests: [4000, 60_000],
            idle: (3, Duration::from_secs(77)),
            storage: 5_000_000,
            objects: 60_000_000,
        };
        let row = sizes.row();
        assert_eq!(
            row,
            "| 1500 | 1000 | 40 MiB | 64 MiB | 4.00 | 40.00 | 141 | 5 KiB | 40 KiB |"
        );
        let header = PAGE.lines().find(|line| line.starts_with("| Stacks | Sources |"));
        let columns = |line: &str| line.matches('|').count();
        assert_eq!(header.map(columns), Some(columns(&row)));
    }

    #[test]
    fn files_below_a_folder_count_once() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join("one"), [0; 10]).unwrap();
        fs::write(folder.path().join("two"), [0; 5]).unwrap();
        assert_eq!(bytes_below(folder.path()).unwrap(), 15);
    }
}
