//! Feature gates. As in Flux, unknown names are an error.

/// Feature gates.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Gates {
    /// Feature gates, `name=true,other=false`: `ObjectLevelWorkloadIdentity` lets objects use ServiceAccounts;
    /// `CacheSecretsAndConfigMaps` has no effect, since a Secret is read once for each of its versions.
    #[arg(long, value_delimiter = ',', value_parser = gate)]
    pub feature_gates: Vec<(Gate, bool)>,
}

/// A feature gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Cache Secrets and `ConfigMaps`. No effect: they are always read from the API server.
    CacheSecretsAndConfigMaps,
    /// Let objects use the identity of a ServiceAccount at a provider.
    ObjectLevelWorkloadIdentity,
}

impl Gates {
    /// Returns whether a gate is enabled. All gates are disabled by default; the last occurrence counts.
    #[must_use]
    pub fn is_open(&self, gate: Gate) -> bool {
        let last = self.feature_gates.iter().rev().find(|(named, _)| *named == gate);
        last.is_some_and(|(_, open)| *open)
    }
}

fn gate(text: &str) -> Result<(Gate, bool), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("{text:?} is not of the form name=true"))?;
    let gate = match name.trim() {
        "CacheSecretsAndConfigMaps" => Gate::CacheSecretsAndConfigMaps,
        "ObjectLevelWorkloadIdentity" => Gate::ObjectLevelWorkloadIdentity,
        _ => return Err(format!("feature gate {name:?} is unknown")),
    };
    Ok((gate, sluice_runtime::args::boolean(value.trim())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_gate_is_disabled_unless_its_last_occurrence_enables_it() {
        let gates = |texts: &[&str]| Gates {
            feature_gates: texts.iter().map(|text| gate(text).unwrap()).collect(),
        };
        let (expected, other) = (
            Gate::ObjectLevelWorkloadIdentity,
            "CacheSecretsAndConfigMaps=true",
        );
        assert!(!gates(&[]).is_open(expected));
        assert!(!gates(&[other]).is_open(expected));
        assert!(gates(&[other, "ObjectLevelWorkloadIdentity=true"]).is_open(expected));
        let both = [
            "ObjectLevelWorkloadIdentity=true",
            "ObjectLevelWorkloadIdentity=false",
        ];
        assert!(!gates(&both).is_open(expected));
    }

    #[test]
    fn an_unknown_gate_and_a_bad_value_are_refused() {
        for invalid in [
            "OptimizedGitClones=true",
            "ObjectLevelWorkloadIdentity",
            "ObjectLevelWorkloadIdentity=maybe",
        ] {
            assert!(gate(invalid).is_err(), "{invalid}");
        }
    }
}
