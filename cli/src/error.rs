//! Why a command ends without success, the exit code of it, and the next command to type.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use kube::core::Status;
use sluice_runtime::client::ClientError;
use sluice_runtime::failure::chain;

use crate::{connection, permission};

/// The exit codes of the command line. They are part of its interface; see docs/reference/cli.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// The command did what it was asked for.
    Success,
    /// The command failed, or what it waited for failed.
    Failed,
    /// The arguments are wrong. Clap uses the same code.
    Usage,
    /// A plan waits for an approval.
    AwaitsApproval,
    /// The object was not ready in time.
    TimedOut,
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(match status {
            ExitStatus::Success => 0,
            ExitStatus::Failed => 1,
            ExitStatus::Usage => 2,
            ExitStatus::AwaitsApproval => 3,
            ExitStatus::TimedOut => 4,
        })
    }
}

/// Why a command did not succeed. Each message names the object and the cause.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The arguments contradict each other, or one has no valid value.
    #[error("{0}")]
    Usage(String),
    /// There is no client: no kubeconfig, or a wrong one.
    #[error("{}", connection::message(.0))]
    Connection(#[from] ClientError),
    /// The API rejects a request or does not answer.
    #[error("cannot {action} {object}: {}", api_message(.source))]
    Api {
        /// What the command was about to do: `get`, `list`, `patch`, `create`, `delete`, `watch`.
        action: &'static str,
        /// The object or the list of objects, as [`crate::cluster::describe`] has it.
        object: String,
        /// The error of the API.
        source: Box<kube::Error>,
    },
    /// The object does not exist.
    #[error("{object} does not exist")]
    NotFound {
        /// The object.
        object: String,
        /// The command that lists what exists.
        list_command: String,
    },
    /// The object is in a state in which the command has no meaning.
    #[error("{object}: {cause}")]
    Refused {
        /// The object.
        object: String,
        /// Why.
        cause: String,
        /// The next command to type; empty: there is none.
        next_command: String,
    },
    /// What the command waited for has failed.
    #[error("{object} failed: {cause}")]
    Failed {
        /// The object.
        object: String,
        /// Reason and message.
        cause: String,
        /// The next command to type; empty: there is none.
        next_command: String,
    },
    /// A plan waits for an approval.
    #[error("{object} waits for an approval of {plan}")]
    AwaitsApproval {
        /// The stack.
        object: String,
        /// The id of the plan.
        plan: String,
        /// The command that approves it.
        next_command: String,
    },
    /// The object was not ready in time.
    #[error("{object} was not ready after {} s: {state}", .timeout.as_secs())]
    TimedOut {
        /// The object.
        object: String,
        /// The time that the command waited.
        timeout: Duration,
        /// Its last state.
        state: String,
        /// The command that shows the state later.
        next_command: String,
    },
    /// The user pressed Ctrl-C while the command waited.
    #[error("interrupted; {object} goes on without this command")]
    Interrupted {
        /// The object.
        object: String,
        /// The command that shows its state.
        next_command: String,
    },
    /// A file of the user, or the terminal, cannot be used.
    #[error("{what}: {source}")]
    File {
        /// What the command was about to do with which file.
        what: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// An object that cannot be written as JSON or YAML: a bug.
    #[error("cannot format the output: {0}")]
    Format(String),
}

impl CliError {
    /// Returns the exit code.
    #[must_use]
    pub fn exit_status(&self) -> ExitStatus {
        match self {
            Self::Usage(_) => ExitStatus::Usage,
            // The path of a request cannot have the name or the namespace that the user has typed.
            Self::Api { source, .. } if matches!(source.as_ref(), kube::Error::BuildRequest(_)) => {
                ExitStatus::Usage
            }
            Self::AwaitsApproval { .. } => ExitStatus::AwaitsApproval,
            Self::TimedOut { .. } => ExitStatus::TimedOut,
            Self::Connection(_)
            | Self::Api { .. }
            | Self::NotFound { .. }
            | Self::Refused { .. }
            | Self::Failed { .. }
            | Self::Interrupted { .. }
            | Self::File { .. }
            | Self::Format(_) => ExitStatus::Failed,
        }
    }

    /// Returns whether the API is away or overloaded, so that a later attempt may have another result.
    #[must_use]
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => is_failure_of_server(status.code),
                kube::Error::BuildRequest(_) => false,
                _ => true,
            },
            _ => false,
        }
    }

    /// Returns whether the user lacks a permission.
    #[must_use]
    pub(crate) fn is_forbidden(&self) -> bool {
        self.is_rejected_with(&[403])
    }

    /// Returns whether the API does not let the user read: it is forbidden, or there is no such kind.
    pub(crate) fn is_refused_read(&self) -> bool {
        self.is_rejected_with(&[403, 404, 405])
    }

    /// Returns whether the user may not create objects of this kind, or there is no such kind. A policy or a quota refuses one object.
    pub(crate) fn lacks_create_permission(&self) -> bool {
        self.api_status().is_some_and(|status| match status.code {
            403 => permission::is_refused_create(&status.message),
            code => code == 404 || code == 405,
        })
    }

    fn is_rejected_with(&self, codes: &[u16]) -> bool {
        matches!(self.api_status(), Some(status) if codes.contains(&status.code))
    }

    /// Returns the answer of the API, if it rejected the request.
    pub(crate) fn api_status(&self) -> Option<&Status> {
        let Self::Api { source, .. } = self else {
            return None;
        };
        match source.as_ref() {
            kube::Error::Api(status) => Some(status),
            _ => None,
        }
    }

    /// Returns what the user can do next, as a sentence or a command; empty: nothing is known.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Connection(error) => connection::advice(error).to_owned(),
            Self::Api {
                action,
                object,
                source,
            } => api_advice(action, object, source),
            Self::NotFound { list_command, .. } => list_command.clone(),
            Self::Refused { next_command, .. }
            | Self::Failed { next_command, .. }
            | Self::Interrupted { next_command, .. }
            | Self::TimedOut { next_command, .. }
            | Self::AwaitsApproval { next_command, .. } => next_command.clone(),
            Self::Usage(_) | Self::File { .. } | Self::Format(_) => String::new(),
        }
    }
}

