//! Pages of a list: which objects `limit`, `continue` and `resourceVersion` select.
//!
//! All pages show the objects at the revision of the first one, which the watch cache restores. Once the cache no longer reaches back
//! to it, the client gets 410, with a token that continues at the newest revision.

use std::sync::Arc;

use serde_json::Value;

use super::continue_token::ContinueToken;
use super::list_options::{self, EXACT};
use super::query::Query;
use super::read::{self, check_reached, parse_version};
use super::request::ObjectRequest;
use crate::meta;
use crate::selector::Selector;
use crate::status_error::StatusError;
use crate::store::State;

/// kube-apiserver's message for an expired version.
const EXPIRED: &str = "The resourceVersion for the provided list is too old.";
/// kube-apiserver's message for an expired token.
const TOKEN_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    /// The objects, sorted by namespace and name.
    pub(crate) objects: Vec<Arc<Value>>,
    /// Revision of the list.
    pub(crate) revision: u64,
    /// Token of the next page; empty on the last page.
    pub(crate) continue_token: String,
    /// Number of objects after this page; `None` on the last page, and with selectors.
    pub(crate) remaining: Option<usize>,
}

/// What a request wants to see.
#[derive(Debug, Default, PartialEq, Eq)]
struct Start {
    /// Only this revision will do.
    exact: Option<u64>,
    /// Any revision from this one will do.
    at_least: u64,
    /// Lowest key of the page, from a token.
    key: Option<String>,
}

/// Reads the page that a request asks for.
pub(super) fn read(request: &ObjectRequest) -> Result<Page, StatusError> {
    let selector = read::selector(request)?;
    list_options::check(&request.query)?;
    let start = start(&request.query, &list_id(request))?;
    let (mut objects, revision) = objects_at(request, &start)?;
    if let Some(key) = &start.key {
        let first = first_key(request, key);
        objects.retain(|object| (meta::namespace(object), meta::name(object)) >= first);
    }
    Ok(cut(request, &selector, objects, revision))
}

/// Returns the identity of a list in its tokens.
fn list_id(request: &ObjectRequest) -> String {
    format!("{}/{}", request.resource.group_resource(), request.at.namespace)
}

fn lists_all_namespaces(request: &ObjectRequest) -> bool {
    request.resource.namespaced && request.at.namespace.is_empty()
}

/// Decides at which revision and key a page starts, as kube-apiserver's `storage.ValidateListOptions`.
fn start(query: &Query, list: &str) -> Result<Start, StatusError> {
    if !query.continue_token.is_empty() {
        let token = ContinueToken::parse(&query.continue_token, list)
            .map_err(|error| StatusError::bad_request(format!("invalid continue token: {error}")))?;
        if !matches!(query.resource_version.as_str(), "" | "0") {
            let reason = "specifying resource version is not allowed when using continue";
            return Err(StatusError::bad_request(reason));
        }
        return Ok(Start {
            exact: token.revision,
            at_least: 0,
            key: Some(token.start),
        });
    }
    if query.resource_version.is_empty() {
        return Ok(Start::default());
    }
    let requested = parse_version(&query.resource_version)
        .map_err(|reason| StatusError::bad_request(format!("invalid resource version: {reason}")))?;
    let is_exact = match query.resource_version_match.as_str() {
        // A limit alone has always meant this version.
        "" => query.limit > 0 && requested > 0,
        matching => matching == EXACT,
    };
    Ok(if is_exact {
        Start {
            exact: Some(requested),
            ..Start::default()
        }
    } else {
        Start {
            at_least: requested,
            ..Start::default()
        }
    })
}

fn objects_at(request: &ObjectRequest, start: &Start) -> Result<(Vec<Arc<Value>>, u64), StatusError> {
    let (kind, namespace) = (request.resource.group_resource(), &request.at.namespace);
    let state = request.api.store.read();
    let Some(exact) = start.exact else {
        check_reached(&state, start.at_least)?;
        return Ok((state.list(&kind, namespace), state.revision()));
    };
    check_reached(&state, exact)?;
    let listed = restore(&state, &kind, namespace, exact);
    drop(state);
    let objects = listed.ok_or_else(|| expired(request, start))?;
    Ok((objects, exact))
}

fn restore(state: &State, kind: &str, namespace: &str, revision: u64) -> Option<Vec<Arc<Value>>> {
    if revision == state.revision() {
        Some(state.list(kind, namespace))
    } else {
        state.list_at(kind, namespace, revision).ok()
    }
}

