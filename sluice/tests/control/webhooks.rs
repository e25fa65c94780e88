//! Webhooks that decide whether a plan may proceed.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::environment::TestEnvironment;
use crate::observe::condition;

const STACK: &str = r#"
variable "secret" {
  default   = "hunter2"
  sensitive = true
}
resource "terraform_data" "it" { input = var.secret }
"#;

/// A service that passes or refuses plans and records its requests.
struct Service {
    url: String,
    passes: Arc<Mutex<bool>>,
    sent: Arc<Mutex<Vec<Value>>>,
}

impl Service {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (passes, sent) = (Arc::new(Mutex::new(true)), Arc::new(Mutex::new(Vec::new())));
        let (answers, recorded) = (Arc::clone(&passes), Arc::clone(&sent));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = Vec::new();
                let body = loop {
                    let mut some = [0; 4096];
                    let count = stream.read(&mut some).unwrap();
                    request.extend_from_slice(&some[..count]);
                    let text = String::from_utf8_lossy(&request).into_owned();
                    if let Some((_, body)) = text.split_once("\r\n\r\n")
                        && let Ok(body) = serde_json::from_str::<Value>(body)
                    {
                        break body;
                    }
                    assert!(count > 0, "{text}");
                };
                recorded.lock().unwrap().push(body);
                let answer = json!({ "passed": *answers.lock().unwrap(), "why": "open to all" }).to_string();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    answer.len()
                );
                let _ = stream
                    .write_all(head.as_bytes())
                    .and_then(|()| stream.write_all(answer.as_bytes()));
            }
        });
        Self { url, passes, sent }
    }

    fn hook(&self, payload: &str) -> Value {
        json!({ "stage": "post-planning", "url": self.url, "payloadType": payload,
            "testExpression": "${{ .passed }}", "errorMessageTemplate": "Violation: ${{ .why }}" })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_proceeds_if_every_enabled_service_passes_it() {
    let env = TestEnvironment::new().await;
    let (yes, no) = (Service::start(), Service::start());
    *no.passes.lock().unwrap() = false;
    env.commit("a", &[("main.tf", STACK)]).await;
    let mut disabled = no.hook("SpecAndPlan");
    disabled["enabled"] = json!(false);
    let hooks = json!([yes.hook("SpecAndPlan"), disabled, yes.hook("SpecOnly")]);
    env.stack("net", json!({ "webhooks": hooks })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert!(no.sent.lock().unwrap().is_empty());
    let sent = yes.sent.lock().unwrap().clone();
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0]["spec"]["approvePlan"], "auto");
    assert_eq!(
        sent[0]["status"]["tfplan"]["resource_changes"][0]["address"],
        "terraform_data.it"
    );
    assert!(
        sent[0].to_string().contains("hunter2"),
        "the plan's JSON has everything"
    );
    assert!(sent[1].get("status").is_none() && !sent[1].to_string().contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_a_service_refuses_is_neither_stored_nor_applied() {
    let env = TestEnvironment::new().await;
    let service = Service::start();
    *service.passes.lock().unwrap() = false;
    env.commit("a", &[("main.tf", STACK)]).await;
    env.stack("net", json!({ "webhooks": [service.hook("PlanOnly")] }))
        .await;
    let failed = env
        .wait_ready("net", "False PostPlanningWebhookFailed Violation: open to all")
        .await;
    assert_eq!(
        condition(&failed, "Plan"),
        "False PostPlanningWebhookFailed Violation: open to all"
    );
    let status = failed.status.unwrap();
    assert_eq!(status.plan.unwrap_or_default().pending, "");
    assert!(
        env.runs("net")
            .await
            .iter()
            .all(|run| !run.status.clone().unwrap_or_default().attempted_apply)
    );
    // It is requested again at retryInterval, and then passes the plan.
    *service.passes.lock().unwrap() = true;
    let done = env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(
        condition(&done, "Plan"),
        "True TerraformPlannedWithChanges Plan generated"
    );
}
