//! Providers that the CLI downloads, and runs that share them.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use sluice_api::run::TerraformRun;
use sluice_harness::trial::{Mirror, TrialProvider};
use sluice_tf_runner::run::ProviderCacheSettings;
use tokio_util::sync::CancellationToken;

use crate::environment::{RunSetup, TestEnvironment, ending, status};

struct Shared {
    env: TestEnvironment,
    trial: TrialProvider,
    mirror: Mirror,
}

impl Shared {
    async fn new() -> Self {
        let trial = TrialProvider::create().unwrap();
        let mirror = trial.mirror().await.unwrap();
        let env = TestEnvironment::new("auto").await;
        Self { env, trial, mirror }
    }

    fn commit(&self, lock: Option<&str>) {
        let module = format!(
            "{}resource \"trial_thing\" \"it\" {{\n  name    = \"it\"\n  content = \"one\"\n}}\n",
            self.trial.provider_block()
        );
        let lock = lock.map(|lock| (".terraform.lock.hcl", lock));
        let files: Vec<_> = [("main.tf", module.as_str())].into_iter().chain(lock).collect();
        self.env.commit(&files);
    }

    fn cache(&self) -> PathBuf {
        self.env.dir.path().join("providers")
    }

    async fn run(&self, setup: RunSetup, cached: bool) -> TerraformRun {
        let name = Box::pin(self.env.prepare(setup)).await;
        let mut context = self.env.context(&name);
        for (variable, file) in [
            ("TF_CLI_CONFIG_FILE", self.mirror.cli_config()),
            ("SSL_CERT_FILE", self.mirror.authority()),
        ] {
            let value = file.display().to_string();
            context.environment.insert(variable.to_owned(), value);
        }
        context.settings.providers = cached.then(|| ProviderCacheSettings {
            directory: self.cache(),
            max_bytes: 1 << 30,
        });
        let run = self.env.execute_run(&name, context, CancellationToken::new());
        Box::pin(run).await;
        Box::pin(self.env.get(&name)).await
    }

    async fn plan(&self) -> TerraformRun {
        let run = self.run(RunSetup::plan(), true).await;
        assert_eq!(
            ending(&run),
            "Succeeded TerraformPlannedWithChanges",
            "{}",
            status(&run).message
        );
        run
    }

    /// Returns the number of downloads of a step.
    async fn downloads<T>(&self, step: impl Future<Output = T>) -> (T, usize) {
        let before = self.mirror.downloads();
        let done = step.await;
        (done, self.mirror.downloads() - before)
    }
}

