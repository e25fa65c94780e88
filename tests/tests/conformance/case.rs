//! A case is data: a name and the steps of a conversation.

use serde_json::Value;

use crate::known::Known;

/// One conversation with a server.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// What the servers are asked to agree on.
    pub(crate) name: &'static str,
    /// The conversation.
    pub(crate) steps: Vec<Step>,
    /// In what the answers are known to differ, if they are, and why.
    pub(crate) differs: Option<&'static Known>,
}

/// One step. In paths and bodies `{ns}` is the case's namespace, `{rv:N}` and `{uid:N}` are resourceVersion and uid in
/// the answer of step N.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A request and its answer.
    Send {
        /// HTTP method.
        method: &'static str,
        /// Path and query.
        path: String,
        /// Header fields.
        headers: Vec<(&'static str, &'static str)>,
        /// The body, already text.
        body: String,
    },
    /// Opens a watch, reads this many events, closes it.
    Watch(String, usize),
    /// Asks for a list until it has this many items: for answers that may come from a cache, which may be behind.
    CaughtUp(String, usize),
    /// Waits until the path answers 404.
    Gone(String),
    /// Whether two answers carry the same resourceVersion.
    SameVersion(usize, usize),
}

pub(crate) fn case(name: &'static str, steps: impl IntoIterator<Item = Step>) -> Case {
    Case {
        name,
        steps: steps.into_iter().collect(),
        differs: None,
    }
}

fn send(method: &'static str, path: &str, content: Option<&'static str>, body: String) -> Step {
    let headers = content
        .map(|content| ("content-type", content))
        .into_iter()
        .collect();
    Step::Send {
        method,
        path: path.to_owned(),
        headers,
        body,
    }
}

pub(crate) fn get(path: &str) -> Step {
    send("GET", path, None, String::new())
}

pub(crate) fn post(path: &str, body: &Value) -> Step {
    send("POST", path, Some("application/json"), body.to_string())
}

pub(crate) fn put(path: &str, body: &Value) -> Step {
    send("PUT", path, Some("application/json"), body.to_string())
}

pub(crate) fn delete(path: &str) -> Step {
    send("DELETE", path, None, String::new())
}

pub(crate) fn delete_with(path: &str, options: &Value) -> Step {
    send("DELETE", path, Some("application/json"), options.to_string())
}

pub(crate) fn merge(path: &str, body: &Value) -> Step {
    send(
        "PATCH",
        path,
        Some("application/merge-patch+json"),
        body.to_string(),
    )
}

pub(crate) fn json_patch(path: &str, body: &Value) -> Step {
    send(
        "PATCH",
        path,
        Some("application/json-patch+json"),
        body.to_string(),
    )
}

/// Any request, as it stands.
pub(crate) fn raw(method: &'static str, path: &str, content: &'static str, body: &str) -> Step {
    send(method, path, Some(content), body.to_owned())
}

/// A request for what `kubectl get` prints.
pub(crate) fn table(path: &str) -> Step {
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    Step::Send {
        method: "GET",
        path: path.to_owned(),
        headers: vec![("accept", accept)],
        body: String::new(),
    }
}

pub(crate) fn watch(path: &str, events: usize) -> Step {
    Step::Watch(path.to_owned(), events)
}

pub(crate) fn caught_up(path: &str, items: usize) -> Step {
    Step::CaughtUp(path.to_owned(), items)
}

pub(crate) fn gone(path: &str) -> Step {
    Step::Gone(path.to_owned())
}
