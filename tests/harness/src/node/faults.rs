//! Faults of a node: of its components, its API and the processes of its pods; and its network, for servers that cause faults.

use std::io;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

use super::{CTR_TIMEOUT, Component, Network, Node, components};
use crate::control_plane::{self, ComponentError, lock, system};
use crate::gobuild::{self, Tool};
use crate::process::Process;

impl Node {
    /// Kills a component; the others continue.
    pub fn kill_component(&self, component: Component) {
        if let Some(process) = lock(&self.components).remove(&component) {
            process.kill_descendants();
        }
    }

    /// Starts the API server with these flags too, after [`Node::kill_component`]. Does not wait until it is ready.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_api_with(&self, more: &[&str]) -> Result<(), ComponentError> {
        let mut flags = components::apiserver(self.folder.path());
        flags.extend(control_plane::audit(self.folder.path())?);
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        let program = gobuild::binary_path(Tool::KubeApiserver)?;
        let started = self.sandbox.start_in_network("kube-apiserver", &program, &flags);
        let started = started.map_err(system("start a component"))?;
        lock(&self.components).insert(Component::ApiServer, started);
        Ok(())
    }

    /// Pauses the API server (SIGSTOP): connections stay open but get no response.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pause_api(&self) -> Result<(), ComponentError> {
        control_plane::signal_api(lock(&self.components).get(&Component::ApiServer), Process::stop)
    }

    /// Resumes the API server after [`Node::pause_api`].
    ///
    /// # Errors
    /// When it is not running.
    pub fn resume_api(&self) -> Result<(), ComponentError> {
        control_plane::signal_api(lock(&self.components).get(&Component::ApiServer), |api| {
            api.signal(Signal::CONT)
        })
    }

    /// Kills the processes of a container; `id` is its `containerID` in the status of the pod, without the scheme.
    ///
    /// # Errors
    /// When the container does not run.
    pub async fn kill_container(&self, id: &str) -> Result<(), ComponentError> {
        let kill = ["tasks", "kill", "--all", "--signal", "SIGKILL", id];
        self.run_ctr("kill a container", &kill).await
    }

    /// Kills the processes of a container whose program has this name; the others continue.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn kill_program(&self, id: &str, name: &str) -> Result<(), ComponentError> {
        signal_processes(id, Some(name), Signal::KILL)
    }

    /// Pauses the processes of a container (SIGSTOP): its connections stay open but get no response.
    ///
    /// # Errors
    /// When the container does not run.
    pub fn pause_container(&self, id: &str) -> Result<(), ComponentError> {
        signal_processes(id, None, Signal::STOP)
    }

    /// Resumes the processes of a container after [`Node::pause_container`].
    ///
    /// # Errors
    /// When the container does not run.
    pub fn resume_container(&self, id: &str) -> Result<(), ComponentError> {
        signal_processes(id, None, Signal::CONT)
    }

    /// Gives an image another name.
    ///
    /// # Errors
    /// When there is no such image.
    pub async fn tag_image(&self, name: &str, other: &str) -> Result<(), ComponentError> {
        let tag = ["images", "tag", "--force", name, other];
        self.run_ctr("tag an image", &tag).await
    }

    async fn run_ctr(&self, what: &'static str, arguments: &[&str]) -> Result<(), ComponentError> {
        let mut ctr = self.start_ctr(arguments)?;
        let ended = ctr.wait_at_most(CTR_TIMEOUT).await;
        let status = ended.map_err(system("wait for ctr"))?;
        if status.success() {
            return Ok(());
        }
        Err(system(what)(io::Error::other(ctr.log_tail(3))))
    }

    /// Returns the network of the node, for a server or a client of a test in it.
    ///
    /// # Errors
    /// When the node has ended.
    pub fn network(&self) -> Result<Network, ComponentError> {
        self.sandbox
            .network()
            .map_err(system("open the network of the node"))
    }

    /// Returns the folder with the volumes of a pod.
    #[must_use]
    pub fn pod_folder(&self, uid: &str) -> PathBuf {
        self.folder.path().join("kubelet/pods").join(uid)
    }
}

/// Signals the processes of a container, or those of one program in it.
fn signal_processes(id: &str, program: Option<&str>, signal: Signal) -> Result<(), ComponentError> {
    let processes = processes(id, program).map_err(system("list processes"))?;
    let signalled = processes
        .into_iter()
        .filter(|pid| kill_process(*pid, signal).is_ok());
    if signalled.count() == 0 {
        let what = program.map_or_else(
            || "has no process".to_owned(),
            |name| format!("does not run {name}"),
        );
        return Err(system("signal a container")(io::Error::other(format!(
            "{id} {what}"
        ))));
    }
    Ok(())
}

/// Returns the processes of a container, or those of one program in it.
pub(super) fn processes(id: &str, program: Option<&str>) -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc")?.flatten() {
        let read = |file: &str| std::fs::read_to_string(process.path().join(file)).unwrap_or_default();
        // The container runtime names the cgroup of a container after it.
        if !read("cgroup").contains(id) || program.is_some_and(|name| read("comm").trim_end() != name) {
            continue;
        }
        let pid = process.file_name().to_str().and_then(|pid| pid.parse().ok());
        found.extend(pid.and_then(Pid::from_raw));
    }
    Ok(found)
}
