//! Golden traces: everything that the conditions of a stack say, from its creation on, in order and with nothing between.
//!
//! The stack is `net`. A watch that begins before it exists hears of every version ([`recorder`]); the CLI waits before each
//! of its steps until the step is told ([`gate`]), so that no state passes unseen; what was heard is compared with a text
//! ([`golden`]). Where a trace is another than tofu-controller's, the test says so in a line that begins with `#`.

mod applies;
mod drift;
mod ends;
mod failures;
mod gate;
mod golden;
mod obstacles;
mod recorder;
mod waits;

use crate::world::World;
use recorder::Recorder;
use sluice_api::terraform::Terraform;

/// The stack whose conditions are traced.
const STACK: &str = "net";
/// One resource and one output.
const MODULE: &str = "variable \"size\" { default = \"one\" }\nresource \"terraform_data\" \"it\" { input = var.size }\n\
    output \"size\" { value = terraform_data.it.output }\n";
/// A stack whose plan depends on a file outside: made or removed, it is what somebody did behind the stack's back.
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

/// A world in which somebody writes down what `net` says.
struct Traced {
    world: World,
    recorder: Recorder,
}

impl Traced {
    /// The controller runs, the recorder listens, and the stack does not exist yet.
    async fn new() -> Self {
        let mut world = World::without_controller().await;
        gate::install(&mut world);
        let recorder = Recorder::start(&world).await;
        world.start(4).await;
        Self { world, recorder }
    }

    /// Asks for a pass and waits until the run that it leads to has been dealt with.
    async fn request(&self, token: &str) -> Terraform {
        self.world.request(STACK, token).await;
        self.world
            .until(STACK, "the request handled", |stack| {
                stack
                    .status
                    .as_ref()
                    .is_some_and(|status| status.last_handled_reconcile_at == token)
            })
            .await
    }

    /// Stops the controller and compares all that was told with the text.
    async fn told(mut self, golden: &str) {
        self.world.no_bundles().await;
        self.world.stop().await;
        let steps = self.recorder.all(&self.world).await;
        golden::compare(golden, &steps);
    }
}
