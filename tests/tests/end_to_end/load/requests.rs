//! The requests of ServiceAccounts to the API server, counted in its audit log. A log of a large test has 100 MB, so each line is read
//! once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The user name of a ServiceAccount begins with this; namespace and name follow.
const ACCOUNT: &str = "system:serviceaccount:";

/// An event of audit.k8s.io/v1, as far as it is counted.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditEvent {
    stage: String,
    verb: String,
    user: User,
    object_ref: Option<ObjectReference>,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
struct ObjectReference {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
}

/// Requests that count together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestKind {
    /// The name of the ServiceAccount, without its namespace.
    pub(super) account: String,
    /// The resource, with the subresource after a slash.
    pub(super) resource: String,
    pub(super) verb: String,
}

impl RequestKind {
    /// Returns the kind of a request; `None` for another user, and for a stage of a request that is counted at another one.
    fn of(event: AuditEvent) -> Option<Self> {
        // A watch is answered when it begins, and ends only minutes later.
        let counted = if event.verb == "watch" {
            "ResponseStarted"
        } else {
            "ResponseComplete"
        };
        let account = event.user.username.strip_prefix(ACCOUNT)?.split_once(':')?.1;
        let object = event.object_ref.filter(|_| event.stage == counted)?;
        let resource = if object.subresource.is_empty() {
            object.resource
        } else {
            format!("{}/{}", object.resource, object.subresource)
        };
        Some(Self {
            account: account.to_owned(),
            resource,
            verb: event.verb,
        })
    }

    /// Returns whether it belongs to no object: a Lease is renewed and a watch is opened again from time to time.
    fn is_periodic(&self) -> bool {
        self.verb == "watch" || self.resource == "leases"
    }

    pub(super) fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}

/// Numbers of requests by kind, without those that belong to no object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestCounts(BTreeMap<RequestKind, usize>);

impl RequestCounts {
    /// Counts the request of a line of the log.
    fn add(&mut self, line: &str) -> Result<(), serde_json::Error> {
        let kind = RequestKind::of(serde_json::from_str(line)?);
        if let Some(kind) = kind.filter(|kind| !kind.is_periodic()) {
            *self.0.entry(kind).or_default() += 1;
        }
        Ok(())
    }

    /// Returns the requests since an earlier count.
    fn since(&self, before: &Self) -> Self {
        let difference = |(kind, count): (&RequestKind, &usize)| {
            let earlier = before.0.get(kind).copied().unwrap_or(0);
            (kind.clone(), count - earlier)
        };
        let all = self.0.iter().map(difference);
        Self(all.filter(|(_, count)| *count > 0).collect())
    }

    /// Returns the number of requests of an account that match.
    pub(super) fn sum(&self, account: &str, is_counted: impl Fn(&RequestKind) -> bool) -> usize {
        let of_account = self.of(account);
        of_account
            .filter(|(kind, _)| is_counted(kind))
            .map(|(_, count)| count)
            .sum()
    }

    /// Returns the requests of an account.
    pub(super) fn of(&self, account: &str) -> impl Iterator<Item = (&RequestKind, usize)> {
        let all = self.0.iter().map(|(kind, count)| (kind, *count));
        all.filter(move |(kind, _)| kind.account == account)
    }
}

/// The audit log of an API server, read up to an offset.
pub(super) struct AuditLog {
    path: PathBuf,
    offset: u64,
    counts: RequestCounts,
}

impl AuditLog {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            offset: 0,
            counts: RequestCounts::default(),
        }
    }

    /// Reads the new lines. Returns whether they have a request that counts.
    pub(super) fn read(&mut self) -> io::Result<bool> {
        let mut file = match File::open(&self.path) {
            // The log begins with the first request.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        // The last line may not be complete.
        let end = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        text.truncate(end);
        self.offset += end as u64;
        let before = self.counts.clone();
        for line in String::from_utf8_lossy(&text).lines() {
            self.counts.add(line)?;
        }
        Ok(self.counts != before)
    }

    /// Returns all requests so far.
    pub(super) fn counts(&self) -> RequestCounts {
        self.counts.clone()
    }

    /// Returns the requests since an earlier count.
    pub(super) fn since(&self, before: &RequestCounts) -> RequestCounts {
        self.counts.since(before)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::{Value, json};

    use super::*;

    fn line(account: &str, verb: &str, stage: &str, object: &Value) -> String {
        let user = json!({ "username": format!("system:serviceaccount:{account}"), "groups": ["system:serviceaccounts"] });
        json!({ "kind": "Event", "stage": stage, "verb": verb, "user": user, "objectRef": object })
            .to_string()
    }

    fn lines(counts: &RequestCounts, account: &str) -> Vec<String> {
        let of_account = counts.of(account);
        of_account
            .map(|(kind, count)| format!("{} {} {count}", kind.verb, kind.resource))
            .collect()
    }

    #[test]
    fn each_request_of_an_object_counts_once_in_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut file = File::create(&path).unwrap();
        let (stacks, status, leases) = (
            json!({ "resource": "terraforms", "apiGroup": "infra.contrib.fluxcd.io" }),
            json!({ "resource": "terraforms", "subresource": "status" }),
            json!({ "resource": "leases" }),
        );
        let controller = "sluice-system:tf-controller";
        let (started, complete) = ("ResponseStarted", "ResponseComplete");
        let first = [
            line(controller, "get", complete, &stacks),
            line(controller, "patch", complete, &status),
            line("team-0:tf-runner", "get", complete, &stacks),
            line(controller, "watch", started, &stacks),
            line(controller, "update", complete, &leases),
            line(controller, "get", complete, &Value::Null),
        ];
        writeln!(file, "{}", first.join("\n")).unwrap();
        let mut log = AuditLog::new(&path);
        assert!(log.read().unwrap());
        assert!(!log.read().unwrap(), "nothing is read twice");
        assert_eq!(
            lines(&log.counts(), "tf-controller"),
            ["get terraforms 1", "patch terraforms/status 1"]
        );
        assert_eq!(lines(&log.counts(), "tf-runner"), ["get terraforms 1"]);
        let writes = log.counts().sum("tf-controller", RequestKind::is_write);
        assert_eq!(writes, 1);

        let before = log.counts();
        write!(file, "{}", &line(controller, "get", complete, &stacks)).unwrap();
        assert!(!log.read().unwrap(), "the line is not complete");
        writeln!(file).unwrap();
        assert!(log.read().unwrap());
        assert_eq!(lines(&log.since(&before), "tf-controller"), ["get terraforms 1"]);
        writeln!(file, "{}", line(controller, "update", complete, &leases)).unwrap();
        assert!(
            !log.read().unwrap(),
            "the renewal of a Lease belongs to no object"
        );
        writeln!(file, "no event").unwrap();
        assert!(log.read().is_err());
    }
}
