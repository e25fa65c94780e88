//! Flags, files and keys of each component of the node.
//!
//! The node has a network of its own, so all addresses and ports are fixed.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

use rcgen::KeyPair;
use serde_json::json;

use super::{NodeError, Runtime, system};
use crate::tls::{Authority, CertificateError, Identity};

/// The address of the node, of the API server and of the gateway of all pods.
pub(super) const ADDRESS: &str = "10.244.0.1";
/// The address of the API server.
pub(super) const API: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 244, 0, 1), 6443);
const PODS: &str = "10.244.0.0/24";
const FIRST_POD: &str = "10.244.0.10";
const SERVICES: &str = "10.96.0.0/24";
const API_SERVICE: &str = "10.96.0.1";
/// The name of the node.
pub(super) const NAME: &str = "node-1";

/// The authority and the certificates that this process uses; the others are in files.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) authority: Authority,
    pub(super) admin: Identity,
}

impl Keys {
    /// Writes the keys of all components, and a kubeconfig for each client.
    pub(super) fn create(folder: &Path) -> Result<Self, NodeError> {
        let authority = Authority::create()?;
        let write = |name: &str, contents: &str| {
            std::fs::write(folder.join(name), contents).map_err(system("write keys"))
        };
        let identity = |file: &str, name: &str, group: &str, hosts: &[&str]| {
            let issued = authority.issue(name, group, hosts)?;
            write(&format!("{file}.crt"), &issued.certificate)?;
            write(&format!("{file}.key"), &issued.key)?;
            Ok::<(), NodeError>(())
        };
        let api_hosts = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "localhost",
            "127.0.0.1",
            ADDRESS,
            API_SERVICE,
        ];
        identity("api", "kube-apiserver", "tests", &api_hosts)?;
        identity(
            "kubelet-client",
            "kube-apiserver-kubelet-client",
            "system:masters",
            &[],
        )?;
        let clients = [
            (
                "controllers",
                "system:kube-controller-manager",
                "tests",
                [].as_slice(),
            ),
            ("scheduler", "system:kube-scheduler", "tests", &[]),
            (
                "kubelet",
                &format!("system:node:{NAME}"),
                "system:nodes",
                &[NAME, ADDRESS],
            ),
            ("proxy", "system:kube-proxy", "tests", &[]),
            ("coredns", "system:coredns", "tests", &[]),
        ];
        for (file, name, group, hosts) in clients {
            identity(file, name, group, hosts)?;
            write(&format!("{file}.conf"), &kubeconfig(folder, file))?;
        }
        let accounts = KeyPair::generate().map_err(CertificateError::from)?;
        write("accounts.key", &accounts.serialize_pem())?;
        write("accounts.pub", &accounts.public_key_pem())?;
        write("ca.crt", authority.pem())?;
        let admin = authority.issue("admin", "system:masters", &[])?;
        Ok(Self { authority, admin })
    }
}

fn kubeconfig(folder: &Path, name: &str) -> String {
    let file = |suffix: &str| folder.join(format!("{name}.{suffix}"));
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "node",
        "clusters": [{ "name": "node", "cluster": {
            "server": format!("https://{API}"), "certificate-authority": folder.join("ca.crt") } }],
        "users": [{ "name": "node", "user": { "client-certificate": file("crt"), "client-key": file("key") } }],
        "contexts": [{ "name": "node", "context": { "cluster": "node", "user": "node" } }],
    })
    .to_string()
}

pub(super) fn etcd(folder: &Path) -> Vec<String> {
    let (clients, peers) = ("http://127.0.0.1:2379", "http://127.0.0.1:2380");
    vec![
        "--name=node".into(),
        format!("--data-dir={}", folder.join("etcd").display()),
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=node={peers}"),
    ]
}

pub(super) fn apiserver(folder: &Path) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    vec![
        "--etcd-servers=http://127.0.0.1:2379".into(),
        format!("--bind-address={ADDRESS}"),
        format!("--secure-port={}", API.port()),
        format!("--advertise-address={ADDRESS}"),
        format!("--tls-cert-file={}", file("api.crt")),
        format!("--tls-private-key-file={}", file("api.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--kubelet-certificate-authority={}", file("ca.crt")),
        format!("--kubelet-client-certificate={}", file("kubelet-client.crt")),
        format!("--kubelet-client-key={}", file("kubelet-client.key")),
        "--kubelet-preferred-address-types=InternalIP".into(),
        format!("--service-account-key-file={}", file("accounts.pub")),
        format!("--service-account-signing-key-file={}", file("accounts.key")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-cluster-ip-range={SERVICES}"),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--profiling=false".into(),
        "--v=1".into(),
    ]
}

/// Raises the client limits: at the default of 20 requests per second the first pod waits some seconds longer.
pub(super) fn controllers(folder: &Path) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    vec![
        format!("--kubeconfig={}", file("controllers.conf")),
        "--leader-elect=false".into(),
        "--bind-address=127.0.0.1".into(),
        "--secure-port=10257".into(),
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--service-account-private-key-file={}", file("accounts.key")),
        "--use-service-account-credentials=true".into(),
        format!("--flex-volume-plugin-dir={}", file("plugins")),
        "--kube-api-qps=1000".into(),
        "--kube-api-burst=1000".into(),
        "--profiling=false".into(),
        "--v=1".into(),
    ]
}

pub(super) fn scheduler(folder: &Path) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", folder.join("scheduler.conf").display()),
        "--leader-elect=false".into(),
        "--bind-address=127.0.0.1".into(),
        "--secure-port=10259".into(),
        "--kube-api-qps=1000".into(),
        "--kube-api-burst=1000".into(),
        "--profiling=false".into(),
        "--v=1".into(),
    ]
}

