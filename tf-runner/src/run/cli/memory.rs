//! The memory limit of the runner's container, and how often the kernel killed a process in it for exceeding it. The files are
//! those of cgroup v2 (<https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files>) or v1.

use std::path::{Path, PathBuf};

/// The files by version of cgroup: counters and limit, below the mount point.
const FILES: [(&str, &str); 2] = [
    ("memory.events", "memory.max"),
    ("memory/memory.oom_control", "memory/memory.limit_in_bytes"),
];
/// Where a container sees its own cgroup.
const MOUNT_POINT: &str = "/sys/fs/cgroup";
/// The counter of killed processes.
const KILLS: &str = "oom_kill ";
/// cgroup v1 shows a container without a limit as one with a limit that no machine has.
const NO_LIMIT: u64 = 1 << 60;

/// The cgroup of a container that one run has for itself.
#[derive(Clone, Debug)]
pub(crate) struct ContainerMemory {
    events: PathBuf,
    limit: PathBuf,
}

impl ContainerMemory {
    /// Returns the cgroup of this container; `None`: it shows no counters.
    pub(crate) fn of_this_container() -> Option<Self> {
        Self::below(Path::new(MOUNT_POINT))
    }

    fn below(mount_point: &Path) -> Option<Self> {
        let mut all = FILES.iter().map(|(events, limit)| Self {
            events: mount_point.join(events),
            limit: mount_point.join(limit),
        });
        all.find(|memory| memory.kills().is_some())
    }

    /// Returns how many processes the kernel has killed because the container exceeded its limit.
    pub(crate) fn kills(&self) -> Option<u64> {
        let events = std::fs::read_to_string(&self.events).ok()?;
        events
            .lines()
            .find_map(|line| line.strip_prefix(KILLS)?.trim().parse().ok())
    }

    /// Returns the message about a killed process of the CLI.
    pub(crate) fn describe(&self, peak_memory: u64) -> String {
        let mib = |bytes: u64| bytes / (1024 * 1024);
        let limit = std::fs::read_to_string(&self.limit).ok();
        let limit: Option<u64> = limit.and_then(|text| text.trim().parse().ok());
        let limit = limit.filter(|limit| *limit < NO_LIMIT);
        let limit = limit.map_or_else(String::new, |limit| format!(" of {} MiB", mib(limit)));
        format!(
            "the kernel killed a process of the CLI because the pod exceeded its memory limit{limit} (peak of the CLI: {} MiB); \
             raise runnerPodTemplate.spec.resources.limits.memory",
            mib(peak_memory)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_and_limit_are_read_in_both_versions() {
        for (files, limit) in [
            (FILES[0], "67108864\n"),
            (FILES[1], "67108864\n"),
            (FILES[0], "max\n"),
        ] {
            let root = tempfile::tempdir().unwrap();
            assert!(ContainerMemory::below(root.path()).is_none());
            let (events, limit_file) = (root.path().join(files.0), root.path().join(files.1));
            std::fs::create_dir_all(events.parent().unwrap()).unwrap();
            std::fs::write(&events, "oom_kill_disable 0\noom 4\noom_kill 3\n").unwrap();
            std::fs::write(limit_file, limit).unwrap();
            let memory = ContainerMemory::below(root.path()).unwrap();
            assert_eq!(memory.kills(), Some(3));
            let text = memory.describe(70 << 20);
            let expected = if limit.starts_with("max") {
                "limit (peak"
            } else {
                "limit of 64 MiB (peak"
            };
            assert!(text.contains(expected), "{text}");
        }
    }
}
