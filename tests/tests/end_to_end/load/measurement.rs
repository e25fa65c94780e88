//! What a part of the load test costs: time, requests, lookups and fetches of Git, runs, memory; and the tables of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use sluice_harness::git::{Request, Step};
use sluice_tests::BoxError;

use super::requests::RequestCounts;

/// The account of a controller, with the objects that it reconciles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    pub(super) name: &'static str,
    pub(super) object: &'static str,
    pub(super) objects: usize,
}

/// Resident memory of a process in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) now: u64,
    /// The highest value since the start of the process.
    pub(super) peak: u64,
}

impl Memory {
    /// Reads the memory of a process.
    pub(super) fn of_process(id: u32) -> Result<Self, BoxError> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{id}/status"))?)
    }

    fn parse(status: &str) -> Result<Self, BoxError> {
        let bytes = |field: &str| -> Result<u64, BoxError> {
            let mut lines = status.lines();
            let line = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            let line = line.ok_or_else(|| format!("no {field} in the status of the process"))?;
            let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
            Ok(kibibytes * 1024)
        };
        Ok(Self {
            now: bytes("VmRSS")?,
            peak: bytes("VmHWM")?,
        })
    }
}

/// Requests to the Git server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GitRequests {
    /// Requests for capabilities.
    pub(super) capabilities: usize,
    /// Requests for references.
    pub(super) lookups: usize,
    /// Requests for objects (`want`).
    pub(super) fetches: usize,
}

impl GitRequests {
    pub(super) fn of(requests: &[Request]) -> Self {
        let count = |step| requests.iter().filter(|request| request.step == step).count();
        Self {
            capabilities: count(Step::InfoRefs),
            lookups: count(Step::LsRefs),
            fetches: count(Step::Fetch),
        }
    }
}

/// The cost of one part of the test.
pub(super) struct Measurement {
    pub(super) title: &'static str,
    /// The time until the last request to the API server.
    pub(super) duration: Duration,
    pub(super) requests: RequestCounts,
    pub(super) git: GitRequests,
    /// Runs that were created.
    pub(super) runs: usize,
    /// The memory of each controller at the end.
    pub(super) memory: BTreeMap<&'static str, Memory>,
}

impl Measurement {
    /// Returns the number of requests of an account.
    pub(super) fn requests_of(&self, account: Account) -> usize {
        self.requests.sum(account.name, |_| true)
    }

    /// Returns the events that an account has written.
    fn events_of(&self, account: Account) -> usize {
        self.requests
            .sum(account.name, |kind| kind.resource == "events" && kind.is_write())
    }

    /// Returns the table of this part: a line for the whole, and lines for each account.
    pub(super) fn table(&self, accounts: &[Account]) -> String {
        let GitRequests {
            capabilities,
            lookups,
            fetches,
        } = self.git;
        let mut text = format!(
            "{}: {:.1} s, {} new runs, Git: {capabilities} capabilities, {lookups} lookups, {fetches} fetches\n",
            self.title,
            self.duration.as_secs_f64(),
            self.runs
        );
        for account in accounts {
            self.add_account(&mut text, *account);
        }
        text
    }

    fn add_account(&self, text: &mut String, account: Account) {
        let (requests, object) = (self.requests_of(account), account.object);
        let memory = self.memory.get(account.name).map_or_else(String::new, |memory| {
            let mebibytes = |bytes: u64| bytes >> 20;
            format!(
                ", memory {} MiB (peak {} MiB)",
                mebibytes(memory.now),
                mebibytes(memory.peak)
            )
        });
        let _infallible = writeln!(
            text,
            "  {}: {requests} requests, {} per {object}, {} events{memory}",
            account.name,
            ratio(requests, account.objects),
            self.events_of(account),
        );
        for (kind, count) in self.requests.of(account.name) {
            let each = ratio(count, account.objects);
            let _infallible = writeln!(text, "    {each:>8} {:<6} {} ({count})", kind.verb, kind.resource);
        }
    }
}

/// Returns a quotient with two digits.
pub(super) fn ratio(count: usize, objects: usize) -> String {
    let hundredths = (count * 100).div_ceil(objects.max(1));
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_process_is_its_own() {
        let status = "Name:\tsluice\nVmPeak:\t  900 kB\nVmHWM:\t  300 kB\nVmRSS:\t  200 kB\n";
        let memory = Memory::parse(status).unwrap();
        assert_eq!((memory.now, memory.peak), (200 << 10, 300 << 10));
        assert!(Memory::parse("Name:\tsluice\n").is_err());
        let own = Memory::of_process(std::process::id()).unwrap();
        assert!(own.now > 1 << 20 && own.peak >= own.now, "{own:?}");
    }

    #[test]
    fn ratios_are_rounded_up() {
        assert_eq!(
            [
                ratio(0, 3),
                ratio(1, 3),
                ratio(7, 2),
                ratio(3000, 1500),
                ratio(1, 0)
            ],
            ["0.00", "0.34", "3.50", "2.00", "1.00"]
        );
    }
}
