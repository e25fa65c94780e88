//! Measures the API of `sluice up` with many objects and watches, beside etcd and kube-apiserver. All are processes of their own with
//! files on the same disk, and sync each write to it. Both APIs get the same requests from the same client, in turn.

mod kind;
mod requests;
mod watches;

use std::path::Path;
use std::time::Duration;

use kube::Client;
use sluice_harness::cluster::ControlPlane;
use sluice_harness::gobuild::{self, Tool};
use sluice_tests::BoxError;
use sluice_tests::program::{Program, Setup};

use self::kind::Kind;
use self::requests::Objects;
use self::watches::Watches;
use crate::results::{Results, Row, Unit, median, number, percentile, seconds};
use crate::{disk, usage};

/// The size of a load.
#[derive(Clone, Copy, Debug)]
struct Size {
    objects: usize,
    /// Objects that one writer creates; [`WRITERS`] create the others.
    serial: usize,
    /// Objects of a page of a list.
    page: u32,
    watches: usize,
    /// Changes that all watches receive.
    changes: usize,
}

/// The size that is measured.
const SIZE: Size = Size {
    objects: 10_000,
    serial: 1_000,
    page: 500,
    watches: 200,
    changes: 200,
};
/// Concurrent writers.
const WRITERS: usize = 16;
/// Full lists of a round.
const LISTS: usize = 5;
/// Maximum number of rounds: each starts both servers twice and fills them.
pub(crate) const MAX_ROUNDS: usize = 3;
/// Timeout of one server in a round.
const TIMEOUT: Duration = Duration::from_mins(15);

/// What was measured of one server in a round.
struct Round {
    /// Creations per second of one writer, and of [`WRITERS`].
    serial_rate: f64,
    concurrent_rate: f64,
    lists: Vec<Duration>,
    pages: Vec<Duration>,
    /// From the request of each change until the last watch had its event.
    changes: Vec<Duration>,
    /// Resident memory of all processes in bytes, with all objects and watches.
    memory: u64,
}

/// Measures at most [`MAX_ROUNDS`] rounds of each kind.
pub(crate) async fn measure(rounds: usize, results: &mut Results) -> Result<(), BoxError> {
    let parent = disk::folder(disk::DATA)?;
    let built = [Tool::Etcd, Tool::KubeApiserver]
        .map(|tool| gobuild::build(tool, &mut |line| eprintln!("{line}")).err());
    let missing = built.into_iter().flatten().next();
    let alternative = missing.as_ref().map_or_else(
        || "kube-apiserver and etcd".to_owned(),
        |error| format!("kube-apiserver and etcd are not built: {error}"),
    );
    for kind in Kind::ALL {
        let (mut own, mut other) = (Vec::new(), Vec::new());
        for _ in 0..rounds.clamp(1, MAX_ROUNDS) {
            own.push(Box::pin(measure_sluice(&parent, kind)).await?);
            if missing.is_none() {
                other.push(Box::pin(measure_cluster(&parent, kind)).await?);
            }
        }
        report(kind, &own, (&alternative, &other), results);
    }
    Ok(())
}

/// Measures `sluice up` with a store in a file.
async fn measure_sluice(parent: &Path, kind: Kind) -> Result<Round, BoxError> {
    let folder = tempfile::tempdir_in(parent)?;
    let setup = Setup::new(folder.path());
    setup.write(&[])?;
    let program = Program::start(setup).await?;
    let id = program.id().ok_or("sluice has ended")?;
    let client = program.client();
    let round = Box::pin(measure_server(&client, &[id], kind, SIZE)).await?;
    program.end().await?;
    Ok(round)
}

/// Measures etcd and kube-apiserver.
async fn measure_cluster(parent: &Path, kind: Kind) -> Result<Round, BoxError> {
    let plane = ControlPlane::start_durable(parent).await?;
    let client = plane.client().await?;
    Box::pin(measure_server(&client, &plane.process_ids(), kind, SIZE)).await
}

/// Fills an empty server, lists its objects, and changes some of them with many watches.
async fn measure_server(
    client: &Client,
    processes: &[u32],
    kind: Kind,
    size: Size,
) -> Result<Round, BoxError> {
    let measuring = async {
        let objects = Objects::prepare(client, kind).await?;
        let serial_rate = objects.create(0..size.serial, 1).await?;
        let concurrent_rate = objects.create(size.serial..size.objects, WRITERS).await?;
        let mut lists = Vec::new();
        for _ in 0..LISTS {
            lists.push(objects.list(size.objects).await?);
        }
        let pages = objects.list_pages(size.page, size.objects).await?;
        let mut watches = Watches::open(objects.api(), size.watches).await?;
        let changes = objects.change(size.changes, &mut watches).await?;
        Ok::<_, BoxError>(Round {
            serial_rate,
            concurrent_rate,
            lists,
            pages,
            changes,
            memory: resident_memory(processes)?,
        })
    };
    tokio::time::timeout(TIMEOUT, Box::pin(measuring)).await?
}

fn resident_memory(processes: &[u32]) -> Result<u64, BoxError> {
    let mut bytes = 0;
    for id in processes {
        bytes += usage::of_process(*id)?.memory;
    }
    Ok(bytes)
}

/// Selects the samples of a row in a round.
type Samples = fn(&Round) -> Vec<f64>;

/// Adds the rows of a kind.
fn report(kind: Kind, own: &[Round], (name, other): (&str, &[Round]), results: &mut Results) {
    let Size { page, watches, .. } = SIZE;
    let change = format!("a change until the last of {watches} watches has it");
    let rows: [(String, Unit, Samples); 7] = [
        ("creations by one writer".to_owned(), Unit::PerSecond, |round| {
            vec![round.serial_rate]
        }),
        (
            format!("creations by {WRITERS} writers"),
            Unit::PerSecond,
            |round| vec![round.concurrent_rate],
        ),
        ("a full list".to_owned(), Unit::Seconds, |round| {
            seconds(&round.lists)
        }),
        (format!("a page of {page}"), Unit::Seconds, |round| {
            seconds(&round.pages)
        }),
        (format!("{change}, median"), Unit::Seconds, |round| {
            median(&seconds(&round.changes)).into_iter().collect()
        }),
        (format!("{change}, 99th percentile"), Unit::Seconds, |round| {
            percentile(&seconds(&round.changes), 99).into_iter().collect()
        }),
        (
            format!("resident memory with {watches} watches"),
            Unit::Bytes,
            |round| vec![number(round.memory)],
        ),
    ];
    for (what, unit, samples) in rows {
        let all = |rounds: &[Round]| rounds.iter().flat_map(samples).collect();
        let title = format!("{} {}: {what}", SIZE.objects, kind.title());
        let row = Row::new(title, unit, all(own));
        results.add(row.beside(name, all(other)));
    }
}

#[cfg(test)]
mod tests;
