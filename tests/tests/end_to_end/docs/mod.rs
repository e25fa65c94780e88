//! Runs the commands of the README and of the pages verbatim. Blocks with a prompt (`$ `) show output and are skipped.
//! Only the address of the sample repository is replaced, by that of a Git server on loopback.

mod docs_shell;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use sluice_harness::cluster::ControlPlane;
use sluice_harness::git::{GitServer, Repository};
use sluice_runtime::client;
use sluice_tests::page::{SAMPLE_MODULE, command_blocks};
use sluice_tests::scenario::{Commit, Scenario, TIMEOUT, wait_for};
use sluice_tests::wait_for_definitions;
use tokio::process::Child;

pub(crate) use self::docs_shell::DocsShell;
use crate::environment::{Origin, remaining_processes};
use crate::migration::shell;
use crate::{TEST_TIMEOUT, with_timeout, with_timeout_of, without_cluster};

const README: &str = include_str!("../../../../README.md");
const LAPTOP: &str = include_str!("../../../../docs/get-started/laptop.md");
const QUICK_START: &str = include_str!("../../../../docs/get-started/quick-start.md");
const CLUSTER: &str = include_str!("../../../../docs/get-started/cluster.md");
const HELM: &str = include_str!("../../../../docs/get-started/helm.md");
const BESIDE_FLUX: &str = include_str!("../../../../docs/get-started/beside-flux.md");
const REPLACE_FLUX: &str = include_str!("../../../../docs/get-started/replace-flux.md");
const APPROVALS: &str = include_str!("../../../../docs/guides/approvals.md");
const REPOS: &str = include_str!("../../../../docs/guides/repo-objects.md");
const RUNS: &str = include_str!("../../../../docs/concepts/runs.md");
const RUN_KIND: &str = include_str!("../../../../docs/reference/terraformrun.md");
const SOURCE_KIND: &str = include_str!("../../../../docs/reference/gitrepository.md");
const SIGNATURES: &str = include_str!("../../../../docs/guides/signatures.md");
const STATE_LOCKS: &str = include_str!("../../../../docs/guides/state-locks.md");
const STORED_PLANS: &str = include_str!("../../../../docs/guides/stored-plans.md");
pub(crate) const GIT_STORE: &str = include_str!("../../../../docs/guides/git-store.md");
pub(crate) const WRITE_A_CONTROLLER: &str = include_str!("../../../../docs/guides/write-a-controller.md");

/// The pages with commands: those above, of which `node::quick_start` runs most of one, one that `migration` runs, one that
/// `run::state_copies` runs, one that `control::records` runs, and one that `backup` runs. `docs_api` runs two.
const PAGES_WITH_COMMANDS: [&str; 21] = [
    LAPTOP,
    QUICK_START,
    CLUSTER,
    HELM,
    BESIDE_FLUX,
    REPLACE_FLUX,
    APPROVALS,
    REPOS,
    RUNS,
    RUN_KIND,
    SOURCE_KIND,
    SIGNATURES,
    STATE_LOCKS,
    STORED_PLANS,
    include_str!("../../../../docs/guides/migrating-from-tofu-controller.md"),
    include_str!("../../../../docs/guides/state-copies.md"),
    include_str!("../../../../docs/guides/run-records.md"),
    include_str!("../../../../docs/guides/backup.md"),
    GIT_STORE,
    WRITE_A_CONTROLLER,
    README,
];

