//! Who a runner is: unique for each start, and recognisable in a state lock.

use std::str::FromStr;

use sluice_api::run::Claim;

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

/// The claimant of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Unique to one start.
    pub holder: String,
    /// The pod, if there is one.
    pub pod: Option<Pod>,
    /// Where the file locks of the runner are seen: the same for whoever shares them, and for nobody else.
    pub site: String,
    /// `user@host`, as the CLI writes it into a state lock.
    pub who: String,
    /// Process id.
    pub process: u32,
}

impl Identity {
    /// Of this process.
    #[must_use]
    pub fn of_this_process(pod: Option<Pod>) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self {
            holder: uuid::Uuid::new_v4().to_string(),
            pod,
            site: String::new(),
            who: format!("{}@{host}", user()),
            process: std::process::id(),
        }
    }

    /// The claim that a run's status shows.
    #[must_use]
    pub fn claim(&self) -> Claim {
        let pod = self.pod.clone().unwrap_or_default();
        Claim {
            holder: self.holder.clone(),
            pod: pod.name,
            pod_namespace: pod.namespace,
            pod_uid: pod.uid,
            process: format!("{}:{}", self.who, self.process),
            site: self.site.clone(),
        }
    }

    /// Whether the file locks of whoever made the claim are the ones that are seen here.
    #[must_use]
    pub fn shares_locks(&self, claim: &Claim) -> bool {
        if self.site.is_empty() {
            // Where nobody says what the site is, pods share nothing, and processes outside of pods share a machine.
            let no_pods = self.pod.is_none() && claim.pod.is_empty();
            return no_pods && claim.site.is_empty() && who(claim) == self.who;
        }
        self.site == claim.site
    }
}

/// The `user@host` of a claim.
pub(super) fn who(claim: &Claim) -> &str {
    claim.process.rsplit_once(':').map_or("", |(who, _)| who)
}

/// The user's name as the CLI finds it, or the number when there is no name.
fn user() -> String {
    let uid = rustix::process::getuid().as_raw().to_string();
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    });
    named.unwrap_or(uid)
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

    #[test]
    fn locks_are_shared_at_one_site_and_by_processes_without_one() {
        let here = |site: &str, pod: Option<Pod>| Identity {
            site: site.into(),
            ..Identity::of_this_process(pod)
        };
        let pod = || Some(Pod::default());
        let named = || {
            Some(Pod {
                name: "p".into(),
                ..Pod::default()
            })
        };
        for (own, other, shared) in [
            (here("a", None), here("a", None), true),
            (here("a", pod()), here("a", named()), true),
            (here("a", None), here("b", None), false),
            (here("a", None), here("", None), false),
            (here("", None), here("", None), true),
            (here("", pod()), here("", None), false),
            (here("", None), here("", named()), false),
        ] {
            assert_eq!(own.shares_locks(&other.claim()), shared, "{own:?} {other:?}");
        }
        let elsewhere = Identity {
            who: "me@elsewhere".into(),
            ..here("", None)
        };
        assert!(!here("", None).shares_locks(&elsewhere.claim()));
    }
}