/// Returns the message of a rejection without the wrapping of the client, or why there is no answer.
fn api_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::BuildRequest(_) => "the name or the namespace is not valid".to_owned(),
        kube::Error::Service(_) | kube::Error::HyperError(_) => root_cause(error),
        other => chain(other),
    }
}

/// Returns the innermost cause: what the layers of the client say around it does not help a user.
pub(crate) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn api_advice(action: &str, object: &str, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            let resource = object.split(' ').next().unwrap_or(object);
            permission::advice(&status.message)
                .unwrap_or_else(|| format!("kubectl auth can-i {action} {resource}"))
        }
        kube::Error::Api(status) if status.code == 401 => {
            "the credentials of the kubeconfig are wrong or have expired: log in again, or choose others with --kubeconfig or --context"
                .to_owned()
        }
        kube::Error::Api(status) if status.code == 404 => {
            "the definitions of Sluice may not be installed: sluice check".to_owned()
        }
        kube::Error::Api(status) if is_failure_of_server(status.code) => {
            "the API server is overloaded or fails: type the command again in a while".to_owned()
        }
        // The text of k8s.io/apimachinery, pkg/labels/selector.go.
        kube::Error::Api(status) if status.message.contains("unable to parse requirement") => {
            "write labels such as team=net,env!=prod after -l".to_owned()
        }
        kube::Error::Api(status) if status.reason == "AlreadyExists" => {
            "choose another name, or change the object: kubectl edit".to_owned()
        }
        kube::Error::Api(status) if status.reason == "Conflict" => conflict_advice(&status.message).to_owned(),
        kube::Error::Api(_) => String::new(),
        kube::Error::BuildRequest(_) => {
            "a name has lower-case letters, digits, - and .: check the words and -n".to_owned()
        }
        other if root_cause(other).contains("peer certificate") => {
            "the kubeconfig does not trust the certificate of the API: check server and certificate-authority-data in it"
                .to_owned()
        }
        _ => "the API does not answer: check the server of the kubeconfig, and a proxy".to_owned(),
    }
}

