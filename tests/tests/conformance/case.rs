//! A case: a name and the steps of a conversation with a server.

use serde_json::Value;

use crate::known_differences::KnownDifferences;

/// A conversation with a server.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The behaviour on which both servers must agree.
    pub(crate) name: &'static str,
    /// The steps.
    pub(crate) steps: Vec<Step>,
    /// The known differences, if any.
    pub(crate) differs: Option<&'static KnownDifferences>,
}

/// A step. In paths and bodies `{ns}` is the case's namespace; `{rv:N}`, `{uid:N}`, `{continue:N}` and `{token:N}` are resourceVersion,
/// uid, `continue` token and token of an account in the response to step N.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Sends a request.
    Send {
        /// HTTP method.
        method: &'static str,
        /// Path and query.
        path: String,
        /// The headers.
        headers: Vec<(&'static str, &'static str)>,
        /// The body as text.
        body: String,
    },
    /// Opens a watch, reads this many events, closes it.
    Watch(String, usize),
    /// Requests a list until it has this many items, since responses may come from an outdated cache.
    WaitForItems(String, usize),
    /// Waits until the path responds with 404.
    WaitUntilGone(String),
    /// Repeats a request until the response has this status, since a changed definition takes effect later.
    Until(u16, Box<Self>),
    /// Requests an object until it has a condition of this type.
    WaitForCondition(String, &'static str),
    /// Requests an object and compares its field managers: who owns which fields, without times.
    Managers(String),
    /// Requests aggregated discovery until it has this group, and compares the group alone.
    Discovery(&'static str),
    /// Requests aggregated discovery at this path again with its entity tag, until the server answers that nothing has changed.
    NotModified(&'static str),
    /// Compares the resourceVersions of two responses.
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

/// Applies a configuration as this field manager.
pub(crate) fn apply(path: &str, manager: &str, body: &Value) -> Step {
    apply_with(path, &format!("fieldManager={manager}"), body)
}

/// Applies a configuration with these query parameters.
pub(crate) fn apply_with(path: &str, query: &str, body: &Value) -> Step {
    let content = "application/apply-patch+yaml";
    send(
        "PATCH",
        &format!("{path}?{query}"),
        Some(content),
        body.to_string(),
    )
}

pub(crate) fn managers(path: &str) -> Step {
    Step::Managers(path.to_owned())
}

/// Any request.
pub(crate) fn raw(method: &'static str, path: &str, content: &'static str, body: &str) -> Step {
    send(method, path, Some(content), body.to_owned())
}

/// The request of `kubectl get` for a table.
pub(crate) fn table(path: &str) -> Step {
    get_as(
        path,
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    )
}

/// Requests a response with this `Accept` header.
pub(crate) fn get_as(path: &str, accept: &'static str) -> Step {
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

pub(crate) fn wait_for_items(path: &str, items: usize) -> Step {
    Step::WaitForItems(path.to_owned(), items)
}

/// Repeats a request until its response has this status.
pub(crate) fn until(status: u16, request: Step) -> Step {
    Step::Until(status, Box::new(request))
}

pub(crate) fn wait_for_condition(path: &str, type_: &'static str) -> Step {
    Step::WaitForCondition(path.to_owned(), type_)
}

pub(crate) fn wait_until_gone(path: &str) -> Step {
    Step::WaitUntilGone(path.to_owned())
}
