//! The program where the definitions are those of tofu-controller: it does nothing, and says what to do.

use super::{Controller, installed, page::shell, program};
use crate::{within_deadline, without_cluster};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// What `/readyz` answers, status line and all; nothing while nobody listens.
async fn asked(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let question = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(question.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

/// Waits until `/readyz` answers so.
async fn answers(controller: &Controller, port: u16, pass: impl Fn(&str) -> bool) -> String {
    let mut last = None;
    for _ in 0..600 {
        last = asked(port).await;
        if let Some(answer) = last.as_ref().filter(|answer| pass(answer)) {
            return answer.clone();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{last:?}\n{}", controller.tail());
}

/// The commands that a text tells to type.
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
fn the_program_is_not_ready_until_the_definitions_that_it_names_are_applied() {
    if without_cluster() {
        return;
    }
    within_deadline(async {
        let (plane, folder) = installed().await;
        std::os::unix::fs::symlink(crate::world::config(""), folder.path().join("config")).unwrap();
        let install = "kubectl apply -k config/overlays/with-flux";
        shell(folder.path(), install).await;
        let (mut controller, port) = program(&plane, folder.path()).await;
        controller.start().unwrap();
        let said = answers(&controller, port, |answer| answer.contains("not ready: ")).await;
        assert!(said.starts_with("HTTP/1.1 503 "), "{said}");
        let older = "the definition terraforms.infra.contrib.fluxcd.io does not declare spec.autoApply, spec.deletionPolicy, \
                     spec.ignoreDrift, spec.runDeadline, spec.tool, status.drift, status.owedReconcileAt, which would be dropped";
        let absent = "the definition terraformruns.infra.sluice.dev is not installed";
        assert!(said.contains(older) && said.contains(absent), "{said}");
        let told = commands(&said);
        assert_eq!(told.len(), 2, "{said}");
        let log = controller.log();
        assert!(told.iter().all(|command| log.contains(command)), "{log}");

        // One after the other; what is still missing goes on being named.
        shell(folder.path(), &told[0]).await;
        let said = answers(&controller, port, |answer| !answer.contains(older)).await;
        assert!(
            said.starts_with("HTTP/1.1 503 ") && said.contains(absent),
            "{said}"
        );
        let lease = "kubectl -n flux-system get lease 1953de50.contrib.fluxcd.io -o jsonpath={.spec.leaseTransitions}";
        assert_eq!(
            shell(folder.path(), lease).await,
            "3",
            "it does not even stand for the lead"
        );
        shell(folder.path(), &told[1]).await;
        answers(&controller, port, |answer| answer.starts_with("HTTP/1.1 200 ")).await;
        controller.end().await.unwrap();
    });
}