/// Returns the only program in the cache.
fn program(cache: &Path) -> PathBuf {
    let entries = std::fs::read_dir(cache).unwrap().map(Result::unwrap);
    let packages: Vec<_> = entries
        .filter(|entry| entry.file_name() != ".verified")
        .map(|entry| entry.path())
        .collect();
    let [package] = packages.as_slice() else {
        panic!("{packages:?}")
    };
    let mut files = std::fs::read_dir(package).unwrap();
    files.next().unwrap().unwrap().path()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_downloaded_once_and_plans_stay_the_same() {
    let shared = Shared::new().await;
    shared.commit(None);
    let (first, once) = shared.downloads(shared.plan()).await;
    assert!(once > 0);
    let (second, none) = shared.downloads(shared.plan()).await;
    assert_eq!(none, 0, "a plan of the same stack");
    let (alone, again) = shared.downloads(shared.run(RunSetup::plan(), false)).await;
    assert_eq!(again, once, "a plan without a cache");
    let effects = [&first, &second, &alone].map(|run| status(run).effect_digest);
    assert!(
        !effects[0].is_empty() && effects.iter().all(|effect| *effect == effects[0]),
        "{effects:?}"
    );
    let (applied, none) = shared.downloads(shared.run(RunSetup::apply(&alone), true)).await;
    assert_eq!(
        (ending(&applied).as_str(), none),
        ("Succeeded TerraformAppliedSucceed", 0)
    );
    assert_eq!(shared.trial.resources().unwrap(), ["it"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_modified_cached_provider_is_rejected_and_downloaded_again() {
    let shared = Shared::new().await;
    shared.commit(Some(&shared.mirror.lock_file()));
    let (_, once) = shared.downloads(shared.plan()).await;
    let (_, none) = shared.downloads(shared.plan()).await;
    assert_eq!(none, 0);
    let sound = std::fs::read(program(&shared.cache())).unwrap();
    std::fs::write(program(&shared.cache()), "#!/bin/sh\nexit 1\n").unwrap();
    let (_, again) = shared.downloads(shared.plan()).await;
    assert_eq!(again, once, "what was written into is not used");
    assert!(
        std::fs::read(program(&shared.cache())).unwrap() == sound,
        "and what was downloaded takes its place"
    );
    let (_, none) = shared.downloads(shared.plan()).await;
    assert_eq!(none, 0);
}

/// Forges the record that the cached package has its digest, as the code of a module can: a hash of what the file system knows.
fn forge_record(cache: &Path) {
    let program = program(cache);
    let found = std::fs::metadata(&program).unwrap();
    let identity = [found.dev(), found.ino(), found.size()].map(u64::to_be_bytes);
    let times = [
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec(),
    ];
    let name = program.file_name().unwrap().as_encoded_bytes();
    let mut hash = Sha256::new();
    for part in [name, &identity.concat(), &times.map(i64::to_be_bytes).concat()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let package = program.parent().unwrap().file_name().unwrap();
    let record = cache.join(".verified").join(package);
    assert!(record.exists(), "the package was digested");
    std::fs::write(record, hex::encode(hash.finalize())).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cached_provider_with_a_forged_record_is_replaced_by_the_cli() {
    let shared = Shared::new().await;
    shared.commit(Some(&shared.mirror.lock_file()));
    let (_, once) = shared.downloads(shared.plan()).await;
    let sound = std::fs::read(program(&shared.cache())).unwrap();
    // A sound package with a forged record is used: the forgery has the form of a record.
    forge_record(&shared.cache());
    let (_, none) = shared.downloads(shared.plan()).await;
    assert_eq!(none, 0);
    std::fs::write(program(&shared.cache()), "#!/bin/sh\nexit 1\n").unwrap();
    forge_record(&shared.cache());
    let (_, again) = shared.downloads(shared.plan()).await;
    // Terraform downloads the provider by itself; OpenTofu downloads it and fails, so that `init` is repeated.
    let is_tofu = sluice_harness::cli::terraform().unwrap().ends_with("tofu");
    let attempts = if is_tofu { 2 } else { 1 };
    assert_eq!(again, attempts * once, "the CLI digests the copy");
    assert!(
        std::fs::read(program(&shared.cache())).unwrap() == sound,
        "the download takes the place of the package"
    );
    let (_, none) = shared.downloads(shared.plan()).await;
    assert_eq!(none, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_provider_version_is_selected_and_module_digests_are_enforced() {
    let shared = Shared::new().await;
    let (lock, digest) = (shared.mirror.lock_file(), shared.mirror.lock_file());
    let digest = digest.split("h1:").nth(1).unwrap().split('"').next().unwrap();
    // The dependency lock file of the module has another package digest than the registry.
    let other = format!("{}=", "A".repeat(43));
    shared.commit(Some(&lock.replace(digest, &other)));
    shared.mirror.set_versions(&["1.0.0", "1.1.0"]);
    let (_, once) = shared.downloads(shared.plan()).await;
    let (_, none) = shared.downloads(shared.plan()).await;
    assert_eq!(none, 0);
    shared.mirror.set_versions(&["1.0.0", "1.1.0", "1.2.0"]);
    let (_, newer) = shared.downloads(shared.plan()).await;
    assert_eq!(newer, once, "a newer version is downloaded, once");
    shared.mirror.set_versions(&["1.0.0"]);
    let failed = shared.run(RunSetup::plan(), true).await;
    assert_eq!(ending(&failed), "Failed TFExecInitFailed");
    assert!(
        status(&failed).message.contains("checksums"),
        "{}",
        status(&failed).message
    );
}