/// Returns the advice for a conflict: of field managers, as k8s.io/apimachinery words it, or of two writes at the same time.
fn conflict_advice(message: &str) -> &'static str {
    if message.starts_with("Apply failed with") {
        "type the command again with --force-conflicts to take these fields over"
    } else {
        "the object has changed at the same time: type the command again"
    }
}

/// Returns whether a later attempt may have another result.
const fn is_failure_of_server(code: u16) -> bool {
    code == 429 || code >= 500
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejection(code: u16, message: &str) -> CliError {
        let status = Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        };
        CliError::Api {
            action: "patch",
            object: "terraform default/app".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(status))),
        }
    }

    #[test]
    fn a_rejection_names_object_cause_and_next_command() {
        let forbidden = rejection(403, "terraforms is forbidden");
        assert_eq!(
            forbidden.to_string(),
            "cannot patch terraform default/app: terraforms is forbidden"
        );
        assert_eq!(forbidden.advice(), "kubectl auth can-i patch terraform");
        assert_eq!(forbidden.exit_status(), ExitStatus::Failed);
        assert!(forbidden.is_forbidden() && !forbidden.is_temporary());
        assert_eq!(rejection(409, "conflict").advice(), "");
    }

    #[test]
    fn a_conflict_says_how_to_go_on() {
        for (message, part) in [
            (
                "Apply failed with 1 conflict: conflict with \"kubectl\": .spec.replicas",
                "--force-conflicts",
            ),
            (
                "Operation cannot be fulfilled on terraforms: the object has been modified",
                "type the command again",
            ),
        ] {
            let advice = conflict_advice(message);
            assert!(advice.contains(part), "{advice}");
        }
        let status = Status {
            code: 409,
            reason: "Conflict".to_owned(),
            ..Status::default()
        };
        let error = kube::Error::Api(Box::new(status));
        assert_eq!(
            api_advice("patch", "terraform default/app", &error),
            conflict_advice("")
        );
    }

    #[test]
    fn a_wrong_selector_has_an_example() {
        let wrong = rejection(400, "unable to parse requirement: found '', expected: ','");
        assert_eq!(wrong.advice(), "write labels such as team=net,env!=prod after -l");
    }

    #[test]
    fn only_an_api_that_is_away_or_overloaded_is_asked_again() {
        for (code, is_temporary) in [
            (401, false),
            (403, false),
            (404, false),
            (409, false),
            (429, true),
            (500, true),
            (503, true),
        ] {
            assert_eq!(rejection(code, "no").is_temporary(), is_temporary, "{code}");
        }
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let away = CliError::Api {
            action: "list",
            object: "terraforms".to_owned(),
            source: Box::new(kube::Error::Service(Box::new(refused))),
        };
        assert!(away.is_temporary() && !away.is_forbidden());
        assert_eq!(away.to_string(), "cannot list terraforms: connection refused");
        assert!(!CliError::Usage(String::new()).is_temporary());
    }

    #[test]
    fn waiting_has_exit_codes_of_its_own() {
        let approval = CliError::AwaitsApproval {
            object: "terraform default/app".to_owned(),
            plan: "plan-x".to_owned(),
            next_command: "sluice approve app".to_owned(),
        };
        assert_eq!(approval.exit_status(), ExitStatus::AwaitsApproval);
        assert_eq!(approval.advice(), "sluice approve app");
        let late = CliError::TimedOut {
            object: "terraform default/app".to_owned(),
            timeout: Duration::from_secs(5),
            state: "planning".to_owned(),
            next_command: "sluice get terraforms app".to_owned(),
        };
        assert_eq!(
            late.to_string(),
            "terraform default/app was not ready after 5 s: planning"
        );
        assert_eq!(late.exit_status(), ExitStatus::TimedOut);
        assert_eq!(late.advice(), "sluice get terraforms app");
    }
}
