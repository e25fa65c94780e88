//! tf-controller with the definitions of tofu-controller: it reconciles nothing and reports what to apply.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::page::shell;
use super::{Controller, install_tofu_controller, tf_controller};
use crate::{with_timeout, without_cluster};

/// Returns the response of `/readyz` with its status line; `None` if the port is closed.
async fn readyz(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await.ok()?;
    Some(response)
}

/// Waits until the response of `/readyz` meets a condition.
async fn wait_for_readyz(controller: &Controller, port: u16, pass: impl Fn(&str) -> bool) -> String {
    let mut last = None;
    for _ in 0..600 {
        last = readyz(port).await;
        if let Some(response) = last.as_ref().filter(|response| pass(response)) {
            return response.clone();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{last:?}\n{}", controller.tail());
}

/// Returns the commands in a message.
fn commands(text: &str) -> Vec<String> {
    let parts = text.split("kubectl apply ").skip(1);
    parts
        .map(|part| {
            format!(
                "kubectl apply {}.yaml",
                part.split(".yaml").next().unwrap_or_default()
            )
        })
        .collect()
}

#[test]
fn the_program_is_not_ready_until_the_definitions_in_its_message_are_applied() {
    if without_cluster() {
        return;
    }
    with_timeout(async {
        let (plane, folder) = install_tofu_controller().await;
        std::os::unix::fs::symlink(crate::environment::config(""), folder.path().join("config")).unwrap();
        let install = "kubectl apply -k config/overlays/with-flux";
        shell(folder.path(), install).await;
        let (mut controller, port) = tf_controller(&plane, folder.path()).await;
        controller.start().unwrap();
        let output = wait_for_readyz(&controller, port, |response| response.contains("not ready: ")).await;
        assert!(output.starts_with("HTTP/1.1 503 "), "{output}");
        let older = "the definition terraforms.infra.contrib.fluxcd.io does not declare spec.approval, spec.autoApply, spec.deletionPolicy, \
                     spec.ignoreDrift, spec.runDeadline, spec.tool, status.drift, status.pendingReconcileRequest, which would be dropped";
        let absent = "the definition terraformruns.infra.sluice.dev is not installed";
        assert!(output.contains(older) && output.contains(absent), "{output}");
        let named_commands = commands(&output);
        assert_eq!(named_commands.len(), 3, "{output}");
        let log = controller.log();
        assert!(
            named_commands.iter().all(|command| log.contains(command)),
            "{log}"
        );

        // One after the other; the message keeps naming the missing one.
        shell(folder.path(), &named_commands[0]).await;
        let output = wait_for_readyz(&controller, port, |response| !response.contains(older)).await;
        assert!(
            output.starts_with("HTTP/1.1 503 ") && output.contains(absent),
            "{output}"
        );
        let lease = "kubectl -n flux-system get lease 1953de50.contrib.fluxcd.io -o jsonpath={.spec.leaseTransitions}";
        assert_eq!(
            shell(folder.path(), lease).await,
            "3",
            "it does not take part in leader election"
        );
        for command in &named_commands[1..] {
            shell(folder.path(), command).await;
        }
        wait_for_readyz(&controller, port, |response| {
            response.starts_with("HTTP/1.1 200 ")
        })
        .await;
        controller.end().await.unwrap();
    });
}
