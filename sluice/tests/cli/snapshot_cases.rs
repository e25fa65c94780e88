//! The commands of which there are snapshots.

/// Lines of a long text that a snapshot has.
const HEAD: usize = 20;
/// The context whose server does not answer, as a flag.
const NO_API: &str = "--kubeconfig=closed";

/// What one snapshot shows.
pub(crate) struct Case {
    /// The name of the snapshot.
    pub(crate) name: String,
    /// Command lines without the name of the program. They have no quotes: a space separates two arguments.
    pub(crate) commands: Vec<String>,
    /// What the user types at the question; empty: the command does not ask.
    pub(crate) answer: &'static str,
    /// Lines of each text that are shown.
    pub(crate) lines: usize,
}

/// Commands that change nothing: name of the snapshot, and command line.
const LOOK: [(&str, &str); 66] = [
    ("help", "--help"),
    ("help_of_a_command", "plan --help"),
    ("usage", "get --bogus"),
    ("version_flag", "--version"),
    ("version", "version"),
    ("version_client", "version --client"),
    ("version_json", "version -o json"),
    ("status", "status"),
    ("status_all_namespaces", "status -A"),
    ("status_nothing", "status -n empty"),
    ("status_yaml", "status -o yaml"),
    ("get", "get"),
    ("get_all_namespaces", "get -A"),
    ("get_wide", "get -o wide"),
    ("get_name", "get -o name"),
    ("get_sources", "get sources"),
    ("get_sources_wide", "get sources -o wide"),
    ("get_source_yaml", "get sources infra -o yaml"),
    ("get_terraforms", "get terraforms"),
    ("get_terraforms_nothing", "get terraforms -n empty"),
    ("get_terraforms_wide", "get terraforms -o wide"),
    ("get_terraform", "get terraforms app"),
    ("get_terraform_json", "get terraforms app -o json"),
    ("get_runs", "get runs"),
    ("get_runs_wide", "get runs -o wide"),
    ("tree", "tree"),
    ("tree_of_a_stack", "tree app"),
    ("describe_approval", "describe app"),
    ("describe_failed", "describe db"),
    ("describe_locked", "describe held"),
    ("describe_ready", "describe net"),
    ("describe_running", "describe web"),
    ("describe_yaml", "describe new -o yaml"),
    ("history", "history app"),
    ("history_nothing", "history new"),
    ("history_wide", "history app -o wide"),
    ("logs", "logs app"),
    ("logs_running", "logs web"),
    ("logs_nothing", "logs new"),
    ("events", "events"),
    ("events_of_a_stack", "events app"),
    ("events_nothing", "events -n empty"),
    ("outputs", "outputs web"),
    ("outputs_all", "outputs web --show-sensitive"),
    ("outputs_json", "outputs web -o json"),
    ("outputs_nothing", "outputs net"),
    ("outputs_value", "outputs web host"),
    ("outputs_sensitive_value", "outputs web token"),
    ("diff", "diff app"),
    ("diff_nothing", "diff net"),
    ("plan", "plan app"),
    ("plan_show", "plan show app --full"),
    ("plan_show_nothing", "plan show net"),
    ("export", "export app"),
    ("export_source", "export source infra"),
    ("state_list", "state list net"),
    ("state_list_nothing", "state list app"),
    ("state_show", "state show net"),
    ("state_pull", "state pull net"),
    ("state_check_absent", "state check --state=absent"),
    ("state_export_absent", "state export --state=absent"),
    ("record_export", "record export app --key=absent.pem"),
    ("record_verify", "record verify absent.json --key=absent.pub"),
    ("migrate", "migrate"),
    ("check", "check"),
    ("check_before", "check --pre"),
];

/// Commands without objects, or with files only.
const BEGIN: [(&str, &str); 11] = [
    ("init", "init shop --url=https://git.example/shop.git"),
    ("init_again", "init shop"),
    (
        "adopt",
        "adopt repository --source=GitRepository/infra -n default",
    ),
    ("adopt_nothing", "adopt shop/sluice"),
    (
        "create_source_export",
        "create source git shop --url=https://git.example/shop.git --branch=main --export",
    ),
    (
        "create_source_wrong",
        "create source git shop --url=git@git.example:shop.git --branch=main",
    ),
    (
        "create_terraform_export",
        "create terraform shop --source=GitRepository/infra --path=stacks/shop --var=region=eu-1 --export",
    ),
    ("install_wrong", "install"),
    ("install_elsewhere", "install --registry=r.example -n elsewhere"),
    ("uninstall_active_run", "uninstall"),
    ("apply_without_directory", "apply app"),
];

/// Commands whose texts are long.
const LONG: [(&str, &str); 5] = [
    ("completion_bash", "completion bash"),
    ("completion_fish", "completion fish"),
    ("completion_zsh", "completion zsh"),
    ("install_export", "install --export --registry=r.example/sluice"),
    ("uninstall_export", "uninstall --export"),
];

