//! The test environment: an API served over TLS, an artifact server, a controller that can be stopped and started.

mod objects;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::interval::Interval;
use sluice_api::reference::{CrossNamespace, ObjectName};
use sluice_embedded::{ApiServer, Store, TlsServer};
use sluice_harness::directory::TestDirectory;
use sluice_runtime::clock::SystemClock;
use sluice_runtime::event::{Recorder, Reporter};
use sluice_runtime::metrics::Metrics;
use sluice_runtime::probes::Readiness;
use sluice_runtime::random::Generator;
use sluice_runtime::schedule::Backoff;
use sluice_runtime::shutdown::Token;
use sluice_runtime::trace::Tracer;
use sluice_runtime::watch::{Scope, Settings};
use sluice_runtime::{client, http};
use sluice_tf_controller::executor::{Executor, ProcessExecutor, ProcessOptions, RunRef};
use sluice_tf_controller::inputs::{CliLocation, DefaultBackend};
use sluice_tf_controller::{Options, RunLimits, run};
use sluice_tf_core::run_input::PodRef;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use crate::artifacts::Artifacts;
use crate::fake_executor::StoredBundles;

pub(crate) const NAMESPACE: &str = "team";
pub(crate) const SOURCE: &str = "code";
/// Timeout of every wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(100);

/// The executor settings of a controller.
pub(crate) struct ExecutorSettings {
    /// Directory of its runs.
    pub(crate) root: String,
    /// Its pod.
    pub(crate) pod: Option<PodRef>,
    /// How long a run of another lock domain may be silent.
    pub(crate) run_silence: Duration,
}

/// The test environment.
pub(crate) struct TestEnvironment {
    pub(crate) dir: TestDirectory,
    pub(crate) client: Client,
    pub(crate) artifacts: Artifacts,
    /// Whether break-glass sessions are allowed.
    pub(crate) break_glass: bool,
    /// Whether stacks with their own ServiceAccount are run.
    pub(crate) ignore_account: bool,
    /// ServiceAccount of stacks without one; if it is set, inputs are read under the accounts of their stacks.
    pub(crate) default_account: Option<String>,
    /// ServiceAccount of a destroy whose stack has lost its own.
    pub(crate) destroy_account: Option<String>,
    /// The command of the runner; this test binary by default.
    pub(crate) runner: Option<Vec<String>>,
    /// Directory of the installed CLI versions, if any.
    pub(crate) tools: Option<PathBuf>,
    /// The Secret with the keys of stored plans, if they are sealed.
    pub(crate) plan_encryption: Option<ObjectName>,
    /// Host that replaces the one in artifact URLs.
    pub(crate) artifact_host: Option<String>,
    /// Executor settings of the next controller.
    pub(crate) executor_settings: Box<ExecutorSettings>,
    /// Additional environment variables of the CLI.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) kubeconfig: PathBuf,
    /// Whether the next controller allows cross-namespace references.
    pub(crate) cross_namespace: CrossNamespace,
    /// Metrics of the controllers.
    pub(crate) metrics: Metrics,
    /// Limits of runs of the next controller besides their number.
    pub(crate) limits: RunLimits,
    /// Label selector of the stacks of the next controller; empty: all.
    labels: Option<String>,
    controllers: Vec<(Token, JoinHandle<()>)>,
    _served: (ApiServer, TlsServer),
}

impl TestEnvironment {
    /// Creates an environment with a running controller and four concurrent runs.
    pub(crate) async fn new() -> Self {
        let mut env = Self::without_controller().await;
        env.start(4).await;
        env
    }

    /// Creates an environment without a controller. Its API accepts any text for an interval and contradicting fields, as with an older
    /// definition.
    pub(crate) async fn without_controller() -> Self {
        Self::with_definitions(&[]).await
    }

    /// As [`Self::without_controller`], with additional or replaced definitions.
    pub(crate) async fn with_definitions(more: &[Value]) -> Self {
        Self::create(TestDirectory::create().unwrap(), Store::memory(), more).await
    }

