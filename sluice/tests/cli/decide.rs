//! Commands that decide: the plan is shown, the user is asked, and only that plan is approved.

use crate::fixture::{PLAN, World, ready};
use crate::terminal;

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_shown_before_it_is_approved() {
    let world = World::with_stacks().await;
    let refused = terminal::run(&world, 160, &["approve", "app"], "[y/N] ", "n\n");
    assert_eq!(refused.code, 1, "{}", refused.text);
    assert!(refused.text.contains("Nothing was approved."), "{}", refused.text);
    assert_eq!(
        world.stack("app").await["spec"]["approvePlan"],
        serde_json::Value::Null
    );
    let approved = terminal::run(&world, 160, &["approve", "app"], "[y/N] ", "y\n");
    assert_eq!(approved.code, 0, "{}", approved.text);
    let (destroyed, created) = (
        approved.text.find("- terraform_data.old"),
        approved.text.find("+ terraform_data.new"),
    );
    assert!(
        destroyed.is_some() && destroyed < created,
        "what is destroyed comes first: {}",
        approved.text
    );
    assert_eq!(world.stack("app").await["spec"]["approvePlan"], PLAN);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_an_approval_needs_a_flag() {
    let world = World::with_stacks().await;
    let asked = world.sluice(&["approve", "app"]).await;
    assert_eq!(asked.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&asked.stderr).contains("Add --yes"),
        "{asked:?}"
    );
    let approved = world.sluice(&["approve", "app", "--yes", "--id", PLAN]).await;
    assert_eq!(
        (approved.status.code(), approved.stdout.as_slice()),
        (Some(0), b"".as_slice())
    );
    assert_eq!(world.stack("app").await["spec"]["approvePlan"], PLAN);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_plan_or_none_is_not_approved() {
    let world = World::with_stacks().await;
    world
        .create_stack("off", &serde_json::json!({"approvePlan": "disable"}), &waiting())
        .await;
    for (arguments, cause) in [
        (
            ["approve", "app", "--yes", "--id=plan-x"].as_slice(),
            "the plan that waits is plan-main",
        ),
        (
            ["approve", "net", "--yes"].as_slice(),
            "no plan waits for an approval",
        ),
        (
            ["approve", "off", "--yes"].as_slice(),
            "its plans are never applied",
        ),
    ] {
        let output = world.sluice(arguments).await;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(cause),
            "{output:?}"
        );
    }
    assert_eq!(world.stack("off").await["spec"]["approvePlan"], "disable");
}

fn waiting() -> serde_json::Value {
    let mut status = ready("Unknown", "TerraformPlannedWithChanges", "Plan generated");
    status["plan"] = serde_json::json!({"pending": PLAN});
    status
}
