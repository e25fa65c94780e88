//! What the suites stand on: real git over real HTTP, real etcd and kube-apiserver, the real CLI.
