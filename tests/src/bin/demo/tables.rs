//! `kubectl get` with the kubeconfig of the program; without kubectl, the same tables requested from the server.

use std::path::Path;

use kube::Client;
use serde_json::Value;
use sluice::view::Lines;
use sluice_tests::BoxError;

const RESOURCES: [(&str, &str); 3] = [
    (
        "gitrepositories",
        "/apis/source.toolkit.fluxcd.io/v1/namespaces/default/gitrepositories",
    ),
    (
        "terraforms",
        "/apis/infra.contrib.fluxcd.io/v1alpha2/namespaces/default/terraforms",
    ),
    (
        "terraformruns",
        "/apis/infra.sluice.dev/v1alpha1/namespaces/default/terraformruns",
    ),
];

/// Prints the three kinds.
pub(super) async fn show(lines: &Lines, client: &Client, kubeconfig: &Path) -> Result<(), BoxError> {
    let names = RESOURCES.map(|(name, _)| name).join(",");
    let output = tokio::process::Command::new("kubectl")
        .args(["get", &names])
        .env("KUBECONFIG", kubeconfig)
        .output()
        .await;
    match output {
        Ok(output) => {
            lines.print(&format!(
                "         $ KUBECONFIG={} kubectl get {names}",
                kubeconfig.display()
            ));
            let text = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            for line in text.lines() {
                lines.print(&format!("         {line}"));
            }
            if output.status.success() {
                Ok(())
            } else {
                Err("kubectl get failed".into())
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            lines.print("         (kubectl is not installed; the server's tables for it are:)");
            for (name, path) in RESOURCES {
                lines.print(&format!("         {name}"));
                for row in rows(&table(client, path).await?) {
                    lines.print(&format!("         {row}"));
                }
            }
            Ok(())
        }
        Err(error) => Err(format!("cannot run kubectl: {error}").into()),
    }
}

async fn table(client: &Client, path: &str) -> Result<Value, BoxError> {
    let request = http::Request::get(path)
        .header(
            http::header::ACCEPT,
            "application/json;as=Table;v=v1;g=meta.k8s.io",
        )
        .body(Vec::new())?;
    Ok(client.request(request).await?)
}

/// Formats a table in columns; omits columns that kubectl shows only with `-o wide`.
fn rows(table: &Value) -> Vec<String> {
    let empty = Vec::new();
    let columns = table["columnDefinitions"].as_array().unwrap_or(&empty);
    let visible: Vec<usize> = (0..columns.len())
        .filter(|i| columns[*i]["priority"].as_i64().unwrap_or(0) == 0)
        .collect();
    let head = visible
        .iter()
        .map(|i| columns[*i]["name"].as_str().unwrap_or_default().to_uppercase())
        .collect();
    let mut cells: Vec<Vec<String>> = vec![head];
    for row in table["rows"].as_array().unwrap_or(&empty) {
        let cell = |i: &usize| match &row["cells"][*i] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        cells.push(visible.iter().map(cell).collect());
    }
    let width = |i: usize| cells.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..visible.len()).map(width).collect();
    let pad = |(cell, width): (&String, &usize)| format!("{cell:width$}   ", width = *width);
    cells
        .iter()
        .map(|row| {
            row.iter()
                .zip(&widths)
                .map(pad)
                .collect::<String>()
                .trim_end()
                .to_owned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_aligned_and_wide_ones_are_omitted() {
        let table = json!({
            "columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "Long", "priority": 1}, {"name": "Ready", "priority": 0}],
            "rows": [{"cells": ["a", "x", "True"]}, {"cells": ["bcdef", "y", null]}],
        });
        assert_eq!(rows(&table), ["NAME    READY", "a       True", "bcdef"]);
    }
}
