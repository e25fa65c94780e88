//! May a plan that was just made be applied at once? Asked of a fresh read of the object (pure).

use sluice_api::run::{TerraformRun, Trigger};
use sluice_api::terraform::Terraform;
use sluice_api::terraform::approval::{self, Ask};

/// `Ok`, or why the plan waits.
pub(super) fn opens(terraform: &Terraform, run: &TerraformRun) -> Result<(), &'static str> {
    let (metadata, spec) = (&terraform.metadata, &terraform.spec);
    if metadata.uid.as_deref() != Some(run.spec.terraform.uid.as_str()) {
        return Err("the Terraform object is another one than the run was made for");
    }
    if run.spec.trigger == Trigger::Deletion {
        let deleting = metadata.deletion_timestamp.is_some() && spec.destroys_on_deletion();
        return if deleting {
            Ok(())
        } else {
            Err("the object is not being deleted with its resources")
        };
    }
    if metadata.deletion_timestamp.is_some() {
        return Err("the object is being deleted");
    }
    if spec.suspend {
        return Err("the object is suspended");
    }
    if metadata.generation != Some(run.spec.terraform.generation) {
        return Err("the spec changed while the plan was made");
    }
    if !approval::decide(Ask::from(spec), "").applies() {
        return Err("the spec does not approve plans automatically");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn asked(trigger: &str, change: impl Fn(&mut Value)) -> bool {
        let mut object = json!({
            "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": { "name": "net", "uid": "u", "generation": 3 },
            "spec": { "interval": "1h", "approvePlan": "auto", "sourceRef": { "kind": "GitRepository", "name": "x" } }
        });
        change(&mut object);
        let run = json!({
            "metadata": { "name": "net-1" },
            "spec": { "action": "PlanAndApply", "attempt": 1, "deadline": "2h", "trigger": trigger,
                      "source": { "kind": "GitRepository", "name": "x", "namespace": "team" },
                      "terraform": { "name": "net", "uid": "u", "generation": 3 } }
        });
        let (object, run) = (
            serde_json::from_value(object).unwrap(),
            serde_json::from_value(run).unwrap(),
        );
        opens(&object, &run).is_ok()
    }

    #[test]
    fn only_the_object_that_was_planned_and_still_says_auto_is_applied() {
        assert!(asked("Revision", |_| ()));
        assert!(!asked("Revision", |object| object["metadata"]["uid"] = json!("other")));
        assert!(!asked("Revision", |object| object["metadata"]["generation"] = json!(4)));
        assert!(!asked("Revision", |object| object["spec"]["approvePlan"] = json!("")));
        assert!(!asked("Revision", |object| object["spec"]["planOnly"] = json!(true)));
        assert!(!asked("Revision", |object| object["spec"]["suspend"] = json!(true)));
        assert!(!asked(
            "Revision",
            |object| object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")
        ));
    }

    #[test]
    fn a_deletion_is_applied_whatever_the_approval_when_it_shall_destroy() {
        let deleting = |destroys: bool| {
            move |object: &mut Value| {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                object["metadata"]["generation"] = json!(4);
                object["spec"]["approvePlan"] = json!("");
                object["spec"]["destroyResourcesOnDeletion"] = json!(destroys);
            }
        };
        assert!(asked("Deletion", deleting(true)));
        assert!(!asked("Deletion", deleting(false)));
        assert!(!asked("Deletion", |_| ()));
    }
}
