#!/bin/sh
# Says which programs this machine has that building and testing need, which are missing, and what to install. Ends with 1
# when one is missing that `make test` needs. A shell script, since a machine without a compiler has to be able to run it.
set -u
missing=0

# say STATE NAME WHAT-FOR DETAIL
say() { printf '%-8s %-18s %-58s %s\n' "$1" "$2" "$3" "$4"; }

# need NAME WHAT-FOR PACKAGE [LEVEL]: LEVEL is `missing` (the default) or `optional`.
need() {
  if found=$(command -v "$1"); then
    say there "$1" "$2" "$found"
  else
    say "${4:-missing}" "$1" "$2" "install: $3"
    [ "${4:-missing}" = optional ] || missing=$((missing + 1))
  fi
}

need cargo "build" "Rust 1.90 or newer (https://rustup.rs)"
need rustfmt "make fmt, make test" "rustup component add rustfmt"
need cargo-clippy "make lint, make test" "rustup component add clippy"
need cc "C libraries: libgit2, ring, the fuzzing engine" "a C compiler (Debian: build-essential)"
need c++ "the fuzzing engine (make lint, make fuzz)" "a C++ compiler (Debian: build-essential)"
need make "the verbs" "make"
need bash "the verbs, and a script in the suites" "bash"
need git "the suites' Git servers and clones" "git"
need go "etcd, kube-apiserver, OpenTofu, the trial provider, vectors" "Go 1.25 or newer (https://go.dev/dl/)"
need python3 "the examples of docs/plan-id.md" "python3"
need gpg "signatures" "gnupg"
need gpgconf "signatures" "gnupg"
need ssh-keygen "keys and signatures" "openssh-client"
need unshare "Git over SSH: a server with its own users" "util-linux"
need mount "Git over SSH" "util-linux"
need tar "archives that are compared byte for byte" "tar"
need sh "what the suites start" "a POSIX shell"
need curl "what a user does with artifacts" "curl"
need wget "what a user does with artifacts" "wget"
need cp "copies of repositories" "coreutils"
need id "the account of the suites" "coreutils"
need sleep "what the suites start" "coreutils"
need find "archives that are compared byte for byte" "findutils"
need kill "what the suites start" "procps"
need kubectl "kubectl as users type it (under CI it is built)" "kubectl, or Go" optional
need terraform "the tests that start a CLI, once more with Terraform" "https://developer.hashicorp.com/terraform/install" optional
need tofu "make demo without Go" "https://opentofu.org/docs/intro/install/" optional

if sshd=$(command -v sshd) || { [ -x /usr/sbin/sshd ] && sshd=/usr/sbin/sshd; }; then
  say there sshd "Git over SSH" "$sshd"
elif command -v apt-get >/dev/null && command -v dpkg >/dev/null; then
  say optional sshd "Git over SSH" "install: openssh-server; otherwise the first test gets it by apt-get and dpkg"
else
  say missing sshd "Git over SSH" "install: openssh-server"
  missing=$((missing + 1))
fi

# Only as root: sshd then gets users of its own.
if [ "$(id -u)" = 0 ]; then
  if unshare --mount --propagation private --pid --fork --mount-proc true 2>/dev/null; then
    say there namespaces "Git over SSH as root: mount and process namespaces" "unshare works"
  else
    say missing namespaces "Git over SSH as root: mount and process namespaces" "allow them (container: CAP_SYS_ADMIN), or do not be root"
    missing=$((missing + 1))
  fi
fi

echo
if [ "$missing" = 0 ]; then echo "Nothing is missing."; else echo "Missing: $missing"; exit 1; fi