/// Fails if a Deployment or its runs have an image that no registry serves.
const IMAGES_ARE_SET: &str = "```console
kubectl -n sluice-system get deployment repo-controller
if kubectl -n sluice-system get deployments -o yaml | grep sluice.invalid; then exit 1; fi
```
";

/// The log of `sluice up`.
const PROGRAM: &str = "program";

/// Returns the text below a heading.
fn section(page: &'static str, heading: &str) -> &'static str {
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect(heading);
    section.split("\n## ").next().unwrap()
}

/// Returns the command blocks below a heading.
pub(crate) fn blocks(page: &'static str, heading: &str) -> Vec<String> {
    command_blocks(section(page, heading))
}

/// Returns the only command block below a heading.
pub(crate) fn commands(page: &'static str, heading: &str) -> String {
    let mut blocks = blocks(page, heading);
    assert_eq!(blocks.len(), 1, "{heading}: one block of commands");
    blocks.remove(0)
}

/// Waits until the program has written the file.
async fn wait_for_file(path: &Path, program: &mut Child, docs_shell: &DocsShell) {
    let file_exists = async {
        while !path.exists() {
            assert_eq!(program.try_wait().unwrap(), None, "{}", docs_shell.log(PROGRAM));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let result = tokio::time::timeout(TIMEOUT, file_exists).await;
    assert!(
        result.is_ok(),
        "no {}: {}",
        path.display(),
        docs_shell.log(PROGRAM)
    );
}

/// Runs the block that starts `sluice up` without its first command: the test has built the program.
pub(crate) async fn start(docs_shell: &DocsShell, block: &str) -> (Child, Scenario) {
    let (build, start) = block.split_once('\n').unwrap();
    assert_eq!(build, "cargo build --release --locked --bin sluice");
    let mut program = docs_shell.spawn(start, PROGRAM);
    wait_for_file(&docs_shell.kubeconfig(), &mut program, docs_shell).await;
    let settings = client::Settings {
        kubeconfig: Some(docs_shell.kubeconfig()),
        ..client::Settings::default()
    };
    (program, Scenario::new(client::build(&settings).await.unwrap()))
}

/// Stops `sluice up` as Ctrl-C does, and checks that it leaves no process.
pub(crate) async fn stop(docs_shell: &DocsShell, mut program: Child) {
    let group = Pid::from_raw(program.id().unwrap().cast_signed()).unwrap();
    kill_process_group(group, Signal::INT).unwrap();
    let ended = tokio::time::timeout(TIMEOUT, program.wait()).await;
    ended.expect("Ctrl-C ends it").unwrap();
    assert_eq!(
        remaining_processes(docs_shell.folder.path()),
        Vec::<String>::new()
    );
}

#[test]
fn the_first_applied_stack_of_the_readme() {
    with_timeout(async {
        let origin = Origin::start().await;
        origin
            .repository
            .commit_files(&[("main.tf", SAMPLE_MODULE)], "Hello")
            .unwrap();
        let docs_shell = DocsShell::create("#!/bin/sh\n", &origin.url);
        let blocks = blocks(README, "First applied stack");
        let [first, second] = &blocks[..] else {
            panic!("{blocks:?}")
        };
        let (program, scenario) = start(&docs_shell, first).await;
        scenario.wait_for_plan(None).await.unwrap();
        let output = docs_shell.run(second).await;
        assert!(output.contains("hello_world"), "the plan: {output}");
        assert!(
            output.trim_end().ends_with("Hello, Sluice and friends!"),
            "{output}"
        );
        stop(&docs_shell, program).await;
    });
}

#[test]
fn the_commands_of_the_docs_run_verbatim() {
    with_timeout(async {
        let origin = Origin::start().await;
        // The address, the directory of the module, and what the pages assume.
        let editor = "#!/bin/sh\nsed -i -e 's|interval: 1m|interval: 2s|' \
             -e 's|path: ./|path: ./stack\\n  storeReadablePlan: human|' \"$@\"\n";
        let docs_shell = DocsShell::create(editor, &origin.url);
        let (program, scenario) =
            start(&docs_shell, &commands(LAPTOP, "Start it on your own repository")).await;

        let output = docs_shell.run(&commands(SOURCE_KIND, "Example")).await;
        assert!(output.contains("main@sha1:"), "{output}");
        let first = scenario.wait_for_plan(None).await.unwrap();
        let output = docs_shell.run(&commands(RUN_KIND, "Read the history")).await;
        assert!(output.contains("terraform_data.instance"), "{output}");
        let output = docs_shell
            .run(&commands(APPROVALS, "From a plan to an apply"))
            .await;
        assert!(output.contains("terraform_data.instance"), "{output}");
        wait_for_approved(&scenario, &origin).await;
        docs_shell.run(&commands(RUNS, "Reconcile requests")).await;

        Commit::NewVersion.create(&origin.repository).unwrap();
        scenario.wait_for_plan(Some(&first)).await.unwrap();
        let output = docs_shell.run(&commands(LAPTOP, "Work with it")).await;
        assert!(output.contains("Approved plan-"), "{output}");
        assert!(output.contains("terraform default/app is deleted."), "{output}");
        assert_eq!(scenario.stacks().get_opt("app").await.unwrap(), None);
        stop(&docs_shell, program).await;
    });
}

#[test]
fn the_commands_about_repos_run_verbatim() {
    with_timeout(async {
        let repository = Repository::create_with(&["--initial-branch=master"]).unwrap();
        let module = |input: &str| format!("resource \"terraform_data\" \"it\" {{ input = \"{input}\" }}\n");
        let commit = |input: &str| repository.commit_files(&[("main.tf", module(input))], input);
        commit("one").unwrap();
        let server = GitServer::start().await.unwrap();
        let url = server.serve("app", &repository);
        let docs_shell = DocsShell::create("#!/bin/sh\n", &url);
        let block = commands(REPOS, "On a laptop").replace("https://git.example.com/app.git", &url);
        let (program, scenario) = start(&docs_shell, &block).await;
        wait_for(&scenario.sources(), "app", "the source", |_| true)
            .await
            .unwrap();
        // Instead of 30 s.
        let interval = Patch::Merge(json!({ "spec": { "interval": "2s" } }));
        scenario
            .sources()
            .patch("app", &PatchParams::default(), &interval)
            .await
            .unwrap();

        let follow = blocks(REPOS, "Follow a commit");
        let [first, request] = &follow[..] else {
            panic!("{follow:?}")
        };
        let output = docs_shell.run(first).await;
        assert!(output.contains("Completed"), "{output}");
        assert!(
            output.contains("terraform_data.it: Creating"),
            "the log: {output}"
        );
        docs_shell.run(request).await;

        let approve = blocks(REPOS, "Approve plans");
        let [manual, approve] = &approve[..] else {
            panic!("{approve:?}")
        };
        docs_shell.run(manual).await;
        commit("two").unwrap();
        let output = docs_shell.run(approve).await;
        assert!(output.contains("terraform_data.it"), "the plan: {output}");

        for file in [".ssh/id_ed25519", ".ssh/known_hosts", "token"] {
            let path = docs_shell.folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        let secrets = blocks(REPOS, "Private repositories");
        assert_eq!(secrets.len(), 2);
        for (block, secret) in secrets.iter().zip(["deploy-key", "git-token"]) {
            docs_shell.run(block).await;
            let is_named = |source: &Value| source["spec"]["secretRef"]["name"] == secret;
            wait_for(&scenario.sources(), "app", secret, is_named)
                .await
                .unwrap();
        }
        stop(&docs_shell, program).await;
    });
}

/// Runs the commands of pages, one after the other, on a real API server without nodes; `before` prepares it.
async fn run_on_a_cluster(before: &str, pages: &[&str]) {
    let plane = ControlPlane::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("admin"), plane.admin().kubeconfig()).unwrap();
    for checkout in ["config", "charts"] {
        let source = sluice_harness::gobuild::workspace().join(checkout);
        symlink(source, folder.path().join(checkout)).unwrap();
    }
    shell(folder.path(), before).await;
    for page in pages {
        let blocks = command_blocks(page);
        assert!(!blocks.is_empty());
        // A page whose commands wait for the definitions gets no other wait.
        let waits = page.contains("until kubectl get ");
        for block in blocks {
            shell(folder.path(), &format!("{block}\n")).await;
            if waits {
                continue;
            }
            // The API server needs a moment between definitions and their objects, which a user gives it.
            let client = plane.admin().client().await.unwrap();
            wait_for_definitions(client).await.unwrap();
        }
    }
}

#[test]
fn the_commands_of_the_cluster_pages_run_verbatim() {
    if without_cluster() {
        return;
    }
    with_timeout_of(3 * TEST_TIMEOUT, async {
        // The keys whose public halves the page about signatures exports. No agent stays.
        let keys = "mkdir -m 700 .gnupg .ssh
            gpg --batch --quiet --passphrase '' --quick-generate-key ada@example.com ed25519 sign never
            gpgconf --kill all
            ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519";
        run_on_a_cluster(keys, &[CLUSTER, STATE_LOCKS, STORED_PLANS, SIGNATURES]).await;
        run_on_a_cluster("true", &[HELM]).await;
        run_on_a_cluster("true", &[section(QUICK_START, "On any cluster")]).await;
        let repos = [
            section(CLUSTER, "Install"),
            section(REPOS, "On a cluster"),
            IMAGES_ARE_SET,
        ];
        run_on_a_cluster("true", &repos).await;
        let flux = "kubectl create namespace flux-system";
        run_on_a_cluster(flux, &[BESIDE_FLUX]).await;
        // Flux's source-controller: a Deployment of that name, and the definition.
        let flux = "kubectl create namespace flux-system
            kubectl apply --server-side -f config/crd/bases/source.toolkit.fluxcd.io_gitrepositories.yaml
            kubectl -n flux-system create deployment source-controller --image=flux.invalid/source-controller
            kubectl -n flux-system patch deployment source-controller --type=json \
              -p '[{\"op\":\"replace\",\"path\":\"/spec/template/spec/containers/0/name\",\"value\":\"manager\"}]'";
        run_on_a_cluster(flux, &[REPLACE_FLUX]).await;
    });
}

/// Waits until the approved plan is applied.
async fn wait_for_approved(scenario: &Scenario, origin: &Origin) {
    let head = origin.repository.head().unwrap();
    scenario
        .wait_until_applied(&format!("main@sha1:{head}"))
        .await
        .unwrap();
}

#[test]
fn every_page_with_commands_is_run_by_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut directories = vec![root.join("docs")];
    let mut pages = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        let is_run = command_blocks(&text).is_empty() || PAGES_WITH_COMMANDS.contains(&text.as_str());
        assert!(is_run, "{}: no test runs its commands", page.display());
    }
}
