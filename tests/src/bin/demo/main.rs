//! `make demo`: shows the scenario as it happens, with `sluice up` on this machine.

mod tables;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use sluice::view::Lines;
use sluice_harness::git::{GitServer, Repository};
use sluice_tests::program::{Program, Setup};
use sluice_tests::scenario::{Commit, NAME, Scenario, manifests};
use sluice_tests::{BoxError, binary};
use tokio_util::sync::CancellationToken;

/// One Git push becomes an applied stack, shown step by step.
#[derive(Parser)]
struct Args {
    /// Keep everything running at the end, until Ctrl-C.
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let lines = Arc::new(Lines::new());
    match demo(&args, &lines).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            lines.print(&format!("\nThe demo failed: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn demo(args: &Args, lines: &Arc<Lines>) -> Result<(), BoxError> {
    let began = Instant::now();
    let heading = |text: &str| lines.print(&format!("\n== {text}"));
    heading("A Terraform CLI");
    let tool = sluice_harness::cli::terraform()?;
    lines.print(&format!("         {}", tool.display()));

    heading("A Git repository, served over smart HTTP by the real git");
    let repository = Repository::create()?;
    Commit::First.create(&repository)?;
    let server = GitServer::start().await?;
    let url = server.serve("shop", &repository);
    lines.print(&format!("         {url}"));

    heading("sluice up: API, source controller and tf-controller in one program, no cluster");
    let folder = tempfile::tempdir()?;
    let setup = Setup::new(folder.path());
    let [source, stack] = manifests(&url);
    setup.write(&[("source.yaml", source), ("stack.yaml", stack)])?;
    let program = Program::start(setup).await?;
    lines.print(&format!("         {}", program.command()));
    let stop = CancellationToken::new();
    let view = tokio::spawn(sluice::view::follow(
        program.client(),
        Arc::clone(lines),
        stop.clone(),
    ));

    let result = run_scenario(lines, &repository, &program).await;
    if let Err(error) = result {
        let log = program.log_tail();
        return Err(format!("{error}\n\nThe end of sluice's log:\n{log}").into());
    }
    if args.keep {
        wait_for_ctrl_c(lines, &program).await?;
    } else {
        heading("Deletion: the stack is destroyed, then its objects are removed");
        let scenario = Scenario::new(program.client());
        scenario.delete_stack().await?;
        scenario.delete_source().await?;
        lines.print("         deleted: terraform and gitrepository");
    }
    stop.cancel();
    view.await?;
    program.end().await?;
    heading(&format!(
        "Done in {:.1} s. No process is left running.",
        began.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// Runs the scenario up to the tables.
async fn run_scenario(lines: &Lines, repository: &Repository, program: &Program) -> Result<(), BoxError> {
    let heading = |text: &str| lines.print(&format!("\n== {text}"));
    let scenario = Scenario::new(program.client());

    heading("The first commit becomes an artifact, the artifact a plan");
    let first = format!("main@sha1:{}", repository.head()?);
    let plan = scenario.wait_for_plan(None).await?;
    approve(lines, program, &plan).await?;
    scenario.wait_until_applied(&first).await?;
    show_outputs(lines, &scenario).await?;

    heading("A second commit changes the stack");
    let second = scenario.push(repository, Commit::NewVersion).await?;
    let plan = scenario.wait_for_plan(Some(&plan)).await?;
    approve(lines, program, &plan).await?;
    scenario.wait_until_applied(&second).await?;
    show_outputs(lines, &scenario).await?;

    heading("A third commit does not touch the stack's inputs: no run");
    let before = scenario.runs().await?.len();
    let third = scenario.push(repository, Commit::Docs).await?;
    scenario.wait_until_attempted(&third).await?;
    let after = scenario.runs().await?.len();
    lines.print(&format!(
        "         {before} runs before the commit, {after} after it"
    ));
    if before != after {
        return Err("a commit that does not touch the stack's inputs started a run".into());
    }
    heading("What kubectl shows");
    tables::show(lines, &program.client(), &program.kubeconfig()).await
}

async fn approve(lines: &Lines, program: &Program, plan: &str) -> Result<(), BoxError> {
    let arguments = ["approve", NAME, "--id", plan, "--yes"];
    lines.print(&format!("\n         $ sluice {}", arguments.join(" ")));
    let output = tokio::process::Command::new(binary("sluice")?)
        .args(arguments)
        .env("KUBECONFIG", program.kubeconfig())
        .output()
        .await?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into())
}

async fn show_outputs(lines: &Lines, scenario: &Scenario) -> Result<(), BoxError> {
    for (key, value) in scenario.outputs().await? {
        if !key.ends_with("__type") {
            lines.print(&format!("         output {key} = {value}"));
        }
    }
    Ok(())
}

async fn wait_for_ctrl_c(lines: &Lines, program: &Program) -> Result<(), BoxError> {
    lines.print("\n== Everything keeps running until Ctrl-C. Try:");
    for command in hints(&program.kubeconfig(), &binary("sluice")?) {
        lines.print(&format!("         {command}"));
    }
    tokio::signal::ctrl_c().await?;
    Ok(())
}

fn hints(kubeconfig: &Path, sluice: &Path) -> [String; 5] {
    let sluice = sluice.display();
    [
        format!("export KUBECONFIG={}", kubeconfig.display()),
        format!("{sluice} status"),
        format!("{sluice} tree"),
        format!("{sluice} history {NAME}"),
        format!("{sluice} reconcile {NAME} --with-source --wait"),
    ]
}