fn expired(request: &ObjectRequest, start: &Start) -> StatusError {
    let Some(key) = &start.key else {
        return StatusError::expired(EXPIRED);
    };
    let newest = ContinueToken {
        revision: None,
        start: key.clone(),
    };
    StatusError::expired(TOKEN_EXPIRED).with_continue(newest.encode(&list_id(request)))
}

/// Returns namespace and name at which a page starts.
fn first_key<'a>(request: &'a ObjectRequest, key: &'a str) -> (&'a str, &'a str) {
    if lists_all_namespaces(request) {
        key.split_once('/').unwrap_or((key, ""))
    } else {
        (request.at.namespace.as_str(), key)
    }
}

/// Returns the key after this object: none is between the two.
fn key_after(request: &ObjectRequest, object: &Value) -> String {
    let name = meta::name(object);
    if lists_all_namespaces(request) {
        format!("{}/{name}\0", meta::namespace(object))
    } else {
        format!("{name}\0")
    }
}

/// Takes the objects that match until the page is full.
fn cut(request: &ObjectRequest, selector: &Selector, objects: Vec<Arc<Value>>, revision: u64) -> Page {
    let limit = limit(request, selector);
    let total = objects.len();
    let (mut page, mut seen) = (Vec::new(), 0);
    for object in objects {
        seen += 1;
        if selector.matches(&object) {
            page.push(object);
            if page.len() == limit {
                break;
            }
        }
    }
    // As in kube-apiserver, objects that do not match count here: the next page may be empty.
    let remaining = total - seen;
    let next = page.last().filter(|_| remaining > 0).map(|last| ContinueToken {
        revision: Some(revision),
        start: key_after(request, last),
    });
    let query = &request.query;
    let is_countable = query.label_selector.is_empty() && query.field_selector.is_empty();
    Page {
        remaining: (next.is_some() && is_countable).then_some(remaining),
        continue_token: next.map_or_else(String::new, |token| token.encode(&list_id(request))),
        objects: page,
        revision,
    }
}

/// Returns the number of objects of a page; 0 is unlimited. kube-apiserver does not chunk a list of any version, which it takes
/// from its cache, nor one of a single object.
fn limit(request: &ObjectRequest, selector: &Selector) -> usize {
    let query = &request.query;
    let is_single =
        selector.requires_name() && query.continue_token.is_empty() && !lists_all_namespaces(request);
    if query.resource_version == "0" || is_single {
        return 0;
    }
    usize::try_from(query.limit).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start_of(query: &str) -> Result<Start, u16> {
        let query = Query::parse(query, "").map_err(|error| error.code())?;
        start(&query, "configmaps/a").map_err(|error| error.code())
    }

    #[test]
    fn a_version_is_exact_if_it_says_so_or_has_a_limit() {
        let exact = |revision| {
            Ok(Start {
                exact: Some(revision),
                ..Start::default()
            })
        };
        let at_least = |at_least| {
            Ok(Start {
                at_least,
                ..Start::default()
            })
        };
        assert_eq!(start_of(""), at_least(0));
        assert_eq!(start_of("limit=5"), at_least(0));
        assert_eq!(start_of("resourceVersion=7"), at_least(7));
        assert_eq!(start_of("resourceVersion=7&limit=5"), exact(7));
        assert_eq!(start_of("resourceVersion=0&limit=5"), at_least(0));
        assert_eq!(start_of("resourceVersion=7&resourceVersionMatch=Exact"), exact(7));
        assert_eq!(
            start_of("resourceVersion=7&limit=5&resourceVersionMatch=NotOlderThan"),
            at_least(7)
        );
        assert_eq!(start_of("resourceVersion=x"), Err(400));
    }

    #[test]
    fn a_token_excludes_a_version() {
        let token = ContinueToken {
            revision: Some(7),
            start: "b\0".into(),
        };
        let text = token.encode("configmaps/a");
        let expected = Start {
            exact: Some(7),
            at_least: 0,
            key: Some("b\0".into()),
        };
        assert_eq!(start_of(&format!("continue={text}")), Ok(expected));
        assert_eq!(start_of(&format!("continue={text}&resourceVersion=7")), Err(400));
        assert_eq!(start_of("continue=!"), Err(400));
    }
}
