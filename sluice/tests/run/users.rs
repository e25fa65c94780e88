//! Runs of a user that has no account on the machine, as those in a pod have none, and that is not root.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::{Value, json};

use crate::world::{NAMESPACE, Wish, World, appears, ending};

/// The user of the documented image.
const USER: u32 = 65532;

/// The runner program of that user.
struct Nobody<'a> {
    world: &'a World,
    folder: PathBuf,
}

impl<'a> Nobody<'a> {
    /// All that it needs lies in a folder of its own: whether others may read what was built here is not known.
    fn new(world: &'a World) -> Self {
        let folder = world.dir.path().join("nobody");
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(world.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let copies = [
            ("tf-runner", Path::new(env!("CARGO_BIN_EXE_sluice"))),
            ("kubeconfig", &world.kubeconfig),
        ];
        for (name, original) in copies {
            std::fs::copy(original, folder.join(name)).unwrap();
            own(&folder.join(name));
        }
        own(&folder);
        let work = world.dir.path().join("work");
        std::fs::create_dir(&work).unwrap();
        own(&work);
        Self { world, folder }
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
        self.world
            .tell(&mut program, run, &self.folder.join(format!("{run}.lock")));
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

/// The holder that the CLI wrote into the lock of the state.
async fn holder(world: &World) -> String {
    let api: Api<Lease> = Api::namespaced(world.client(), NAMESPACE);
    let lease = api.get("lock-tfstate-default-net").await.unwrap();
    let info = &lease.metadata.annotations.unwrap()["app.terraform.io/lock-info"];
    let info: Value = serde_json::from_str(info).unwrap();
    info["Who"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_a_dead_run_is_released_whatever_its_user_is_called() {
    // The runner's environment, that of the stack, and the name that the CLI writes.
    type Given<'a> = &'a [(&'a str, &'a str)];
    let cases: [(Given<'_>, Value, &str); 4] = [
        (&[], json!({}), ""),
        (&[("USER", "eve")], json!({}), ""),
        (&[("USER", "eve"), ("HOME", "/")], json!({}), "eve"),
        (&[], json!({ "USER": "mallory", "HOME": "/" }), "mallory"),
    ];
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for (given, environment, user) in cases {
        let world = World::new("auto").await;
        let nobody = Nobody::new(&world);
        let marker = nobody.folder.join("marker");
        let go = marker.with_extension("go");
        let module = format!(
            "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{\n    \
             command = \"echo $PPID > {0}.new; mv {0}.new {0}; until [ -e {1} ]; do sleep 0.05; done\"\n  }}\n}}\n",
            marker.display(),
            go.display()
        );
        world.commit(&[("main.tf", &module)]);
        let wish = Wish::plan_and_apply().with(json!({ "environment": environment }));
        let name = world.prepare(wish.clone()).await;
        let mut runner = nobody.start(&name, given);
        appears(&marker).await;
        kill(&runner.id().to_string());
        kill(&std::fs::read_to_string(&marker).unwrap());
        runner.wait().unwrap();
        std::fs::write(&go, "").unwrap();
        let who = holder(&world).await;
        assert_eq!(who, format!("{user}@{host}"));
        let next = world.prepare(wish).await;
        nobody.run(&next, given).await;
        let next = world.get(&next).await;
        assert_eq!(
            ending(&next),
            "Succeeded TerraformAppliedSucceed",
            "{who}: {:?}",
            next.status
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_that_nobody_may_write_to_stand_in_no_runs_way() {
    let world = World::new("auto").await;
    let nobody = Nobody::new(&world);
    let module = "resource \"terraform_data\" \"it\" {\n  provisioner \"local-exec\" {\n    \
        command = \"mkdir -p $HOME/go/mod cache/deep; touch $HOME/go/mod/file cache/deep/file; \
        chmod -R a-w $HOME/go cache; chmod 0 cache/deep\"\n  }\n}\n";
    world.commit(&[("main.tf", module)]);
    let file = json!({ "location": "home", "path": "known", "content": "" });
    let wish = Wish::plan_and_apply().with(json!({ "surroundings": { "files": [file] } }));
    for _ in 0..2 {
        let name = world.prepare(wish.clone()).await;
        nobody.run(&name, &[]).await;
        let run = world.get(&name).await;
        assert!(ending(&run).starts_with("Succeeded"), "{:?}", run.status);
        let left: Vec<_> = std::fs::read_dir(world.work()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
