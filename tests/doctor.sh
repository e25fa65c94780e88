#!/bin/sh
# Lists the programs that building and testing need, whether they are installed, and what to install. Exits with 1 if
# `make test` lacks one. A shell script, since it must run on a machine without a compiler.
set -u
missing=0

# report STATE NAME PURPOSE DETAIL
report() { printf '%-8s %-18s %-58s %s\n' "$1" "$2" "$3" "$4"; }

# need NAME PURPOSE PACKAGE [LEVEL]: LEVEL is `missing` (the default) or `optional`.
need() {
  if found=$(command -v "$1"); then
    report found "$1" "$2" "$found"
  else
    report "${4:-missing}" "$1" "$2" "install: $3"
    [ "${4:-missing}" = optional ] || missing=$((missing + 1))
  fi
}

need cargo "build" "Rust 1.90 or newer (https://rustup.rs)"
need rustfmt "make fmt, make test" "rustup component add rustfmt"
need cargo-clippy "make lint, make test" "rustup component add clippy"
need cc "C libraries: libgit2, ring, the fuzzing engine" "a C compiler (Debian: build-essential)"
need c++ "the fuzzing engine (make lint, make fuzz)" "a C++ compiler (Debian: build-essential)"
need make "the make targets" "make"
need bash "the make targets, and a script in the suites" "bash"
need git "the suites' Git servers and clones" "git"
need go "a Kubernetes node, OpenTofu, the trial provider, vectors" "Go 1.25 or newer (https://go.dev/dl/)"
need python3 "the examples of docs/reference/plan-id.md, archives" "python3"
need gpg "signatures" "gnupg"
need gpgconf "signatures" "gnupg"
need dpkg-deb "make images, tests of its packages" "dpkg"
need ssh-keygen "keys and signatures" "openssh-client"
need unshare "Git over SSH: a server with separate users" "util-linux"
need mount "Git over SSH, the node" "util-linux"
need nsenter "the node: programs in its namespaces" "util-linux"
need ip "the node: its network" "iproute2"
need tar "archives compared byte for byte" "tar"
need gzip "archives as others read them, make bench" "gzip"
need sh "processes of the suites" "a POSIX shell"
need curl "downloads of artifacts as by a user" "curl"
need wget "downloads of artifacts as by a user" "wget"
need cp "copies of repositories" "coreutils"
need id "the user of the suites" "coreutils"
need sleep "processes of the suites" "coreutils"
need find "archives compared byte for byte" "findutils"
need kill "processes of the suites" "procps"
need pigz "archives as others read them, make bench" "pigz" optional
need nginx "make bench" "nginx; otherwise make bench downloads it with apt-get and dpkg" optional
need kubectl "commands of users (built under CI)" "kubectl, or Go" optional
need terraform "tests of the CLI with Terraform" "https://developer.hashicorp.com/terraform/install" optional
need tofu "make demo without Go" "https://opentofu.org/docs/intro/install/" optional
need node "artifacts in a bucket of Azure: Azurite, archives" "Node.js 20 or newer (https://nodejs.org)" optional
need npm "artifacts in a bucket of Azure: downloads Azurite" "npm (comes with Node.js)" optional
need zsh "completion in zsh" "zsh; otherwise the first test downloads it with apt-get and dpkg" optional
need fish "completion in fish" "fish; otherwise the first test downloads it with apt-get and dpkg" optional

if sshd=$(command -v sshd) || { [ -x /usr/sbin/sshd ] && sshd=/usr/sbin/sshd; }; then
  report found sshd "Git over SSH" "$sshd"
elif command -v apt-get >/dev/null && command -v dpkg >/dev/null; then
  report optional sshd "Git over SSH" "install: openssh-server; otherwise the first test downloads it with apt-get and dpkg"
else
  report missing sshd "Git over SSH" "install: openssh-server"
  missing=$((missing + 1))
fi

# As root, sshd runs in namespaces with separate users.
if [ "$(id -u)" = 0 ]; then
  if unshare --mount --propagation private --pid --fork --mount-proc true 2>/dev/null; then
    report found namespaces "Git over SSH as root: mount and process namespaces" "unshare works"
  else
    report missing namespaces "Git over SSH as root: mount and process namespaces" "allow them (container: CAP_SYS_ADMIN), or run as another user"
    missing=$((missing + 1))
  fi
fi

echo
if [ "$missing" = 0 ]; then echo "Nothing is missing."; else echo "Missing: $missing"; exit 1; fi
