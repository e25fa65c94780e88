//! Paged lists, so that no single call transfers a long list and no caller holds all of it in memory.

use std::fmt::Debug;

use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;

/// Objects per page, as in `kubectl` and in watches.
const PAGE: u32 = 500;

/// Calls `visit` with each object of a consistent list. A server without paging returns one page.
///
/// Discard the objects after an error: a retry starts with the first page.
///
/// # Errors
/// The API rejects the request or cannot be reached, or the list token expired.
pub async fn for_each<K>(api: &Api<K>, mut visit: impl FnMut(K)) -> Result<(), kube::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        page.items.into_iter().for_each(&mut visit);
        let Some(next) = page.metadata.continue_.filter(|token| !token.is_empty()) else {
            return Ok(());
        };
        params = params.continue_token(&next);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{Request, Response, StatusCode};
    use http_body_util::Full;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use kube::{Client, ResourceExt as _};
    use serde_json::{Value, json};
    use tower::BoxError;

    use super::*;

    fn page(names: &[&str], next: Option<&str>) -> (u16, Value) {
        let items: Vec<_> = names
            .iter()
            .map(|name| json!({"metadata": {"name": name}}))
            .collect();
        let metadata = json!({"resourceVersion": "7", "continue": next});
        let list = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items});
        (200, list)
    }

    fn refusal(code: u16, reason: &str) -> (u16, Value) {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no", "reason": reason});
        (code, status)
    }

    /// An API with this answer to the `limit` and the `continue` of a list.
    fn api(answer: fn(&str, &str) -> (u16, Value)) -> Api<ConfigMap> {
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let asked = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name));
            let (limit, token) = (asked("limit="), asked("continue="));
            let (code, content) = answer(limit.unwrap_or_default(), token.unwrap_or_default());
            let mut response = Response::new(Full::new(Bytes::from(content.to_string())));
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            async move { Ok::<_, BoxError>(response) }
        });
        Api::namespaced(Client::new(service, "ns"), "ns")
    }

    async fn names(api: &Api<ConfigMap>) -> Result<Vec<String>, kube::Error> {
        let mut names = Vec::new();
        for_each(api, |object| names.push(object.name_any())).await?;
        Ok(names)
    }

    #[tokio::test]
    async fn all_pages_are_read_with_a_limit() {
        let api = api(|limit, token| match (limit, token) {
            ("500", "") => page(&["a", "b"], Some("two")),
            ("500", "two") => page(&[], Some("three")),
            ("500", "three") => page(&["c"], Some("")),
            _ => refusal(400, "BadRequest"),
        });
        assert_eq!(names(&api).await.unwrap(), ["a", "b", "c"]);
    }

    #[tokio::test]
    async fn a_server_without_paging_gets_one_request() {
        let api = api(|_, token| match token {
            "" => page(&["a", "b", "c"], None),
            _ => refusal(400, "BadRequest"),
        });
        assert_eq!(names(&api).await.unwrap(), ["a", "b", "c"]);
    }

    #[tokio::test]
    async fn an_incomplete_list_is_an_error() {
        let api = api(|_, token| match token {
            "" => page(&["a"], Some("two")),
            _ => refusal(410, "Expired"),
        });
        let broken = names(&api).await.unwrap_err();
        assert!(
            matches!(&broken, kube::Error::Api(status) if status.code == 410),
            "{broken}"
        );
    }
}
