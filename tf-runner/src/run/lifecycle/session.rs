//! A run in its prepared directory.

use std::collections::BTreeMap;

use sluice_api::run::TerraformRun;
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::cli::process::Limits;
use sluice_tf_core::cli::tool;
use sluice_tf_core::workdir::WorkdirOwner;

use crate::run::apply::last_applied;
use crate::run::cli::Cli;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use crate::run::lifecycle::identity::lock_holder;
use crate::run::state::{committed_state, errored_tfstate};
use crate::run::state_lock::leftover::LeftoverLock;
use crate::run::status::StatusWriter;
use crate::run::workdir::{WorkDirectory, prepare, run_environment};

/// Everything that the steps of a run work with. It exists once the directory is prepared.
pub(crate) struct RunSession<'a> {
    pub(crate) context: &'a Context,
    pub(crate) run: &'a TerraformRun,
    /// The inputs. To apply a stored plan these are the inputs of the plan.
    pub(crate) bundle: Bundle,
    pub(crate) cli: Cli<'a>,
}

impl<'a> RunSession<'a> {
    /// Prepares the directory: artifact or last applied files, generated files, environment and program.
    pub(crate) async fn prepare(
        context: &'a Context,
        run: &'a TerraformRun,
        bundle: Bundle,
        directory: &'a WorkDirectory,
        limits: Limits,
        status: &'a StatusWriter,
    ) -> Result<Self, RunError> {
        directory.clear_for(&WorkdirOwner {
            path: bundle.path.clone(),
            workspace: bundle.workspace.clone(),
            state_location: bundle.run_environment.state_location.clone(),
        })?;
        match &bundle.last_applied {
            None => prepare::fetch(context, &bundle.artifact, directory, &limits.stop).await?,
            Some(kept) => last_applied::unpack(context, &bundle, kept, directory, &limits.stop).await?,
        }
        let module = prepare::module_directory(&directory.root, &bundle.path)?;
        errored_tfstate::remove_committed(&module)?;
        committed_state::move_out(&module, directory.scratch.path(), &bundle)?;
        let environment = prepare::command_environment(context, &bundle, &module, &directory.home)?;
        status.secrets().add_environment(&environment);
        prepare::write_generated(&module, &directory.home, &bundle)?;
        let search_path = environment.get("PATH").map_or("", String::as_str);
        let tool = match &bundle.selected_tool {
            Some(selected) => {
                tool::find_selected(search_path, context.settings.tools_dir.as_deref(), selected)?
            }
            None => tool::find(search_path, bundle.tool.as_deref())?,
        };
        let leftover_lock = LeftoverLock::of_holder(&record_lock_holder(context, status, &environment));
        let mut cli = Cli::new(
            tool,
            directory,
            module,
            environment,
            limits,
            status,
            leftover_lock,
        );
        let kubeconfig = run_environment::write_kubeconfig(context, &bundle, &directory.root)?;
        cli.init_arguments = run_environment::init_arguments(&bundle.run_environment, kubeconfig.as_deref());
        Ok(Self {
            context,
            run,
            bundle,
            cli,
        })
    }
}

/// The `user@host` that the CLI writes into state locks. A stack may set the variables that it is derived from; a name other than
/// that of the claim is recorded before the first command.
fn record_lock_holder(
    context: &Context,
    status: &StatusWriter,
    environment: &BTreeMap<String, String>,
) -> String {
    let user = |all: &BTreeMap<String, String>| ["USER", "HOME"].map(|name| all.get(name).cloned());
    if user(environment) == user(&context.environment) {
        return context.identity.who.clone();
    }
    let holder = lock_holder(environment);
    if holder != context.identity.who {
        status.write(|status| status.lock_holder.clone_from(&holder));
    }
    holder
}
