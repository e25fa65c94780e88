//! The arguments of `apply`, and what its errors say.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// An error of the kubernetes backend, with the line breaks of the CLI.
const REFUSED: &str = "exit status 1\n\nError: Error acquiring the state lock\n\nError message: Get\n\
    \"https://127.0.0.1:36071/apis/coordination.k8s.io/v1/namespaces/team/leases/lock-tfstate-default-net\":\n\
    dial tcp 127.0.0.1:36071: connect: connection\nrefused\n\nTerraform acquires a state lock to protect the state\n";

#[test]
fn an_unreachable_lock_differs_from_a_held_lock() {
    let earlier = "Error: error loading state: Get \"https://127.0.0.1:41465/api/v1/namespaces/team/secrets\": dial tcp\n\
        127.0.0.1:41465: connect: connection refused";
    assert!(is_unreachable(REFUSED) && is_unreachable(earlier));
    for (what, text) in [
        (
            "held",
            REFUSED.replace("refused", "refused\nLock Info:\n  ID: fd27f73e\n  Who: root@vm"),
        ),
        (
            "held, by nobody who is named",
            REFUSED.replace("refused", "refused\nLock Info:\n"),
        ),
        (
            "forbidden",
            REFUSED.replace("connection\nrefused", "leases is forbidden"),
        ),
        (
            "later than the lock",
            REFUSED.replace(LOCK_ERRORS[0], "Failed to save state"),
        ),
        (
            "a provider's",
            "Error: creating: dial tcp: connection refused".to_owned(),
        ),
    ] {
        assert!(!is_unreachable(&text), "{what}");
    }
}

#[test]
fn options_reach_the_apply() {
    let variables = ["-var-file=/w/x.tfvars".to_owned()];
    let options = Options {
        targets: vec!["a.b".into()],
        ..Options::default()
    };
    let line = |arguments: Vec<String>| arguments.join(" ");
    let plan = Some(Path::new("tfplan"));
    assert_eq!(
        line(apply_arguments(plan, &[], &options)),
        "apply -no-color -auto-approve -input=false -lock=true -parallelism=10 -refresh=true tfplan"
    );
    assert_eq!(
        line(apply_arguments(
            plan,
            &variables,
            &Options {
                parallelism: 3,
                ..options.clone()
            }
        )),
        "apply -no-color -auto-approve -input=false -lock=true -parallelism=3 -refresh=true -var-file=/w/x.tfvars tfplan"
    );
    assert_eq!(
        line(apply_arguments(None, &variables, &options)),
        "apply -no-color -auto-approve -input=false -lock=true -parallelism=10 -refresh=true -var-file=/w/x.tfvars \
         -target=a.b"
    );
    assert_eq!(
        line(destroy_arguments(&variables, &options)),
        "destroy -no-color -auto-approve -input=false -lock-timeout=0s -lock=true -parallelism=10 -refresh=true \
         -var-file=/w/x.tfvars -target=a.b"
    );
}

#[test]
fn a_plan_is_stale_by_the_title_of_the_first_error() {
    let stale = "\nError: Saved plan is stale\n\nThe given plan file can no longer be applied.\n";
    let warned = format!("\nWarning: Deprecated Parameter\n\nUse use_lockfile.\n{stale}");
    let boxed = "\u{2577}\n\u{2502} Error: Saved plan is stale\n\u{2502} \n\u{2575}\n";
    for said in [stale, &warned, boxed] {
        assert!(reports_stale_plan(said), "{said}");
    }
    let step = format!("\nError: local-exec provisioner error\n\nOutput: {stale}");
    for said in [
        step.as_str(),
        "",
        "the words Saved plan is stale",
        "Error: Other: Saved plan is stale",
    ] {
        assert!(!reports_stale_plan(said), "{said}");
    }
}

#[test]
fn an_apply_uses_the_version_of_its_plan_if_it_is_installed() {
    let tools = tempfile::tempdir().unwrap();
    for version in ["1.10.0", "1.11.0"] {
        let folder = tools.path().join("tofu").join(version);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("tofu"), "").unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.join("tofu"), executable).unwrap();
    }
    let installed = Some(tools.path());
    for (selected, of_plan, tools, expected) in [
        ("~> 1.10", "1.10.0", installed, "1.10.0"),
        ("~> 1.10", "1.10.0", None, "1.10.0"),
        ("", "1.10.0", installed, "1.10.0"),
        // The newest one, or the one on PATH.
        ("", "1.9.0", installed, ""),
        ("", "1.10.0", None, ""),
    ] {
        let selection = SelectedTool {
            name: "tofu".into(),
            version: selected.into(),
        };
        let pinned = pin(selection, of_plan, tools);
        assert_eq!(pinned.version, expected, "{selected:?} {of_plan} {tools:?}");
    }
}
