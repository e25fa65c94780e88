//! `LOG_HUMAN_READABLE_PLAN`: the plan in the log of the run, just before it is applied, as upstream's runner prints it.

use crate::run::commands::workspace::Workspace;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::plan::text_of;
use sluice_tf_core::cli::argv;
use sluice_tf_core::plan::readable;

/// The variable: of the runner, or of the stack's runner pod.
const VARIABLE: &str = "LOG_HUMAN_READABLE_PLAN";

/// Writes the plan into the log, where that is asked for. It informs: a plan that cannot be shown is applied all the same.
pub(crate) async fn show(workspace: &Workspace<'_>) {
    let asked = workspace.environment.get(VARIABLE).map(String::as_str);
    if !asked.is_some_and(is_yes) {
        return;
    }
    match text(workspace).await {
        Ok(text) => tracing::info!("the plan that is applied:\n{text}"),
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the plan cannot be shown in the log"
        ),
    }
}

fn is_yes(value: &str) -> bool {
    value == "1" || value.eq_ignore_ascii_case("true")
}

/// The CLI's text of the plan, without what nobody may read.
async fn text(workspace: &Workspace<'_>) -> Result<String, RunError> {
    if workspace.is_unsaved.get() {
        return Ok("the CLI could not save it; it stands in the output of the plan".to_owned());
    }
    let file = workspace
        .capture(Step::Show, &argv::show(&workspace.plan_file()))
        .await?;
    let text = text_of(&file, readable::TEXT_LIMIT)?;
    Ok(workspace.reporter.secrets().redact(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_one_and_true_ask_for_it() {
        assert!(is_yes("1") && is_yes("true") && is_yes("True"));
        assert!(!is_yes("") && !is_yes("0") && !is_yes("false"));
    }
}
