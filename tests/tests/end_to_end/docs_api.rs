//! Runs the commands of the pages about the API of `sluice up` and its store in Git verbatim.

use sluice_tests::page::{SAMPLE_ADDRESS, command_blocks};

use super::docs::{DocsShell, GIT_STORE, WRITE_A_CONTROLLER, blocks, commands, start, stop};
use super::with_timeout;

/// Who commits in the shell of the pages.
const AUTHOR: &str = "[user]\n\tname = Ada\n\temail = ada@example.com\n";

#[test]
fn the_commands_about_the_git_store_run_verbatim() {
    with_timeout(async {
        let docs_shell = DocsShell::create("#!/bin/sh\n", SAMPLE_ADDRESS);
        std::fs::write(docs_shell.folder.path().join(".gitconfig"), AUTHOR).unwrap();
        let blocks = blocks(GIT_STORE, "Try it");
        let [first, write, push] = &blocks[..] else {
            panic!("{blocks:?}")
        };
        let (program, _) = start(&docs_shell, first).await;
        let output = docs_shell.run(write).await;
        assert!(
            output.contains("create configmaps default/greeting") && output.contains("text: Hello"),
            "message and file: {output}"
        );
        docs_shell.run(push).await;
        docs_shell.run(&commands(GIT_STORE, "Recovery")).await;
        let output = docs_shell
            .run("git --git-dir=objects.git log --format=%s main")
            .await;
        let subjects = "Revert \"Be polite\"\nBe polite\ncreate configmaps default/greeting\n";
        assert_eq!(output, subjects, "nothing else is in the repository");
        stop(&docs_shell, program).await;
    });
}

#[test]
fn the_commands_about_controllers_run_verbatim() {
    with_timeout(async {
        let docs_shell = DocsShell::create("#!/bin/sh\n", SAMPLE_ADDRESS);
        let blocks = command_blocks(WRITE_A_CONTROLLER);
        let [first, connect, define, reconcile, delete] = &blocks[..] else {
            panic!("{blocks:?}")
        };
        let (program, _) = start(&docs_shell, first).await;
        let output = docs_shell.run(connect).await;
        assert!(output.contains("customresourcedefinitions"), "{output}");
        let output = docs_shell.run(define).await;
        assert!(output.contains("Who is greeted."), "{output}");
        let output = docs_shell.run(reconcile).await;
        assert!(output.contains("world") && output.contains("Ready"), "{output}");
        let output = docs_shell.run(delete).await;
        assert!(output.contains("greeting.example.dev/world patched"), "{output}");
        stop(&docs_shell, program).await;
    });
}
