//! The name of the pod that a runner works in.

use std::str::FromStr;

/// The pod that a runner works in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; empty where nobody told it: then nothing is proved by the pod.
    pub uid: String,
}

/// The text is no `namespace/name/uid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pod is given as namespace/name/uid")]
pub struct BadPod;

impl FromStr for Pod {
    type Err = BadPod;

    fn from_str(text: &str) -> Result<Self, BadPod> {
        let mut parts = text.split('/').map(str::to_owned);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(namespace), Some(name), Some(uid), None) => Ok(Self { namespace, name, uid }),
            _ => Err(BadPod),
        }
    }
}

impl std::fmt::Display for Pod {
    fn fmt(&self, text: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(text, "{}/{}/{}", self.namespace, self.name, self.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_read_as_it_is_written() {
        let pod = Pod {
            namespace: "flux-system".into(),
            name: "tf-controller-1".into(),
            uid: String::new(),
        };
        assert_eq!(pod.to_string().parse(), Ok(pod));
        for text in ["", "a", "a/b", "a/b/c/d"] {
            assert_eq!(text.parse::<Pod>(), Err(BadPod), "{text}");
        }
    }
}
