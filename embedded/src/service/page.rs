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
use crate::selector::Selector;
use crate::status_error::StatusError;
use crate::store::{Key, ListSnapshot};

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

/// The version and the position at which a page begins.
#[derive(Debug, Default, PartialEq, Eq)]
struct Start {
    /// Only this revision will do.
    exact: Option<u64>,
    /// Any revision from this one will do.
    at_least: u64,
    /// Lowest key of the page, from a token.
    key: Option<String>,
    /// Number of objects before the page; `None` if unknown.
    preceding: Option<usize>,
}

/// Reads the page that a request asks for.
pub(super) fn read(request: &ObjectRequest) -> Result<Page, StatusError> {
    let selector = read::selector(request)?;
    list_options::check(&request.query)?;
    let start = start(&request.query, &list_id(request))?;
    let kind = request.resource.group_resource();
    let state = request.api.store.read();
    check_reached(&state, start.exact.unwrap_or(start.at_least))?;
    let revision = start.exact.unwrap_or_else(|| state.revision());
    let snapshot = state.list_at(&kind, &request.at.namespace, revision);
    let snapshot = snapshot.map_err(|_| expired(request, &start))?;
    Ok(cut(request, &selector, &start, &snapshot, revision))
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
            // The number counts objects at the revision of the token.
            preceding: token.preceding.filter(|_| token.revision.is_some()),
        });
    }
    let first = Start {
        preceding: Some(0),
        ..Start::default()
    };
    if query.resource_version.is_empty() {
        return Ok(first);
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
            ..first
        }
    } else {
        Start {
            at_least: requested,
            ..first
        }
    })
}

fn expired(request: &ObjectRequest, start: &Start) -> StatusError {
    let Some(key) = &start.key else {
        return StatusError::expired(EXPIRED);
    };
    let newest = ContinueToken {
        revision: None,
        start: key.clone(),
        preceding: None,
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

/// Returns the key after this one: none is between the two.
fn next_key(request: &ObjectRequest, key: &Key) -> String {
    let name = &key.name;
    if lists_all_namespaces(request) {
        format!("{}/{name}\0", key.namespace)
    } else {
        format!("{name}\0")
    }
}

/// The objects of a page.
struct Taken<'a> {
    objects: Vec<Arc<Value>>,
    /// Number of objects up to the last one of the page, also those that do not match.
    seen: usize,
    /// Key of the last object, if the page is full and others follow. As in kube-apiserver, these need not match: the next page may be
    /// empty.
    last: Option<&'a Key>,
}

/// Takes the objects that match until the page is full. Of the later objects only one is read.
fn take<'a>(
    listed: &mut impl Iterator<Item = (&'a Key, &'a Arc<Value>)>,
    selector: &Selector,
    limit: usize,
) -> Taken<'a> {
    let (mut objects, mut seen) = (Vec::new(), 0);
    while let Some((key, object)) = listed.next() {
        seen += 1;
        if selector.matches(object) {
            objects.push(object.clone());
            if objects.len() == limit {
                let last = listed.next().map(|_| key);
                return Taken { objects, seen, last };
            }
        }
    }
    Taken {
        objects,
        seen,
        last: None,
    }
}

/// Cuts the page out of the list.
fn cut(
    request: &ObjectRequest,
    selector: &Selector,
    start: &Start,
    snapshot: &ListSnapshot<'_>,
    revision: u64,
) -> Page {
    let first = start.key.as_deref().map(|key| first_key(request, key));
    let (namespace, name) = first.unwrap_or_default();
    let mut listed = snapshot.range_from(namespace, name);
    let taken = take(&mut listed, selector, limit(request, selector));
    let preceding = start
        .preceding
        .map(|preceding| preceding.saturating_add(taken.seen));
    let next = taken.last.map(|last| ContinueToken {
        revision: Some(revision),
        start: next_key(request, last),
        preceding,
    });
    let query = &request.query;
    let is_countable = query.label_selector.is_empty() && query.field_selector.is_empty();
    let remaining = || match preceding {
        Some(preceding) => snapshot.len().saturating_sub(preceding),
        // The page has read one object of the rest. Only a page after an expired token counts the others.
        None => listed.count() + 1,
    };
    Page {
        remaining: (next.is_some() && is_countable).then(remaining),
        continue_token: next.map_or_else(String::new, |token| token.encode(&list_id(request))),
        objects: taken.objects,
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
    use std::cell::Cell;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_reads_one_object_more_than_it_shows() {
        let object = |name: &str| {
            let object = json!({"metadata": {"name": name, "namespace": "default"}});
            (Key::new("configmaps", "default", name), Arc::new(object))
        };
        let objects = ["a", "b", "c", "d", "e"].map(object);
        let taken = |selector: &Selector, limit: usize| {
            let read = Cell::new(0);
            let mut listed = objects.iter().map(|(key, object)| {
                read.set(read.get() + 1);
                (key, object)
            });
            let taken = take(&mut listed, selector, limit);
            let last = taken.last.map(|key| key.name.clone());
            (taken.objects.len(), taken.seen, last, read.get())
        };
        let all = Selector::default();
        assert_eq!(taken(&all, 2), (2, 2, Some("b".to_owned()), 3));
        assert_eq!(taken(&all, 5), (5, 5, None, 5));
        assert_eq!(taken(&all, 0), (5, 5, None, 5), "unlimited");
        let one = Selector::default().with_name("c");
        assert_eq!(taken(&one, 1), (1, 3, Some("c".to_owned()), 4));
        assert_eq!(taken(&one, 2), (1, 5, None, 5));
    }

    fn start_of(query: &str) -> Result<Start, u16> {
        let query = Query::parse(query, "").map_err(|error| error.code())?;
        start(&query, "configmaps/a").map_err(|error| error.code())
    }

    #[test]
    fn a_version_is_exact_if_it_says_so_or_has_a_limit() {
        let exact = |revision| {
            Ok(Start {
                exact: Some(revision),
                preceding: Some(0),
                ..Start::default()
            })
        };
        let at_least = |at_least| {
            Ok(Start {
                at_least,
                preceding: Some(0),
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
            preceding: Some(3),
        };
        let text = token.encode("configmaps/a");
        let expected = Start {
            exact: Some(7),
            at_least: 0,
            key: Some("b\0".into()),
            preceding: Some(3),
        };
        assert_eq!(start_of(&format!("continue={text}")), Ok(expected));
        assert_eq!(start_of(&format!("continue={text}&resourceVersion=7")), Err(400));
        assert_eq!(start_of("continue=!"), Err(400));
        let newest = ContinueToken {
            revision: None,
            ..token
        };
        let found = start_of(&format!("continue={}", newest.encode("configmaps/a"))).unwrap();
        assert_eq!((found.exact, found.preceding), (None, None));
    }
}
