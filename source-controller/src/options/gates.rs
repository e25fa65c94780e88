//! Feature gates: Flux's names, and any other refused at the start, as there.

/// Feature gates of the program.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Gates {
    /// Feature gates, `name=true,other=false`: `ObjectLevelWorkloadIdentity` lets objects name ServiceAccounts;
    /// `CacheSecretsAndConfigMaps` is accepted, and has no effect because each pass reads the Secret it names afresh.
    #[arg(long, value_delimiter = ',', value_parser = gate)]
    pub feature_gates: Vec<(Gate, bool)>,
}

/// A feature gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Keep Secrets and `ConfigMaps` in memory. Nothing to do here: they are read when they are needed.
    CacheSecretsAndConfigMaps,
    /// Let objects name the ServiceAccount whose identity is used towards a provider.
    ObjectLevelWorkloadIdentity,
}

impl Gates {
    /// Whether a gate is open. All are closed at first; the last word counts.
    #[must_use]
    pub fn is_open(&self, gate: Gate) -> bool {
        let said = self.feature_gates.iter().rev().find(|(named, _)| *named == gate);
        said.is_some_and(|(_, open)| *open)
    }
}

fn gate(text: &str) -> Result<(Gate, bool), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("{text:?} is not of the form name=true"))?;
    let gate = match name.trim() {
        "CacheSecretsAndConfigMaps" => Gate::CacheSecretsAndConfigMaps,
        "ObjectLevelWorkloadIdentity" => Gate::ObjectLevelWorkloadIdentity,
        _ => return Err(format!("feature gate {name:?} is not known")),
    };
    Ok((gate, sluice_runtime::args::boolean(value.trim())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_closed_until_the_last_word_opens_it() {
        let gates = |texts: &[&str]| Gates {
            feature_gates: texts.iter().map(|text| gate(text).unwrap()).collect(),
        };
        let (wanted, other) = (
            Gate::ObjectLevelWorkloadIdentity,
            "CacheSecretsAndConfigMaps=true",
        );
        assert!(!gates(&[]).is_open(wanted));
        assert!(!gates(&[other]).is_open(wanted));
        assert!(gates(&[other, "ObjectLevelWorkloadIdentity=true"]).is_open(wanted));
        let both = [
            "ObjectLevelWorkloadIdentity=true",
            "ObjectLevelWorkloadIdentity=false",
        ];
        assert!(!gates(&both).is_open(wanted));
    }

    #[test]
    fn an_unknown_gate_and_a_bad_value_are_refused() {
        for bad in [
            "OptimizedGitClones=true",
            "ObjectLevelWorkloadIdentity",
            "ObjectLevelWorkloadIdentity=maybe",
        ] {
            assert!(gate(bad).is_err(), "{bad}");
        }
    }
}
