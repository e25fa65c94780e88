//! Lists as tables of the API (meta.k8s.io/v1 Table): the columns of the definition in place of the objects.

use http::header::ACCEPT;
use jiff::Timestamp;
use kube::Client;
use kube::api::ListParams;
use kube::core::{ListMeta, Request};
use serde::Deserialize;
use serde_json::Value;

/// The media type of a table. Each kube-apiserver and the embedded API serve it for each kind.
const MEDIA_TYPE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// What the rows have of their objects, beside the cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowObject {
    /// Nothing. The cells do not say in which namespace an object is.
    None,
    /// The metadata.
    Metadata,
}

impl RowObject {
    const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
        }
    }
}

/// A table.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiTable {
    #[serde(default)]
    metadata: ListMeta,
    column_definitions: Option<Vec<ColumnDefinition>>,
    rows: Option<Vec<Row>>,
}

#[derive(Clone, Debug, Deserialize)]
struct ColumnDefinition {
    name: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Row {
    cells: Vec<Value>,
    object: Option<RowMetadata>,
}

#[derive(Clone, Debug, Deserialize)]
struct RowMetadata {
    metadata: Metadata,
}

/// The metadata of a row that lists use. All other fields, the managed ones above all, are skipped.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Metadata {
    /// The namespace.
    pub(crate) namespace: String,
    /// When the object was created.
    pub(crate) creation_timestamp: Option<Timestamp>,
}

impl ApiTable {
    /// Returns the texts of these columns, and the metadata, for each row. A cell without a text, and one of a column that the definition
    /// on the server does not have, are empty.
    pub(crate) fn texts<const N: usize>(self, columns: [&str; N]) -> Vec<([String; N], Metadata)> {
        let definitions = self.column_definitions.unwrap_or_default();
        let index = |name: &str| definitions.iter().position(|column| column.name == name);
        let indexes = columns.map(index);
        let rows = self.rows.unwrap_or_default().into_iter();
        rows.map(|mut row| {
            let texts = indexes.map(|index| take_text(&mut row.cells, index));
            let metadata = row.object.map(|object| object.metadata);
            (texts, metadata.unwrap_or_default())
        })
        .collect()
    }
}

/// Takes the text out of a cell.
fn take_text(cells: &mut [Value], index: Option<usize>) -> String {
    match index.and_then(|index| cells.get_mut(index)).map(Value::take) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    }
}

/// Reads all pages of a list as a table. `url` is that of the resource.
///
/// # Errors
/// The API rejects the request.
pub(crate) async fn read(
    client: &Client,
    url: &str,
    params: &ListParams,
    object: RowObject,
) -> Result<ApiTable, kube::Error> {
    let mut table = read_page(client, url, params, object).await?;
    while let Some(next) = table.metadata.continue_.take().filter(|token| !token.is_empty()) {
        let params = params.clone().continue_token(&next);
        let page = read_page(client, url, &params, object).await?;
        table.metadata = page.metadata;
        let rows = table.rows.get_or_insert_default();
        rows.extend(page.rows.unwrap_or_default());
    }
    Ok(table)
}

async fn read_page(
    client: &Client,
    url: &str,
    params: &ListParams,
    object: RowObject,
) -> Result<ApiTable, kube::Error> {
    let list = Request::new(url)
        .list(params)
        .map_err(kube::Error::BuildRequest)?;
    let uri = format!("{}&includeObject={}", list.uri(), object.as_str());
    let request = http::Request::get(uri)
        .header(ACCEPT, MEDIA_TYPE)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_are_found_by_the_name_of_their_column() {
        let table: ApiTable = serde_json::from_value(json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "7"},
            "columnDefinitions": [{"name": "Name", "type": "string"}, {"name": "Phase", "type": "string"}],
            "rows": [
                {"cells": ["a-1", "Failed"], "object": {"kind": "PartialObjectMetadata",
                    "metadata": {"name": "a-1", "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{}]}}},
                {"cells": ["a-2", null], "object": null},
            ],
        }))
        .unwrap();
        let rows = table.texts(["Phase", "Name", "Absent"]);
        let texts: Vec<_> = rows.iter().map(|(texts, _)| texts.join("|")).collect();
        assert_eq!(texts, ["Failed|a-1|", "|a-2|"]);
        let (first, second) = (&rows[0].1, &rows[1].1);
        assert_eq!(
            (first.namespace.as_str(), second.namespace.as_str()),
            ("team", "")
        );
        assert_eq!(
            (first.creation_timestamp, second.creation_timestamp),
            ("2026-01-01T00:00:00Z".parse().ok(), None)
        );
    }

    #[test]
    fn a_table_may_have_no_rows() {
        let table: ApiTable =
            serde_json::from_value(json!({"columnDefinitions": null, "rows": null})).unwrap();
        assert!(table.texts(["Name"]).is_empty());
    }
}
