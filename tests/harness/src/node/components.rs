//! Flags, files and keys of each component of the node.
//!
//! The node has a network of its own, so all addresses and ports are fixed.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

use serde_json::json;

use super::Runtime;
use crate::control_plane::{self, ComponentError, Durability, Keys, system};

/// The address of the node, of the API server and of the gateway of all pods.
pub const ADDRESS: &str = "10.244.0.1";
/// The address of the API server.
pub(super) const API: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 244, 0, 1), 6443);
/// The ports of etcd for clients and for peers.
const ETCD: u16 = 2379;
const ETCD_PEERS: u16 = 2380;
const PODS: &str = "10.244.0.0/24";
const FIRST_POD: &str = "10.244.0.10";
const SERVICES: &str = "10.96.0.0/24";
const API_SERVICE: &str = "10.96.0.1";
/// The name of the node.
pub(super) const NAME: &str = "node-1";

/// Writes the keys of all components, and a kubeconfig for each client of the API.
pub(super) fn create_keys(folder: &Path) -> Result<Keys, ComponentError> {
    let hosts = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "localhost",
        "127.0.0.1",
        ADDRESS,
        API_SERVICE,
    ];
    let keys = Keys::create(folder, &hosts)?;
    let kubelet_client = ("kube-apiserver-kubelet-client", "system:masters");
    keys.issue(folder, "kubelet-client", kubelet_client, &[])?;
    let node = format!("system:node:{NAME}");
    let clients = [
        (
            "controllers",
            ("system:kube-controller-manager", "tests"),
            [].as_slice(),
        ),
        ("scheduler", ("system:kube-scheduler", "tests"), &[]),
        ("kubelet", (&node, "system:nodes"), &[NAME, ADDRESS]),
        ("proxy", ("system:kube-proxy", "tests"), &[]),
        ("coredns", ("system:coredns", "tests"), &[]),
    ];
    for (file, identity, hosts) in clients {
        keys.issue(folder, file, identity, hosts)?;
        let written = std::fs::write(folder.join(format!("{file}.conf")), kubeconfig(folder, file));
        written.map_err(system("write keys"))?;
    }
    Ok(keys)
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
    control_plane::etcd(folder, ETCD, ETCD_PEERS, Durability::Process)
}

pub(super) fn apiserver(folder: &Path) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut flags = control_plane::apiserver(folder, API, ETCD);
    flags.extend([
        format!("--advertise-address={ADDRESS}"),
        format!("--kubelet-certificate-authority={}", file("ca.crt")),
        format!("--kubelet-client-certificate={}", file("kubelet-client.crt")),
        format!("--kubelet-client-key={}", file("kubelet-client.key")),
        "--kubelet-preferred-address-types=InternalIP".into(),
        format!("--service-cluster-ip-range={SERVICES}"),
        "--authorization-mode=Node,RBAC".into(),
        // As kubeadm sets it: Pod Security decides about privileged pods.
        "--allow-privileged=true".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
    ]);
    flags
}

pub(super) fn controllers(folder: &Path) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut flags = control_plane::api_client(&folder.join("controllers.conf"), 10257);
    flags.extend([
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--service-account-private-key-file={}", file("accounts.key")),
        "--use-service-account-credentials=true".into(),
        format!("--flex-volume-plugin-dir={}", file("plugins")),
    ]);
    flags
}

pub(super) fn scheduler(folder: &Path) -> Vec<String> {
    control_plane::api_client(&folder.join("scheduler.conf"), 10259)
}

/// Writes the files of the container runtime and returns its flags.
pub(super) fn containerd(folder: &Path, runtime: &Runtime) -> Result<Vec<String>, ComponentError> {
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
pub(super) fn kubelet(folder: &Path, cgroup: &str) -> Result<Vec<String>, ComponentError> {
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
pub(super) fn proxy(folder: &Path) -> Result<Vec<String>, ComponentError> {
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
pub(super) fn dns(folder: &Path) -> Result<Vec<String>, ComponentError> {
    let configuration = format!(
        ".:53 {{\n  bind {ADDRESS}\n  errors\n  kubernetes cluster.local in-addr.arpa {{\n    kubeconfig {}\n  }}\n}}\n",
        folder.join("coredns.conf").display()
    );
    std::fs::write(folder.join("Corefile"), configuration)
        .map_err(system("write the configuration of CoreDNS"))?;
    Ok(vec![format!("-conf={}", folder.join("Corefile").display())])
}
