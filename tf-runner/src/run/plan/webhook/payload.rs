//! The payload of a webhook.

use std::path::Path;

use bytes::Bytes;
use serde_json::Value;

use crate::run::lifecycle::error::{RunError, WebhookError};
use crate::run::workdir::directory_error;

/// Largest plan JSON that is sent.
const LIMIT: u64 = 64 * 1024 * 1024;

/// Builds the payload of this type. The plan's JSON is copied as the CLI printed it, so that no number is rounded.
pub(super) async fn build(
    host: &str,
    payload: &str,
    object: &Value,
    plan: Option<&Path>,
) -> Result<Bytes, RunError> {
    let mut object = object.clone();
    if let Some(members) = object.as_object_mut() {
        members.remove("status");
        if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    }
    match payload {
        "SpecOnly" => Ok(object.to_string().into()),
        "PlanOnly" => Ok(read_plan(host, plan).await?.into()),
        "SpecAndPlan" => {
            let head = object.to_string();
            let head = head.strip_suffix('}').unwrap_or_default();
            let mut whole = format!("{head},\"status\":{{\"tfplan\":").into_bytes();
            whole.extend_from_slice(&read_plan(host, plan).await?);
            whole.extend_from_slice(b"}}");
            Ok(whole.into())
        }
        other => Err(WebhookError::Payload {
            host: host.to_owned(),
            payload: other.chars().take(64).collect(),
        }
        .into()),
    }
}

async fn read_plan(host: &str, plan: Option<&Path>) -> Result<Vec<u8>, RunError> {
    let Some(plan) = plan else {
        return Err(WebhookError::NoPlanJson {
            host: host.to_owned(),
        }
        .into());
    };
    let error = |source| directory_error("read the plan's JSON", source);
    let size = tokio::fs::metadata(plan).await.map_err(error)?.len();
    if size > LIMIT {
        let host = host.to_owned();
        return Err(WebhookError::PlanTooLarge {
            host,
            size,
            limit: LIMIT,
        }
        .into());
    }
    let bytes = tokio::fs::read(plan).await.map_err(error)?;
    Ok(bytes.trim_ascii_end().to_vec())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn payload_json(payload: &str) -> Result<Value, String> {
        let dir = tempfile::tempdir().unwrap();
        let plan = dir.path().join("plan.json");
        std::fs::write(&plan, "{\"resource_changes\":[],\"n\":1.50}\n").unwrap();
        let object = json!({ "apiVersion": "v", "kind": "Terraform", "spec": { "approvePlan": "" },
            "metadata": { "name": "net", "managedFields": [] }, "status": { "conditions": [] } });
        let body = build("h", payload, &object, Some(&plan))
            .await
            .map_err(|error| error.to_string())?;
        assert!(payload == "SpecOnly" || String::from_utf8_lossy(&body).contains("1.50"));
        Ok(serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn the_payload_has_spec_and_plan() {
        let payload = payload_json("SpecAndPlan").await.unwrap();
        assert_eq!(
            payload["status"],
            json!({ "tfplan": { "resource_changes": [], "n": 1.5 } })
        );
        assert_eq!(payload["spec"], json!({ "approvePlan": "" }));
        assert_eq!(
            (&payload["kind"], &payload["metadata"]),
            (&json!("Terraform"), &json!({ "name": "net" }))
        );
    }

    #[tokio::test]
    async fn the_payload_has_the_spec_only() {
        let payload = payload_json("SpecOnly").await.unwrap();
        assert_eq!((payload["spec"].is_object(), payload.get("status")), (true, None));
    }

    #[tokio::test]
    async fn the_payload_has_the_plan_only() {
        assert_eq!(
            payload_json("PlanOnly").await.unwrap(),
            json!({ "resource_changes": [], "n": 1.5 })
        );
    }

    #[tokio::test]
    async fn another_payload_is_refused_by_name() {
        let error = payload_json("Everything").await.unwrap_err();
        assert_eq!(
            error,
            "webhook h: payloadType \"Everything\" is not SpecAndPlan, SpecOnly or PlanOnly"
        );
    }
}