/// Writes the files of the container runtime and returns its flags.
pub(super) fn containerd(folder: &Path, runtime: &Runtime) -> Result<Vec<String>, NodeError> {
    let (socket, state) = (socket(folder), folder.display());
    let root = runtime.root.display();
    // Without CAP_SYS_RESOURCE, runc must not lower the out-of-memory score of the pause container.
    let configuration = format!(
        r#"version = 2
root = "{state}/containerd/root"
state = "{state}/containerd/state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{state}/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "{root}/usr/sbin/runc"
        Root = "{state}/containerd/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{root}/usr/lib/cni"
    conf_dir = "{state}/cni"
"#
    );
    let network = json!({ "cniVersion": "0.4.0", "name": "pods", "plugins": [{
        "type": "bridge", "bridge": "pods", "isGateway": true, "ipMasq": false, "hairpinMode": true,
        "ipam": { "type": "host-local", "dataDir": folder.join("addresses"), "routes": [{ "dst": "0.0.0.0/0" }],
            "ranges": [[{ "subnet": PODS, "rangeStart": FIRST_POD, "gateway": ADDRESS }]] },
    }] });
    let write = |name: &str, contents: &str| {
        std::fs::write(folder.join(name), contents).map_err(system("write the configuration of containerd"))
    };
    std::fs::create_dir_all(folder.join("cni")).map_err(system("make a folder"))?;
    write("containerd.toml", &configuration)?;
    write("cni/10-pods.conflist", &network.to_string())?;
    Ok(vec![
        "--config".into(),
        folder.join("containerd.toml").display().to_string(),
        "--log-level=warn".into(),
    ])
}

/// Returns the socket of the container runtime.
pub(super) fn socket(folder: &Path) -> String {
    folder.join("containerd.sock").display().to_string()
}

/// Writes the configuration of the kubelet and returns its flags. A full disk of the machine must not evict pods.
pub(super) fn kubelet(folder: &Path, cgroup: &str) -> Result<Vec<String>, NodeError> {
    let file = |name: &str| folder.join(name).display().to_string();
    let configuration = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "address": ADDRESS, "port": 10250, "healthzPort": 10248, "readOnlyPort": 0,
        "tlsCertFile": file("kubelet.crt"), "tlsPrivateKeyFile": file("kubelet.key"),
        "authentication": { "anonymous": { "enabled": false }, "webhook": { "enabled": true },
            "x509": { "clientCAFile": file("ca.crt") } },
        "authorization": { "mode": "Webhook" },
        "containerRuntimeEndpoint": format!("unix://{}", socket(folder)),
        "cgroupDriver": "cgroupfs", "cgroupRoot": cgroup, "failCgroupV1": false, "failSwapOn": false,
        "podLogsDir": file("pod-logs"), "volumePluginDir": file("plugins"),
        "clusterDNS": [ADDRESS], "clusterDomain": "cluster.local", "resolvConf": "",
        "makeIPTablesUtilChains": false,
        "evictionHard": { "memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
            "imagefs.available": "0%", "imagefs.inodesFree": "0%" },
        "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
        "nodeStatusUpdateFrequency": "5s", "syncFrequency": "10s", "shutdownGracePeriod": "0s", "maxPods": 60,
    });
    std::fs::write(folder.join("kubelet.json"), configuration.to_string())
        .map_err(system("write the configuration of the kubelet"))?;
    Ok(vec![
        format!("--config={}", file("kubelet.json")),
        format!("--kubeconfig={}", file("kubelet.conf")),
        format!("--root-dir={}", file("kubelet")),
        format!("--cert-dir={}", file("kubelet-certificates")),
        format!("--hostname-override={NAME}"),
        format!("--node-ip={ADDRESS}"),
        "--v=2".into(),
    ])
}

/// Writes the configuration of kube-proxy and returns its flags.
pub(super) fn proxy(folder: &Path) -> Result<Vec<String>, NodeError> {
    let configuration = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "mode": "nftables", "clientConnection": { "kubeconfig": folder.join("proxy.conf") },
        "hostnameOverride": NAME, "clusterCIDR": PODS, "nodePortAddresses": ["primary"],
        "healthzBindAddress": "127.0.0.1:10256", "metricsBindAddress": "127.0.0.1:10249",
        "nftables": { "minSyncPeriod": "0s" },
        "conntrack": { "maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s" },
    });
    std::fs::write(folder.join("proxy.json"), configuration.to_string())
        .map_err(system("write the configuration of kube-proxy"))?;
    Ok(vec![
        format!("--config={}", folder.join("proxy.json").display()),
        "--v=2".into(),
    ])
}

/// The rights of `CoreDNS`, which runs beside the pods.
pub(super) const DNS_ROLE: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: coredns }
rules:
  - { apiGroups: [""], resources: [services, pods, namespaces], verbs: [list, watch] }
  - { apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch] }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: coredns }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: coredns }
subjects: [{ apiGroup: rbac.authorization.k8s.io, kind: User, name: system:coredns }]
"#;

/// Writes the configuration of `CoreDNS` and returns its flags.
pub(super) fn dns(folder: &Path) -> Result<Vec<String>, NodeError> {
    let configuration = format!(
        ".:53 {{\n  bind {ADDRESS}\n  errors\n  kubernetes cluster.local in-addr.arpa {{\n    kubeconfig {}\n  }}\n}}\n",
        folder.join("coredns.conf").display()
    );
    std::fs::write(folder.join("Corefile"), configuration)
        .map_err(system("write the configuration of CoreDNS"))?;
    Ok(vec![format!("-conf={}", folder.join("Corefile").display())])
}