    /// As [`Self::without_controller`]; the API's objects are in the file `store`.
    pub(crate) async fn with_stored_objects() -> Self {
        let dir = TestDirectory::create().unwrap();
        let store = Store::file(dir.path().join("store")).unwrap();
        Self::create(dir, store, &[]).await
    }

    async fn create(dir: TestDirectory, store: Store, more: &[Value]) -> Self {
        http::install_crypto();
        let mut definitions = relaxed_definitions().to_vec();
        definitions.retain(|ours| {
            more.iter()
                .all(|one| one["metadata"]["name"] != json!(ours.metadata.name))
        });
        let more: Vec<CustomResourceDefinition> = serde_json::from_value(json!(more)).unwrap();
        definitions.extend(more);
        let embedded = ApiServer::builder()
            .crds(definitions)
            .store(store)
            .build()
            .unwrap();
        let serving = embedded
            .serve("127.0.0.1:0".parse().unwrap(), &dir.path().join("api"))
            .await
            .unwrap();
        let client = embedded.client();
        let namespace: Namespace =
            serde_json::from_value(json!({ "metadata": { "name": NAMESPACE } })).unwrap();
        Api::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        Self {
            kubeconfig: serving.kubeconfig_path.clone(),
            dir,
            client,
            artifacts: Artifacts::start(),
            break_glass: true,
            ignore_account: true,
            default_account: None,
            destroy_account: None,
            runner: None,
            tools: None,
            plan_encryption: None,
            artifact_host: None,
            executor_settings: Box::new(ExecutorSettings {
                root: "runs".to_owned(),
                pod: None,
                run_silence: Duration::from_mins(1),
            }),
            environment: BTreeMap::new(),
            metrics: Metrics::new(),
            limits: RunLimits::of_runs(1),
            labels: None,
            controllers: Vec::new(),
            cross_namespace: CrossNamespace::Denied,
            _served: (embedded, serving),
        }
    }

    /// Starts a controller with this number of concurrent runs.
    pub(crate) async fn start(&mut self, runs: u16) {
        let (executor, ended) = self.executor();
        self.start_with(executor, ended, runs).await;
    }

    /// Starts a controller that stores the bundles of its runs in Secrets.
    pub(crate) async fn start_with_stored_bundles(&mut self) {
        let (executor, ended) = self.executor();
        self.start_with(Arc::new(StoredBundles(executor)), ended, 4).await;
    }

    /// Returns the runner command of this test binary.
    pub(crate) fn own_runner() -> Vec<String> {
        let this = std::env::current_exe().unwrap().display().to_string();
        [&this, "as_runner", "--exact", "--nocapture", "--"]
            .map(str::to_owned)
            .to_vec()
    }

    /// Returns the executor of the next controller.
    pub(crate) fn executor(&self) -> (Arc<ProcessExecutor>, UnboundedReceiver<RunRef>) {
        let root = self.dir.path().join(&self.executor_settings.root);
        let path = sluice_harness::cli::search_path().unwrap();
        let api = self.kubeconfig.display().to_string();
        let process = ProcessOptions {
            command: self.runner.clone().unwrap_or_else(Self::own_runner),
            root,
            tools: self.tools.clone(),
            environment: [
                ("PATH".to_owned(), path),
                ("KUBECONFIG".to_owned(), api.clone()),
                ("KUBE_CONFIG_PATH".to_owned(), api),
                ("DISABLE_WEBHOOK_TLS_VERIFY".to_owned(), "1".to_owned()),
            ]
            .into_iter()
            .chain(self.environment.clone())
            .collect(),
            credentials: None,
            pod: self.executor_settings.pod.clone(),
            artifact_host: self.artifact_host.clone(),
        };
        let (executor, ended) = ProcessExecutor::new(process).unwrap();
        (Arc::new(executor), ended)
    }

    /// Starts a controller for the stacks with these labels.
    pub(crate) async fn start_with_labels(&mut self, labels: &str) {
        self.labels = Some(labels.to_owned());
        self.start(4).await;
    }

