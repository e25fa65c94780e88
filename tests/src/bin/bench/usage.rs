//! CPU time and memory of a process, from `/proc`.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sluice_tests::BoxError;

/// CPU time and memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// CPU time of all threads, without children.
    pub(crate) cpu: Duration,
    /// Resident memory in bytes.
    pub(crate) memory: u64,
    /// The part of it that is private: without mapped files.
    pub(crate) private: u64,
}

/// Clock ticks per second of `/proc`: 100 on every Linux.
const TICKS: u64 = 100;
/// Time between two samples of the memory of a process.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);

pub(crate) fn of_process(id: u32) -> Result<Usage, BoxError> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    // Fields after the name, which is in parentheses and may contain anything: state is the first, utime the 12th, stime the 13th.
    let (_, fields) = stat.rsplit_once(") ").ok_or("an unknown form of stat")?;
    let fields: Vec<_> = fields.split(' ').collect();
    let number =
        |at: usize| -> Result<u64, BoxError> { Ok(fields.get(at).ok_or("too few fields")?.parse()?) };
    let ticks = number(11)? + number(12)?;
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let bytes = |field: &str| -> Result<u64, BoxError> {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let line = line.ok_or_else(|| format!("no {field} in the status of the process"))?;
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kibibytes * 1024)
    };
    Ok(Usage {
        cpu: Duration::from_millis(ticks * 1000 / TICKS),
        memory: bytes("VmRSS:")?,
        private: bytes("RssAnon:")?,
    })
}

/// The largest private memory of a process while something is measured.
pub(crate) struct PeakMemory {
    stop: mpsc::Sender<()>,
    looking: JoinHandle<u64>,
}

impl PeakMemory {
    /// Samples the memory of a process until [`PeakMemory::end`].
    pub(crate) fn watch(id: u32) -> Self {
        let (stop, stopped) = mpsc::channel();
        let looking = thread::spawn(move || {
            let mut peak = 0;
            while stopped.recv_timeout(SAMPLE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                peak = of_process(id).map_or(peak, |usage| usage.private.max(peak));
            }
            peak
        });
        Self { stop, looking }
    }

    /// Returns the largest private memory in bytes.
    pub(crate) fn end(self) -> u64 {
        drop(self.stop);
        self.looking.join().unwrap_or_default()
    }
}
