//! The parts of the benchmark. Each can be measured alone.

use clap::ValueEnum;

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Lookups of unchanged heads.
    Head,
    /// New sources of 2,000 files and pushes to them.
    Sources,
    /// Packages of 90 MB.
    Packages,
    /// New sources from 1 MB on and pushes to them.
    Curve,
    /// Several large repositories at once, and a large file.
    Large,
    /// Digests of an artifact.
    Digests,
    /// Many small sources.
    Fleet,
    /// Very many unchanged sources with an interval of a minute.
    Steady,
    /// Downloads of artifacts.
    Serving,
    /// First applies and later plans.
    FirstApply,
    /// Later runs with a large provider.
    Providers,
    /// Unchanged and idle stacks.
    Stacks,
    /// Commands that read the idle stacks.
    Commands,
    /// A store in Git with a long history.
    GitStore,
    /// The API with many objects and watches.
    ApiLoad,
}

impl Part {
    /// Returns these parts, or all of them if there are none, in the order of the declaration.
    pub(crate) fn selected(only: &[Self]) -> Vec<Self> {
        let all = Self::value_variants().iter().copied();
        all.filter(|part| only.is_empty() || only.contains(part))
            .collect()
    }

    /// Returns its name on the command line.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns what it measures, and beside what.
    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::Head => "lookups of unchanged heads beside git ls-remote and git fetch",
            Self::Sources => "new sources of 2,000 files and pushes to them beside git and tar",
            Self::Packages => "packages of 90 MB beside git archive and pigz",
            Self::Curve => "new sources of 1 to 473 MB and pushes to them beside git",
            Self::Large => "memory for eight new sources of 100 MB at once, and for a file of 300 MB",
            Self::Digests => "digests of an artifact by SHA-256, SHA-512 and BLAKE3",
            Self::Fleet => "many small sources beside Flux's source-controller",
            Self::Steady => "10,000 unchanged sources with an interval of a minute",
            Self::Serving => "downloads of artifacts beside nginx",
            Self::FirstApply => "first applies and later plans beside the CLI",
            Self::Providers => "later runs with a provider of 200 MB beside runs without providers",
            Self::Stacks => "unchanged and idle stacks",
            Self::Commands => "commands that read the idle stacks beside kubectl",
            Self::GitStore => "a store in Git with 5,000 objects and 50,000 commits beside git",
            Self::ApiLoad => "the API with 10,000 objects and 200 watches beside kube-apiserver and etcd",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_selected_by_name_and_keep_their_order() {
        assert_eq!(Part::selected(&[]).len(), 15);
        let only = [Part::FirstApply, Part::Head];
        assert_eq!(Part::selected(&only), [Part::Head, Part::FirstApply]);
        assert_eq!(Part::FirstApply.name(), "first-apply");
    }
}
