//! The programs that the suites build, and what each is built from.

/// A program that can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// The store of the API server.
    Etcd,
    /// The Kubernetes API.
    KubeApiserver,
    /// Kubernetes' own controllers, for garbage collection and namespaces.
    KubeControllerManager,
    /// Assigns pods to the node.
    KubeScheduler,
    /// Runs pods.
    Kubelet,
    /// Routes service addresses to pods.
    KubeProxy,
    /// Resolves service names.
    Coredns,
    /// The process that holds the namespaces of a pod.
    Pause,
    /// The Kubernetes command-line client.
    Kubectl,
    /// The installer of charts.
    Helm,
    /// Checks and tests the rules of Prometheus.
    Promtool,
    /// Downloads an artifact as Flux's controllers do; its source is in this repository.
    ArtifactConsumer,
    /// A controller of controller-runtime; its source is in this repository.
    ControllerExample,
    /// Checks a dashboard by Grafana's schema; its source is in this repository.
    DashboardCheck,
    /// What a hostile module runs; its source is in this repository.
    Attack,
    /// OpenTofu.
    Tofu,
    /// Flux's source-controller.
    FluxSourceController,
    /// Flux's command-line client.
    Flux,
    /// The provider of the suites; its source is in this repository.
    TrialProvider,
}

impl Tool {
    /// Every program, ordered by build time.
    pub const ALL: [Self; 19] = [
        Self::Pause,
        Self::Attack,
        Self::ArtifactConsumer,
        Self::TrialProvider,
        Self::DashboardCheck,
        Self::Etcd,
        Self::ControllerExample,
        Self::Promtool,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kubelet,
        Self::KubeProxy,
        Self::Coredns,
        Self::Kubectl,
        Self::Helm,
        Self::Tofu,
        Self::FluxSourceController,
        Self::Flux,
    ];

    /// Returns the program's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.source().name
    }

    /// Returns the program with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    pub(super) const fn source(self) -> Source {
        match self {
            Self::Etcd => Source::of("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
            Self::KubeApiserver => {
                Source::of_kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver")
            }
            Self::KubeControllerManager => Source::of_kubernetes(
                "kube-controller-manager",
                "k8s.io/kubernetes/cmd/kube-controller-manager",
            ),
            Self::KubeScheduler => {
                Source::of_kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler")
            }
            Self::Kubelet => Source::of_kubernetes("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
            Self::KubeProxy => Source::of_kubernetes("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
            Self::Kubectl => Source::of_kubernetes("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
            Self::Coredns => Source::of("coredns", "coredns", "sluice.dev/assets/coredns"),
            Self::Pause => Source::of("pause", "pause", "sluice.dev/assets/pause"),
            Self::Helm => Source {
                linker_flags: "-s -w -X helm.sh/helm/v4/internal/version.version=v4.2.2",
                ..Source::of("helm", "helm", "helm.sh/helm/v4/cmd/helm")
            },
            Self::Promtool => Source {
                // Without it, promtool contains the service discovery of every cloud.
                tags: "remove_all_sd",
                ..Source::of(
                    "promtool",
                    "promtool",
                    "github.com/prometheus/prometheus/cmd/promtool",
                )
            },
            Self::ArtifactConsumer => {
                Source::of("artifact-consumer", "consumer", "sluice.dev/assets/consumer")
            }
            Self::ControllerExample => {
                Source::of("controller-example", "controller", "sluice.dev/assets/controller")
            }
            Self::DashboardCheck => Source::of("dashboard-check", "dashboard", "sluice.dev/assets/dashboard"),
            Self::Attack => Source::of("attack", "attack", "sluice.dev/assets/attack"),
            Self::Tofu => Source {
                linker_flags: "-s -w -X github.com/opentofu/opentofu/version.dev=no",
                ..Source::of("tofu", "tofu", "github.com/opentofu/opentofu/cmd/tofu")
            },
            Self::FluxSourceController => Source::of(
                "flux-source-controller",
                "flux",
                "github.com/fluxcd/source-controller",
            ),
            Self::Flux => Source {
                linker_flags: "-s -w -X main.VERSION=2.9.4",
                missing_file: "cmd/flux/manifests/none.yaml",
                ..Source::of("flux", "flux-cli", "github.com/fluxcd/flux2/v2/cmd/flux")
            },
            Self::TrialProvider => Source::of("terraform-provider-trial", "trial", "sluice.dev/assets/trial"),
        }
    }
}

/// What a program is built from.
pub(super) struct Source {
    pub(super) name: &'static str,
    /// The folder in `tests/assets` with the module that pins its versions.
    pub(super) module: &'static str,
    pub(super) package: &'static str,
    pub(super) linker_flags: &'static str,
    /// Build tags.
    pub(super) tags: &'static str,
    /// A file without which Go does not build the published module; empty if there is none.
    pub(super) missing_file: &'static str,
}

/// Without these flags, the programs report `v0.0.0-master`.
const KUBERNETES_FLAGS: &str = concat!(
    "-s -w -X k8s.io/component-base/version.gitVersion=v1.34.4",
    " -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34"
);

impl Source {
    const fn of(name: &'static str, module: &'static str, package: &'static str) -> Self {
        Self {
            name,
            module,
            package,
            linker_flags: "-s -w",
            tags: "",
            missing_file: "",
        }
    }

    const fn of_kubernetes(name: &'static str, package: &'static str) -> Self {
        Self {
            linker_flags: KUBERNETES_FLAGS,
            ..Self::of(name, "kube", package)
        }
    }
}
