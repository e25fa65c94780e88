//! Golden traces: all changes of a stack's conditions from its creation on, in order and without gaps.
//!
//! The stack is `net`. A watch that starts before its creation receives every version ([`recorder`]); the CLI waits before each of its
//! steps until the step is reported ([`cli_gate`]), so that no change is missed; the recorded trace is compared with a text ([`golden`]).
//! A line that begins with `#` marks a difference from tofu-controller.

mod applies;
mod cli_gate;
mod deletions;
mod drift;
mod failures;
mod golden;
mod obstacles;
mod recorder;
mod suspension;

use recorder::Recorder;
use sluice_api::terraform::Terraform;

use crate::environment::TestEnvironment;

/// The traced stack.
const STACK: &str = "net";
/// One resource and one output.
const MODULE: &str = "variable \"size\" { default = \"one\" }\nresource \"terraform_data\" \"it\" { input = var.size }\n\
    output \"size\" { value = terraform_data.it.output }\n";
/// The plan depends on an external file: creating or removing it simulates drift.
const DRIFTING: &str = "variable \"marker\" {}\n\
    resource \"terraform_data\" \"it\" { input = fileexists(var.marker) ? \"there\" : \"missing\" }\n";

/// The first apply in auto of [`MODULE`] at revision a.
const FIRST_APPLY: &str = r"
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Applied successfully: revision a
          - Reconciling
          + Apply True TerraformAppliedSucceed: Applied successfully
          + Output True TerraformOutputsAvailable: Outputs available
          + Plan True TerraformPlannedWithChanges: Plan generated
";

/// A test environment with a recorder of the conditions of `net`.
struct Traced {
    env: TestEnvironment,
    recorder: Recorder,
}

impl Traced {
    /// Starts controller and recorder; the stack does not exist yet.
    async fn new() -> Self {
        let mut env = TestEnvironment::without_controller().await;
        cli_gate::install(&mut env);
        let recorder = Recorder::start(&env).await;
        env.start(4).await;
        Self { env, recorder }
    }

    /// Requests a reconciliation and waits until its run is handled.
    async fn request(&self, token: &str) -> Terraform {
        self.env.request(STACK, token).await;
        self.env
            .wait_for(STACK, "the request handled", |stack| {
                stack
                    .status
                    .as_ref()
                    .is_some_and(|status| status.last_handled_reconcile_at == token)
            })
            .await
    }

    /// Stops the controller and compares the trace with the text.
    async fn assert_trace(mut self, golden: &str) {
        self.env.wait_until_no_bundles().await;
        self.env.stop().await;
        let steps = self.recorder.all(&self.env).await;
        golden::compare(golden, &steps);
    }
}
