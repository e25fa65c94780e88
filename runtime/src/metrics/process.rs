//! Process metrics with the names of all Prometheus clients, and the two metrics of Go programs that Flux's dashboard uses to
//! count controllers and to sum up their memory.

use std::fs::read_to_string;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::Metrics;

/// Ticks per second in `/proc`, independent of the kernel's clock.
const TICKS: f64 = 100.0;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Version {
    version: &'static str,
}

type Value = Gauge<f64, AtomicU64>;

/// The last observed values.
#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    cpu: Counter<f64, AtomicU64>,
    resident: Value,
    virtual_: Value,
    open: Value,
    max: Value,
    start: Value,
    allocated: Value,
    info: Family<Version, Gauge>,
}

impl Process {
    pub(super) fn register(&self, metrics: &Metrics) {
        metrics.register("process_cpu_seconds", "CPU time used", self.cpu.clone());
        let gauges = [
            ("process_resident_memory_bytes", "Memory in use", &self.resident),
            ("process_virtual_memory_bytes", "Memory reserved", &self.virtual_),
            ("process_open_fds", "Open file descriptors", &self.open),
            ("process_max_fds", "Most open file descriptors", &self.max),
            (
                "process_start_time_seconds",
                "Start of the process in seconds since 1970",
                &self.start,
            ),
            (
                "go_memstats_alloc_bytes",
                "Memory in use, under the name that dashboards of Go programs read",
                &self.allocated,
            ),
        ];
        for (name, help, gauge) in gauges {
            metrics.register(name, help, gauge.clone());
        }
        self.info.get_or_create(&Version { version: "none" }).set(1);
        metrics.register(
            "go_info",
            "Not a Go program; dashboards count controllers by this metric",
            self.info.clone(),
        );
    }

    /// Updates the metrics, if there is a `/proc`.
    pub(super) fn refresh(&self) {
        if let Some(stat) = read_to_string("/proc/self/stat").ok().as_deref().and_then(stat) {
            let more = stat.cpu - self.cpu.get();
            if more > 0.0 {
                self.cpu.inc_by(more);
            }
            self.virtual_.set(stat.virtual_);
            let boot = read_to_string("/proc/stat")
                .ok()
                .and_then(|text| number(&text, "btime "));
            if let Some(boot) = boot {
                self.start.set(boot + stat.start);
            }
        }
        let status = read_to_string("/proc/self/status").ok();
        if let Some(kilobytes) = status.and_then(|text| number(&text, "VmRSS:")) {
            self.resident.set(kilobytes * 1024.0);
            self.allocated.set(kilobytes * 1024.0);
        }
        if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
            // One of them is the directory itself.
            let open = u32::try_from(entries.count().saturating_sub(1)).unwrap_or(u32::MAX);
            self.open.set(f64::from(open));
        }
        let limits = read_to_string("/proc/self/limits").ok();
        if let Some(max) = limits.and_then(|text| number(&text, "Max open files")) {
            self.max.set(max);
        }
    }
}

/// Fields of `/proc/self/stat`: seconds of CPU time, seconds from boot to start, bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stat {
    cpu: f64,
    start: f64,
    virtual_: f64,
}

/// Parses `/proc/self/stat`; the name of the program may contain spaces and parentheses.
fn stat(text: &str) -> Option<Stat> {
    let fields: Vec<f64> = text
        .rsplit_once(')')?
        .1
        .split_ascii_whitespace()
        .skip(1)
        .map(|field| field.parse().unwrap_or(f64::NAN))
        .collect();
    // The first of these is field 4 of proc_pid_stat(5).
    let field = |number: usize| fields.get(number - 4).copied().filter(|value| value.is_finite());
    Some(Stat {
        cpu: (field(14)? + field(15)?) / TICKS,
        start: field(22)? / TICKS,
        virtual_: field(23)?,
    })
}

/// Returns the number after `name` at the start of a line.
fn number(text: &str, name: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_name_may_contain_any_characters() {
        let text = "17 (a) b) S 1 17 17 0 -1 4194560 1 2 3 4 250 50 0 0 20 0 9 0 12345 4096000 77 18446744073709551615 1";
        let expected = Stat {
            cpu: 3.0,
            start: 123.45,
            virtual_: 4_096_000.0,
        };
        assert_eq!(stat(text), Some(expected));
        for bad in [
            "",
            "17 (a",
            "17 (a) S 1",
            "17 (a) S 1 17 17 0 -1 4194560 1 2 3 4 x y",
        ] {
            assert_eq!(stat(bad), None, "{bad}");
        }
    }

    #[test]
    fn numbers_are_found_by_their_names() {
        let limits = "Limit   Soft Limit  Hard Limit\nMax open files            1024        4096     files\n";
        assert_eq!(number(limits, "Max open files"), Some(1024.0));
        assert_eq!(number("VmRSS:\t   512 kB\n", "VmRSS:"), Some(512.0));
        assert_eq!(number("Max open files unlimited", "Max open files"), None);
    }
}
