//! Who a runner is: unique for each start, and recognisable in a state lock.

use sluice_api::run::Claim;

/// The claimant of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Unique to one start: the pod's uid, or a nonce.
    pub holder: String,
    /// Name of the pod, if there is one.
    pub pod: String,
    /// `user@host`, as the CLI writes it into a state lock.
    pub who: String,
    /// Process id.
    pub process: u32,
}

impl Identity {
    /// Of this process. `pod` is its name and uid where there is a pod.
    #[must_use]
    pub fn of_this_process(pod: Option<(String, String)>) -> Self {
        let (pod, holder) = pod.unwrap_or_else(|| (String::new(), uuid::Uuid::new_v4().to_string()));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self {
            holder,
            pod,
            who: format!("{}@{host}", user()),
            process: std::process::id(),
        }
    }

    /// The claim that a run's status shows.
    #[must_use]
    pub fn claim(&self) -> Claim {
        Claim {
            holder: self.holder.clone(),
            pod: self.pod.clone(),
            process: format!("{}:{}", self.who, self.process),
        }
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
