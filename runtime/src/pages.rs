//! Long lists, page by page: no call must bring all of it in the time of one, and nobody must hold all of it at once.

use std::fmt::Debug;

use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;

/// Objects of a page: as many as `kubectl` and the watches ask for.
const PAGE: u32 = 500;

/// Calls `take` with each object that the API lists, all of them as they were at one moment. A server that knows no pages
/// answers with one.
///
/// What was taken before an error is worth nothing: another try begins with the first page.
///
/// # Errors
/// The API refuses or cannot be reached, or the pages took so long that the server has forgotten that moment.
pub async fn each<K>(api: &Api<K>, mut take: impl FnMut(K)) -> Result<(), kube::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        page.items.into_iter().for_each(&mut take);
        let Some(next) = page.metadata.continue_.filter(|token| !token.is_empty()) else {
            return Ok(());
        };
        params = params.continue_token(&next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{Request, Response, StatusCode};
    use http_body_util::Full;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use kube::{Client, ResourceExt as _};
    use serde_json::{Value, json};
    use tower::BoxError;

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
        each(api, |object| names.push(object.name_any())).await?;
        Ok(names)
    }

    #[tokio::test]
    async fn all_pages_are_taken_and_none_without_a_limit_is_asked_for() {
        let api = api(|limit, token| match (limit, token) {
            ("500", "") => page(&["a", "b"], Some("two")),
            ("500", "two") => page(&[], Some("three")),
            ("500", "three") => page(&["c"], Some("")),
            _ => refusal(400, "BadRequest"),
        });
        assert_eq!(names(&api).await.unwrap(), ["a", "b", "c"]);
    }

    #[tokio::test]
    async fn a_server_that_knows_no_pages_is_asked_once() {
        let api = api(|_, token| match token {
            "" => page(&["a", "b", "c"], None),
            _ => refusal(400, "BadRequest"),
        });
        assert_eq!(names(&api).await.unwrap(), ["a", "b", "c"]);
    }

    #[tokio::test]
    async fn a_list_that_breaks_off_is_none() {
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
