//! Runs of an unprivileged user without an account, as in a pod.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::{Value, json};

use crate::environment::{NAMESPACE, RunSetup, TestEnvironment, ending, wait_for_file};

/// The user of the documented image.
const USER: u32 = 65532;

/// Runs the runner program as that user.
struct UnprivilegedUser<'a> {
    env: &'a TestEnvironment,
    folder: PathBuf,
}

impl<'a> UnprivilegedUser<'a> {
    /// The program and its files in a separate directory, since others may be unable to read the build directory.
    fn new(env: &'a TestEnvironment) -> Self {
        let folder = env.dir.path().join("unprivileged");
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(env.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let copies = [
            ("tf-runner", Path::new(env!("CARGO_BIN_EXE_sluice"))),
            ("kubeconfig", &env.kubeconfig),
        ];
        for (name, original) in copies {
            std::fs::copy(original, folder.join(name)).unwrap();
            own(&folder.join(name));
        }
        own(&folder);
        let work = env.dir.path().join("work");
        std::fs::create_dir(&work).unwrap();
        own(&work);
        Self { env, folder }
    }

    fn start(&self, run: &str, environment: &[(&str, &str)]) -> Child {
        let runner = self.folder.join("tf-runner");
        let mut program = if geteuid().is_root() {
            let mut program = Command::new(runner);
            program.uid(USER).gid(USER);
            program
        } else {
            let mut program = Command::new("unshare");
            program
                .args(["--user", &format!("--map-user={USER}"), "--"])
                .arg(runner);
            program
        };
        self.env
            .configure(&mut program, run, &self.folder.join(format!("{run}.lock")));
        program
            .env("KUBECONFIG", self.folder.join("kubeconfig"))
            .envs(environment.iter().copied());
        program.spawn().unwrap()
    }

    async fn run(&self, run: &str, environment: &[(&str, &str)]) {
        let mut runner = self.start(run, environment);
        let waited = tokio::task::spawn_blocking(move || runner.wait().unwrap());
        waited.await.unwrap();
    }
}

fn own(path: &Path) {
    if geteuid().is_root() {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
}

fn kill(id: &str) {
    let pid = Pid::from_raw(id.trim().parse().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// Returns the holder that the CLI wrote into the state lock.
async fn holder(env: &TestEnvironment) -> String {
    let api: Api<Lease> = Api::namespaced(env.client(), NAMESPACE);
    let lease = api.get("lock-tfstate-default-net").await.unwrap();
    let info = &lease.metadata.annotations.unwrap()["app.terraform.io/lock-info"];
    let info: Value = serde_json::from_str(info).unwrap();
    info["Who"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_runs_lock_is_released_for_any_user_name() {
    // Environment of the runner, environment of the stack, and the user name that the CLI writes.
    type Given<'a> = &'a [(&'a str, &'a str)];
    let cases: [(Given<'_>, Value, &str); 4] = [
        (&[], json!({}), ""),
        (&[("USER", "eve")], json!({}), ""),
        (&[("USER", "eve"), ("HOME", "/")], json!({}), "eve"),
        (&[], json!({ "USER": "mallory", "HOME": "/" }), "mallory"),
    ];
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for (given, environment, user) in cases {
        let env = TestEnvironment::new("auto").await;
        let unprivileged = UnprivilegedUser::new(&env);
        let marker = unprivileged.folder.join("marker");
        let go = marker.with_extension("go");
        let module = format!(
            "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{\n    \
             command = \"echo $PPID > {0}.new; mv {0}.new {0}; until [ -e {1} ]; do sleep 0.05; done\"\n  }}\n}}\n",
            marker.display(),
            go.display()
        );
        env.commit(&[("main.tf", &module)]);
        let setup = RunSetup::plan_and_apply().with(json!({ "environment": environment }));
        let name = env.prepare(setup.clone()).await;
        let mut runner = unprivileged.start(&name, given);
        wait_for_file(&marker).await;
        kill(&runner.id().to_string());
        kill(&std::fs::read_to_string(&marker).unwrap());
        runner.wait().unwrap();
        std::fs::write(&go, "").unwrap();
        let who = holder(&env).await;
        assert_eq!(who, format!("{user}@{host}"));
        let next = env.prepare(setup).await;
        unprivileged.run(&next, given).await;
        let next = env.get(&next).await;
        assert_eq!(
            ending(&next),
            "Succeeded TerraformAppliedSucceed",
            "{who}: {:?}",
            next.status
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_directories_block_no_run() {
    let env = TestEnvironment::new("auto").await;
    let unprivileged = UnprivilegedUser::new(&env);
    let module = "resource \"terraform_data\" \"it\" {\n  provisioner \"local-exec\" {\n    \
        command = \"mkdir -p $HOME/go/mod cache/deep; touch $HOME/go/mod/file cache/deep/file; \
        chmod -R a-w $HOME/go cache; chmod 0 cache/deep\"\n  }\n}\n";
    env.commit(&[("main.tf", module)]);
    let file = json!({ "location": "home", "path": "known", "content": "" });
    let setup = RunSetup::plan_and_apply().with(json!({ "surroundings": { "files": [file] } }));
    for _ in 0..2 {
        let name = env.prepare(setup.clone()).await;
        unprivileged.run(&name, &[]).await;
        let run = env.get(&name).await;
        assert!(ending(&run).starts_with("Succeeded"), "{:?}", run.status);
        let remaining: Vec<_> = std::fs::read_dir(env.work()).unwrap().collect();
        assert!(remaining.is_empty(), "{remaining:?}");
    }
}