/// Commands about an object, with `NAME` in its place. Each has a snapshot of its errors: no such object, and no API.
const OF_OBJECT: [&str; 27] = [
    "get sources NAME",
    "get terraforms NAME",
    "get runs NAME",
    "tree NAME",
    "describe NAME",
    "history NAME",
    "logs NAME",
    "events NAME",
    "outputs NAME",
    "diff NAME",
    "export NAME",
    "plan show NAME",
    "approve NAME --yes",
    "reject NAME --yes",
    "replan NAME",
    "reconcile NAME",
    "reconcile source NAME",
    "retry NAME",
    "suspend NAME",
    "resume NAME",
    "cancel NAME --yes",
    "unlock NAME --yes",
    "debug NAME --print",
    "delete NAME --yes",
    "state list NAME",
    "state show NAME",
    "state restore NAME --copy=older --yes",
];

/// Commands about no object that need an API. Each has a snapshot of its error without one.
const OF_API: [&str; 9] = [
    "get",
    "status",
    "events",
    "migrate",
    "check",
    "version",
    "create terraform shop --source=GitRepository/infra",
    "install --registry=r.example",
    "uninstall",
];

/// Commands that ask. The user answers no, so nothing is changed.
const QUESTIONS: [(&str, &str); 6] = [
    ("approve_question", "approve app"),
    ("reject_question", "reject app"),
    ("unlock_question", "unlock held"),
    ("cancel_question", "cancel web"),
    ("delete_question", "delete net"),
    ("delete_source_question", "delete source infra"),
];

/// Commands that change objects, in this order. No controller answers them. A timeout is longer than a watch takes to begin on a busy machine.
const ACTS: [(&str, &str); 30] = [
    ("reconcile", "reconcile net"),
    ("reconcile_source", "reconcile source infra"),
    ("reconcile_suspended", "reconcile old"),
    ("reconcile_too_long", "reconcile net --wait --timeout=5s"),
    ("replan_too_long", "replan net --timeout=5s"),
    ("retry", "retry db"),
    ("retry_all", "retry --all"),
    ("retry_ready", "retry net"),
    ("suspend", "suspend db"),
    ("suspend_again", "suspend db"),
    ("suspend_source", "suspend source infra"),
    ("resume", "resume db"),
    ("resume_again", "resume db"),
    ("resume_source", "resume source infra"),
    ("unlock", "unlock held --yes"),
    ("unlock_nothing", "unlock net --yes"),
    ("cancel", "cancel web --yes"),
    ("cancel_nothing", "cancel app --yes"),
    ("debug_suspended", "debug old --print"),
    ("debug_too_long", "debug net --print --timeout=5s"),
    (
        "state_restore_active",
        "state restore net --copy=3f9a0c1b2d --yes",
    ),
    ("approve_nothing", "approve net --yes"),
    ("approve", "approve site --yes"),
    ("reject", "reject app --yes --comment=early"),
    ("approve_rejected", "approve app --yes"),
    (
        "create_source",
        "create source git shop --url=https://git.example/shop.git --branch=main --wait=false",
    ),
    (
        "create_terraform",
        "create terraform shop --source=GitRepository/shop --wait=false",
    ),
    (
        "create_terraform_again",
        "create terraform shop --source=GitRepository/shop --wait=false",
    ),
    ("delete", "delete cache --yes"),
    ("delete_source", "delete source broken --yes"),
];

/// Returns all cases in the order in which they are run: later commands see what earlier ones have changed.
pub(crate) fn cases() -> Vec<Case> {
    let long = LONG.iter().map(|line| Case {
        lines: HEAD,
        ..of_line(line)
    });
    let questions = QUESTIONS.iter().map(|line| Case {
        answer: "n\n",
        ..of_line(line)
    });
    let errors = OF_OBJECT.iter().chain(&OF_API).map(|command| errors_of(command));
    LOOK.iter()
        .chain(&BEGIN)
        .map(of_line)
        .chain(long)
        .chain(errors)
        .chain(questions)
        .chain(ACTS.iter().map(of_line))
        .collect()
}

fn of_line((name, command): &(&str, &str)) -> Case {
    Case {
        name: (*name).to_owned(),
        commands: vec![(*command).to_owned()],
        answer: "",
        lines: usize::MAX,
    }
}

/// Returns the case with the errors of a command.
fn errors_of(command: &str) -> Case {
    let words = command
        .split(' ')
        .take_while(|word| *word != "NAME" && !word.contains(['-', '/']));
    let name = words.collect::<Vec<_>>().join("_");
    let mut commands = vec![format!("{} {NO_API}", command.replace("NAME", "app"))];
    let mut prefix = "without_api";
    if command.contains("NAME") {
        commands.insert(0, command.replace("NAME", "absent"));
        prefix = "errors_of";
    }
    Case {
        name: format!("{prefix}_{name}"),
        commands,
        answer: "",
        lines: usize::MAX,
    }
}
