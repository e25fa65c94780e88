//! The identity of a runner: unique for each start, and recognisable in a state lock.

use std::collections::BTreeMap;

use sluice_api::run::Claim;
use sluice_tf_core::run_input::PodRef;

/// The claimant of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// An id that is unique to one start.
    pub holder: String,
    /// The pod, if there is one.
    pub pod: Option<PodRef>,
    /// The lock domain: equal for processes that see each other's process locks, and only for them.
    pub lock_domain: String,
    /// `user@host`, as the CLI writes it into a state lock when it has the environment of this process.
    pub who: String,
    /// Process id.
    pub process: u32,
}

impl Identity {
    /// The identity of this process, whose environment this is.
    #[must_use]
    pub fn of_this_process(pod: Option<PodRef>, environment: &BTreeMap<String, String>) -> Self {
        Self {
            holder: uuid::Uuid::new_v4().to_string(),
            pod,
            lock_domain: String::new(),
            who: lock_holder(environment),
            process: std::process::id(),
        }
    }

    /// The claim in a run's status.
    #[must_use]
    pub fn claim(&self) -> Claim {
        let pod = self.pod.clone().unwrap_or_default();
        Claim {
            holder: self.holder.clone(),
            pod: pod.name,
            pod_namespace: pod.namespace,
            pod_uid: pod.uid,
            process: format!("{}:{}", self.who, self.process),
            lock_domain: self.lock_domain.clone(),
        }
    }

    /// Whether this runner sees the process locks of the claimant.
    #[must_use]
    pub(crate) fn shares_locks(&self, claim: &Claim) -> bool {
        if self.lock_domain.is_empty() {
            // Without a configured lock domain, pods share no locks, and processes of one machine share them.
            let no_pods = self.pod.is_none() && claim.pod.is_empty();
            return no_pods && claim.lock_domain.is_empty() && who(claim) == self.who;
        }
        self.lock_domain == claim.lock_domain
    }
}

/// The `user@host` of a claim.
pub(crate) fn who(claim: &Claim) -> &str {
    claim.process.rsplit_once(':').map_or("", |(who, _)| who)
}

/// The `user@host` that a CLI of this user with this environment writes into a state lock.
pub(crate) fn lock_holder(environment: &BTreeMap<String, String>) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let uid = rustix::process::getuid().as_raw();
    let accounts = std::fs::read("/etc/passwd").unwrap_or_default();
    let user = user_name(&String::from_utf8_lossy(&accounts), uid, environment);
    format!("{user}@{host}")
}

/// The user name of Go's `user.Current` in a program without cgo, as the published CLIs are (pure): that of the account; without
/// an account `USER`, if `HOME` is set too. Otherwise Go returns an error, and the CLI leaves the name empty.
fn user_name(accounts: &str, uid: u32, environment: &BTreeMap<String, String>) -> String {
    let variable = |name: &str| environment.get(name).filter(|value| !value.is_empty());
    let of_account = || {
        accounts
            .lines()
            .find_map(|line| account_of(line, uid))
            .map(str::to_owned)
    };
    let of_environment = || variable("HOME").and_then(|_| variable("USER")).cloned();
    of_account().or_else(of_environment).unwrap_or_default()
}

/// The name in a line of `/etc/passwd`, if Go parses it as the account of this uid.
fn account_of(line: &str, uid: u32) -> Option<&str> {
    let fields: Vec<&str> = line.trim().splitn(7, ':').collect();
    let [name, _, number, group, _, _, _] = fields[..] else {
        return None;
    };
    let is_name = !name.is_empty() && !name.starts_with(['+', '-', '#']);
    let is_account = is_name && group.parse::<i64>().is_ok();
    (is_account && number == uid.to_string()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_a_lock_is_found_as_go_finds_it() {
        let accounts = "# root:x:7:7::/:/bin/sh\n\nroot:x:0:0:root:/root:/bin/bash\n+nis:x:7:7::/:\n:x:7:7::/:\nshort:x:7:7:\n\
                        odd:x:7:none::/:/bin/sh\n  ada:x:7:7::/home/ada:\nbob:x:7:7::/home/bob:/bin/sh\n";
        let both: &[(&str, &str)] = &[("USER", "eve"), ("HOME", "/")];
        for (uid, given, name) in [
            (0, both, "root"),
            (7, both, "ada"),
            (8, both, "eve"),
            (8, &[("USER", "eve")], ""),
            (8, &[("USER", "eve"), ("HOME", "")], ""),
            (8, &[("USER", ""), ("HOME", "/")], ""),
            (8, &[], ""),
        ] {
            let environment = given
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            assert_eq!(
                user_name(accounts, uid, &environment.collect()),
                name,
                "{uid} {given:?}"
            );
        }
    }

    #[test]
    fn locks_are_shared_within_a_lock_domain_and_without_one() {
        let here = |site: &str, pod: Option<PodRef>| Identity {
            lock_domain: site.into(),
            ..Identity::of_this_process(pod, &BTreeMap::new())
        };
        let pod = || Some(PodRef::default());
        let named = || {
            Some(PodRef {
                name: "p".into(),
                ..PodRef::default()
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
