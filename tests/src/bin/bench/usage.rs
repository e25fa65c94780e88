//! CPU time and memory of a process, from `/proc`.

use std::time::Duration;

use sluice_tests::BoxError;

/// CPU time and memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// CPU time of all threads, without children.
    pub(crate) cpu: Duration,
    /// Resident memory in bytes.
    pub(crate) memory: u64,
}

/// Clock ticks per second of `/proc`: 100 on every Linux.
const TICKS: u64 = 100;

pub(crate) fn of_process(id: u32) -> Result<Usage, BoxError> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    // Fields after the name, which is in parentheses and may contain anything: state is the first, utime the 12th, stime the 13th.
    let (_, fields) = stat.rsplit_once(") ").ok_or("an unknown form of stat")?;
    let fields: Vec<_> = fields.split(' ').collect();
    let number =
        |at: usize| -> Result<u64, BoxError> { Ok(fields.get(at).ok_or("too few fields")?.parse()?) };
    let ticks = number(11)? + number(12)?;
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes: u64 = line.ok_or("no VmRSS")?.trim().trim_end_matches(" kB").parse()?;
    Ok(Usage {
        cpu: Duration::from_millis(ticks * 1000 / TICKS),
        memory: kibibytes * 1024,
    })
}