    /// Starts a controller with this executor.
    pub(crate) async fn start_with<E: Executor + 'static>(
        &mut self,
        executor: Arc<E>,
        ended: UnboundedReceiver<RunRef>,
        runs: u16,
    ) {
        let settings = client::Settings {
            kubeconfig: Some(self.kubeconfig.clone()),
            ..client::Settings::default()
        };
        let client = client::build(&settings).await.unwrap();
        // Controllers on one machine have separate directories.
        let scratch = format!("scratch-{}", self.controllers.len());
        let mut options = options(&client, runs, self.dir.path().join(scratch));
        options.limits = RunLimits {
            runs,
            ..self.limits.clone()
        };
        options.settings.metrics = self.metrics.clone();
        options.settings.scope.labels.clone_from(&self.labels);
        options.plan_encryption.clone_from(&self.plan_encryption);
        options.tools.clone_from(&self.tools);
        options.break_glass_limit = self.break_glass.then(|| Interval::from_secs(600));
        options.cross_namespace = self.cross_namespace;
        options.ignore_account = self.ignore_account;
        options.default_account.clone_from(&self.default_account);
        options.destroy_account.clone_from(&self.destroy_account);
        options.run_silence = self.executor_settings.run_silence;
        options.artifact_host.clone_from(&self.artifact_host);
        let stop = Token::new();
        let until = stop.clone();
        let task = tokio::spawn(async move {
            run(options, (executor, ended), client, until).await.unwrap();
        });
        self.controllers.push((stop, task));
    }

    /// Stops the latest controller; active runs continue.
    pub(crate) async fn stop(&mut self) {
        let (stop, task) = self.controllers.pop().unwrap();
        stop.cancel();
        tokio::time::timeout(TIMEOUT, task).await.unwrap().unwrap();
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// Returns the definitions without the rules of [`relax_schema`]. They are made once: each test needs them.
fn relaxed_definitions() -> &'static [CustomResourceDefinition] {
    static DEFINITIONS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| {
        let mut definitions = serde_json::to_value(sluice_api::crds()).unwrap();
        relax_schema(&mut definitions);
        serde_json::from_value(definitions).unwrap()
    });
    &DEFINITIONS
}

/// Removes the patterns of intervals and of the tool's version, and the rule about deletion.
fn relax_schema(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(interval) = members.get_mut("interval").and_then(Value::as_object_mut) {
                interval.remove("pattern");
                interval.remove("x-kubernetes-validations");
            }
            let tool = members
                .get_mut("tool")
                .and_then(|tool| tool.pointer_mut("/properties/version"));
            if let Some(version) = tool.and_then(Value::as_object_mut) {
                version.remove("pattern");
            }
            let rules = members
                .get_mut("x-kubernetes-validations")
                .and_then(Value::as_array_mut);
            if let Some(rules) = rules {
                rules.retain(|rule| !rule.to_string().contains("deletionPolicy"));
            }
            members.values_mut().for_each(relax_schema);
        }
        Value::Array(items) => items.iter_mut().for_each(relax_schema),
        _ => {}
    }
}

/// Returns the options of a controller.
pub(crate) fn options(client: &Client, runs: u16, scratch: PathBuf) -> Options {
    let reporter = Reporter {
        component: "tf-controller".to_owned(),
        instance: "test".to_owned(),
        trace: false,
    };
    Options {
        settings: Settings {
            controller: "terraform",
            scope: Scope::default(),
            concurrent: 8,
            backoff: Arc::new(Backoff::default()),
            metrics: Metrics::new(),
            recorder: Recorder::start(client.clone(), reporter, Arc::new(SystemClock)),
            random: Arc::new(Generator::from_system()),
        },
        tracer: Tracer::default(),
        scratch,
        tools: None,
        limits: RunLimits::of_runs(runs),
        cross_namespace: CrossNamespace::Denied,
        ignore_account: true,
        default_account: None,
        destroy_account: None,
        run_deadline: Interval::from_secs(600),
        destroy_files_limit: sluice_tf_controller::args::DESTROY_FILES_LIMIT,
        state_copies: sluice_tf_controller::args::STATE_COPIES,
        run_silence: Duration::from_mins(1),
        plan_encryption: None,
        break_glass_limit: None,
        http_retry: 9,
        cli_location: CliLocation::Outside,
        default_backend: DefaultBackend::Kubernetes,
        artifact_host: None,
        ready: Readiness::default(),
    }
}
