//! The limits of the load test: runs, fetches, requests and memory of each part.

use super::Load;
use super::measurement::Measurement;
use super::requests::RequestKind;

/// The numbers at which memory is limited.
const MEMORY_CHECKED_FROM: (usize, usize) = (1500, 1000);
/// Memory that each controller may use.
const MEMORY_LIMIT: u64 = 128 << 20;
/// Requests of a start that belong to no object: lists and definitions.
const REQUESTS_OF_START: usize = 25;
/// Objects for one more of these: a list has pages of 500, and there are about ten lists.
const OBJECTS_OF_REQUEST: usize = 50;
/// Requests for a new source: finalizer, status, an event; as many again in case of conflicts, or to report the progress of slow ones.
const REQUESTS_OF_SOURCE: usize = 6;
/// Requests for a new stack: up to six reconciliations of ten requests (without its source, at its turn, at the start of its run, at
/// two changes of the run, and at its end), and 5 for each outdated report of its position in the queue, of which it has two on average.
const REQUESTS_OF_STACK: usize = 70;
/// Requests for an unchanged stack after a start: it, its runs, its source and its key are read, and the bundle of its last run is
/// deleted in case the controller before could not; as many again for a second trigger by the list of sources.
const REQUESTS_OF_UNCHANGED_STACK: usize = 12;
/// Requests in an interval without changes. None belongs to an object.
const REQUESTS_OF_IDLE: usize = 10;

impl Load {
    /// Checks the first start: one run of each stack, one fetch of each source.
    pub(super) fn check_convergence(&self, measured: &Measurement) {
        assert_eq!(measured.runs, self.size.stacks, "each stack runs once");
        assert_eq!(
            measured.git.fetches, self.size.sources,
            "each source is fetched once"
        );
        // The first sources learn at the same time what their host supports.
        let capabilities = measured.git.capabilities;
        assert!(
            capabilities < self.size.sources,
            "{capabilities} requests for the capabilities of one host"
        );
        // The log is complete: without it, no number of requests would be too high.
        assert!(measured.requests.sum("tf-controller", creates_run) >= self.size.stacks);
        let each = [REQUESTS_OF_SOURCE, REQUESTS_OF_STACK];
        self.check_requests(measured, each, self.requests_of_start());
        self.check_memory(measured);
    }

    /// Checks an interval without changes: lookups, and neither runs nor writes.
    pub(super) fn check_idle(&self, measured: &Measurement) {
        assert_eq!((measured.runs, measured.git.fetches), (0, 0), "nothing changed");
        assert!(
            measured.git.lookups >= self.size.sources / 2,
            "{} lookups: the sources were not polled",
            measured.git.lookups
        );
        self.check_requests(measured, [0, 0], REQUESTS_OF_IDLE);
        let writes = self
            .accounts()
            .map(|account| measured.requests.sum(account.name, RequestKind::is_write));
        assert_eq!(writes, [0, 0], "an interval without changes writes nothing");
        self.check_memory(measured);
    }

    /// Checks a start of controllers on objects that have not changed.
    pub(super) fn check_unchanged(&self, measured: &Measurement) {
        assert_eq!(measured.runs, 0, "no new run");
        let created = measured.requests.sum("tf-controller", creates_run);
        assert_eq!(created, 0, "no attempt to create a run");
        assert_eq!(measured.git.fetches, 0, "no repository is fetched again");
        let each = [0, REQUESTS_OF_UNCHANGED_STACK];
        self.check_requests(measured, each, self.requests_of_start());
        self.check_memory(measured);
    }

    /// Returns how many requests of a start may belong to no object.
    const fn requests_of_start(&self) -> usize {
        REQUESTS_OF_START + (self.size.stacks + self.size.sources) / OBJECTS_OF_REQUEST
    }

    /// Checks the requests of both controllers against a number for each object and one for the whole.
    fn check_requests(&self, measured: &Measurement, each: [usize; 2], whole: usize) {
        for (account, each) in self.accounts().into_iter().zip(each) {
            let (requests, limit) = (measured.requests_of(account), account.objects * each + whole);
            assert!(
                requests <= limit,
                "{}: {} sent {requests} requests, more than {each} for each of {} objects and {whole}",
                measured.title,
                account.name,
                account.objects
            );
        }
    }

    /// Checks the memory of both controllers with as many objects as it is limited for.
    fn check_memory(&self, measured: &Measurement) {
        if self.size.stacks < MEMORY_CHECKED_FROM.0 || self.size.sources < MEMORY_CHECKED_FROM.1 {
            return;
        }
        for (name, memory) in &measured.memory {
            assert!(
                memory.peak <= MEMORY_LIMIT,
                "{}: {name} used {memory:?}",
                measured.title
            );
        }
    }
}

fn creates_run(kind: &RequestKind) -> bool {
    kind.resource == "terraformruns" && kind.verb == "create"
}
