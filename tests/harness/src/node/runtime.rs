//! The container runtime: Debian's packages, unpacked but not installed.

use std::path::PathBuf;

use crate::control_plane::ComponentError;
use crate::packages;

/// Debian's packages of the container runtime, with the libraries that a machine may lack.
const PACKAGES: [&str; 15] = [
    "containerd",
    "runc",
    "libseccomp2",
    "containernetworking-plugins",
    "nftables",
    "libnftables1",
    "libnftnl11",
    "libmnl0",
    "libjansson4",
    "libedit2",
    "libbsd0",
    "libmd0",
    "libxtables12",
    "libgmp10",
    "libtinfo6",
];

/// The unpacked container runtime.
#[derive(Clone, Debug)]
pub(super) struct Runtime {
    pub(super) root: PathBuf,
}

impl Runtime {
    /// Downloads it once.
    pub(super) fn find() -> Result<Self, ComponentError> {
        let root = packages::unpack("container-runtime", &PACKAGES, &mut |line| eprintln!("{line}"))?;
        Ok(Self { root })
    }

    /// Returns the variables with which its programs find each other and their libraries.
    pub(super) fn environment(&self) -> Vec<String> {
        let root = self.root.display();
        let libraries = packages::library_folder(&self.root, "libseccomp.so").unwrap_or_default();
        let base = packages::library_folder(&self.root, "libtinfo.so").unwrap_or_default();
        vec![
            format!("PATH={root}/usr/bin:{root}/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin"),
            format!("LD_LIBRARY_PATH={}:{}", libraries.display(), base.display()),
        ]
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.root.join("usr/bin").join(name)
    }
}
