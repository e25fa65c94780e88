//! `make demo`: the story, shown as it happens, against `sluice up` on this machine.

mod tables;

use clap::Parser;
use sluice::view::Screen;
use sluice_harness::git::{GitServer, Repository};
use sluice_tests::{
    Failed,
    program::{Program, Setup},
    story::{Commit, NAME, Story, manifests},
};
use std::{path::Path, process::ExitCode, sync::Arc, time::Instant};
use tokio_util::sync::CancellationToken;

/// One Git push becomes an applied stack, shown step by step.
#[derive(Parser)]
struct Args {
    /// Leave everything up at the end, until Ctrl-C.
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let screen = Arc::new(Screen::new());
    match demo(&args, &screen).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            screen.say(&format!("\nThe demo failed: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn demo(args: &Args, screen: &Arc<Screen>) -> Result<(), Failed> {
    let began = Instant::now();
    let heading = |text: &str| screen.say(&format!("\n== {text}"));
    heading("A Terraform CLI");
    let tool = sluice_harness::cli::terraform()?;
    screen.say(&format!("         {}", tool.display()));

    heading("A Git repository, served over smart HTTP by the real git");
    let repository = Repository::create()?;
    Commit::First.make(&repository)?;
    let server = GitServer::start().await?;
    let url = server.serve("shop", &repository);
    screen.say(&format!("         {url}"));

    heading("sluice up: API, source controller and tf-controller in one program, no cluster");
    let folder = tempfile::tempdir()?;
    let setup = Setup::new(folder.path());
    let [source, stack] = manifests(&url);
    setup.write(&[("source.yaml", source), ("stack.yaml", stack)])?;
    let program = Program::start(setup).await?;
    screen.say(&format!("         {}", program.command()));
    let stop = CancellationToken::new();
    let view = tokio::spawn(sluice::view::follow(
        program.client(),
        Arc::clone(screen),
        stop.clone(),
    ));

    let told = tell(screen, &repository, &program).await;
    if let Err(error) = told {
        let log = program.log_tail();
        return Err(format!("{error}\n\nThe end of sluice's log:\n{log}").into());
    }
    if args.keep {
        keep(screen, &program).await?;
    } else {
        heading("Delete: the stack is destroyed, then its objects go");
        let story = Story::new(program.client());
        story.delete_stack().await?;
        story.delete_source().await?;
        screen.say("         gone: terraform and gitrepository");
    }
    stop.cancel();
    view.await?;
    program.end().await?;
    heading(&format!(
        "Done in {:.1} s. Nothing is left running.",
        began.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// The story itself, up to the tables.
async fn tell(screen: &Screen, repository: &Repository, program: &Program) -> Result<(), Failed> {
    let heading = |text: &str| screen.say(&format!("\n== {text}"));
    let story = Story::new(program.client());

    heading("The first commit becomes an artifact, the artifact a plan");
    let first = format!("main@sha1:{}", repository.head()?);
    let plan = story.pending_plan(None).await?;
    approve(screen, &story, &plan).await?;
    story.applied(&first).await?;
    show_outputs(screen, &story).await?;

    heading("A second commit changes the stack");
    let second = story.push(repository, Commit::NewVersion).await?;
    let plan = story.pending_plan(Some(&plan)).await?;
    approve(screen, &story, &plan).await?;
    story.applied(&second).await?;
    show_outputs(screen, &story).await?;

    heading("A third commit changes nothing that the stack reads: no run");
    let before = story.runs().await?.len();
    let third = story.push(repository, Commit::Docs).await?;
    story.attempted(&third).await?;
    let after = story.runs().await?.len();
    screen.say(&format!(
        "         {before} runs before the commit, {after} after it"
    ));
    if before != after {
        return Err("a commit that the stack does not read started a run".into());
    }
    heading("What kubectl shows");
    tables::show(screen, &program.client(), &program.kubeconfig()).await
}

async fn approve(screen: &Screen, story: &Story, plan: &str) -> Result<(), Failed> {
    screen.say(&format!("\n         $ kubectl patch terraform {NAME} --type merge -p '{{\"spec\":{{\"approvePlan\":\"{plan}\"}}}}'"));
    Ok(story.approve(plan).await?)
}

async fn show_outputs(screen: &Screen, story: &Story) -> Result<(), Failed> {
    for (key, value) in story.outputs().await? {
        if !key.ends_with("__type") {
            screen.say(&format!("         output {key} = {value}"));
        }
    }
    Ok(())
}

async fn keep(screen: &Screen, program: &Program) -> Result<(), Failed> {
    let config = program.kubeconfig();
    screen.say("\n== It stays up until Ctrl-C. Try:");
    for command in hints(&config) {
        screen.say(&format!("         {command}"));
    }
    tokio::signal::ctrl_c().await?;
    Ok(())
}

fn hints(kubeconfig: &Path) -> [String; 4] {
    [
        format!("export KUBECONFIG={}", kubeconfig.display()),
        format!("kubectl get terraform {NAME} -o yaml"),
        "kubectl get terraformruns".to_owned(),
        format!(
            "kubectl annotate --overwrite terraform {NAME} reconcile.fluxcd.io/requestedAt=\"$(date +%s)\""
        ),
    ]
}
