//! The namespaces of a node: its own mounts, processes and network, and the access of this process to them.
//!
//! Nothing of the machine changes: no interface, route, mount or kernel setting. The end of the first process of the
//! sandbox ends every other one, with its mounts and its network.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream as StdTcpStream};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::TcpStream;

use crate::process::Process;

/// Time limit for the start of the first process.
const START_LIMIT: Duration = Duration::from_mins(1);

/// The first process of the sandbox. `$1` is the folder of the node, `$2` the address of the node with its prefix length, `$3`
/// the program that stays as process 1 and reaps orphans.
///
/// The kubelet requires some kernel settings and would change them for the whole machine: it gets files that have them. A cloud serves the
/// metadata of a node at 169.254.169.254: pods reach this address, but nothing listens.
const INIT: &str = r#"
set -e
for place in /run /var/lib /var/log; do mount -t tmpfs tmpfs "$place"; done
mkdir -p "$1/settings"
while read -r setting value; do
  [ -e "/proc/sys/$setting" ] || continue
  echo "$value" > "$1/settings/${setting##*/}"
  mount --bind "$1/settings/${setting##*/}" "/proc/sys/$setting"
done <<SETTINGS
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
SETTINGS
ip link set lo up
ip link add pods type bridge
ip address add "$2" dev pods
ip address add 169.254.169.254/32 dev lo
ip link set pods up
echo 1 > /proc/sys/net/ipv4/ip_forward
[ ! -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables
touch "$1/ready"
exec "$3"
"#;

/// Own namespaces with a bridge.
#[derive(Debug)]
pub(super) struct Sandbox {
    /// Waits for the first process and kills it at its own end.
    parent: Process,
    /// Process id of the first process, as the machine counts.
    init: i32,
    folder: PathBuf,
    /// Environment of the programs.
    environment: Vec<String>,
}

impl Sandbox {
    /// Creates the namespaces. `address` is that of the bridge, `pause` the program that stays as first process. Each program
    /// gets the variables of `environment`.
    pub(super) fn start(
        folder: &Path,
        address: &str,
        pause: &Path,
        environment: Vec<String>,
    ) -> io::Result<Self> {
        let arguments: Vec<String> = [
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            INIT,
            "init",
        ]
        .map(str::to_owned)
        .into_iter()
        .chain([
            folder.display().to_string(),
            address.to_owned(),
            pause.display().to_string(),
        ])
        .collect();
        let log = folder.join("sandbox.log");
        let mut parent = Process::start(Path::new("unshare"), &arguments, &log, None)?;
        let deadline = Instant::now() + START_LIMIT;
        while !folder.join("ready").exists() {
            if parent.has_ended() || Instant::now() > deadline {
                let text = format!("the namespaces of the node were not made: {}", parent.log_tail(5));
                return Err(io::Error::other(text));
            }
            thread::sleep(Duration::from_millis(10));
        }
        let children = parent.children();
        let init = children.first().copied();
        let init = init.ok_or_else(|| io::Error::other("the sandbox has no first process"))?;
        Ok(Self {
            parent,
            init,
            folder: folder.to_owned(),
            environment,
        })
    }

    /// Starts a program in the network of the sandbox, with the files and processes of the machine.
    pub(super) fn start_in_network(
        &self,
        name: &str,
        program: &Path,
        arguments: &[String],
    ) -> io::Result<Process> {
        self.enter(&["-n"], name, program, arguments)
    }

    /// Starts a program in all namespaces of the sandbox. Its process is a child of the returned one.
    pub(super) fn start_inside(
        &self,
        name: &str,
        program: &Path,
        arguments: &[String],
    ) -> io::Result<Process> {
        self.enter(&["-n", "-m", "-p", "--wd=/"], name, program, arguments)
    }

    fn enter(
        &self,
        namespaces: &[&str],
        name: &str,
        program: &Path,
        arguments: &[String],
    ) -> io::Result<Process> {
        let mut all = self.environment.clone();
        all.extend(["nsenter".to_owned(), "-t".to_owned(), self.init.to_string()]);
        all.extend(namespaces.iter().map(|namespace| (*namespace).to_owned()));
        all.push(program.display().to_string());
        all.extend_from_slice(arguments);
        Process::start(
            Path::new("env"),
            &all,
            &self.folder.join(format!("{name}.log")),
            None,
        )
    }

    /// Forwards a free port of loopback to an address in the sandbox. Returns the port.
    pub(super) fn forward(&self, target: SocketAddrV4) -> io::Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        start_gateway(listener, target.into(), Some(self.open_network()?))?;
        Ok(port)
    }

    /// Forwards a free port of all addresses of the sandbox to an address of this machine. Returns the port.
    ///
    /// The gateway accepts from the sandbox and connects outside.
    pub(super) fn expose(&self, target: SocketAddr) -> io::Result<u16> {
        let listener = self.network()?.listen()?;
        let port = listener.local_addr()?.port();
        start_gateway(listener, target, None)?;
        Ok(port)
    }

    /// Returns the network of the sandbox.
    pub(super) fn network(&self) -> io::Result<Network> {
        self.open_network().map(|file| Network(Arc::new(file)))
    }

    fn open_network(&self) -> io::Result<File> {
        File::open(format!("/proc/{}/ns/net", self.init))
    }

    /// Runs a future on a thread of its own, in the network of the sandbox. The thread ends with the future or with this process.
    pub(super) fn start_thread<F>(
        &self,
        name: &str,
        serve: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<()>
    where
        F: Future<Output = io::Result<()>> + 'static,
    {
        start_thread(name.to_owned(), Some(self.open_network()?), serve)
    }

    /// Returns the variables that each program of the sandbox gets.
    pub(super) fn environment(&self) -> &[String] {
        &self.environment
    }

    /// Kills the first process, and with it all others.
    pub(super) fn kill(&self) {
        self.parent.kill_descendants();
    }
}

/// The network of a node. A socket stays in the network in which it was made, so this process can use it.
#[derive(Clone, Debug)]
pub struct Network(Arc<File>);

impl Network {
    /// Listens at a free port of all addresses of the node. Connections of pods have the addresses of the pods.
    ///
    /// # Errors
    /// When the network cannot be entered.
    pub fn listen(&self) -> io::Result<TcpListener> {
        run_in_network(self.0.try_clone()?, || {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))
        })?
    }

    /// Opens a connection to a pod or a component of the node, within a time limit. It blocks.
    ///
    /// # Errors
    /// When the network cannot be entered, or nothing accepts the connection.
    pub fn connect(&self, address: SocketAddr, limit: Duration) -> io::Result<StdTcpStream> {
        run_in_network(self.0.try_clone()?, move || {
            StdTcpStream::connect_timeout(&address, limit)
        })?
    }
}

/// Acts in a network, on a thread of its own: the thread of the caller stays in its network.
pub(super) fn run_in_network<T: Send + 'static>(
    network: File,
    act: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let entered = thread::spawn(move || {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(act())
    });
    entered
        .join()
        .map_err(|_| io::Error::other("the thread in the sandbox failed"))?
}

/// Starts a thread that forwards connections, in another network if there is one. It ends with this process.
fn start_gateway(listener: TcpListener, target: SocketAddr, network: Option<File>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    start_thread(format!("the gateway to {target}"), network, move || {
        forward_connections(listener, target)
    })
}

/// Starts a thread that runs a future, in another network if there is one.
fn start_thread<F>(
    name: String,
    network: Option<File>,
    serve: impl FnOnce() -> F + Send + 'static,
) -> io::Result<()>
where
    F: Future<Output = io::Result<()>> + 'static,
{
    let run = move || {
        if let Some(network) = network {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(serve())
    };
    let builder = thread::Builder::new().name("node".to_owned());
    builder.spawn(move || {
        if let Err(error) = run() {
            eprintln!("node: {name} ended: {error}");
        }
    })?;
    Ok(())
}

async fn forward_connections(listener: TcpListener, target: SocketAddr) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (mut client, _) = listener.accept().await?;
        tokio::spawn(async move {
            if let Ok(mut server) = TcpStream::connect(target).await {
                // A connection that breaks is closed on both sides.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}

/// `$1` is the folder of the node, the others are its cgroups. A cgroup becomes empty a moment after its last process.
const CLEANUP: &str = r#"
read -r _
folder=$1; shift
for try in $(seq 100); do
  left=
  for group in "$@"; do
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
    [ ! -d "$group" ] || left=1
  done
  [ -n "$left" ] || break
  sleep 0.1
done
rm -rf -- "$folder"
"#;

/// The cgroups of the node's pods. A shell removes them and the folder of the node, also when the tests are killed.
#[derive(Debug)]
pub(super) struct Cgroups {
    /// The name below the mount of each controller.
    pub(super) name: String,
    cleanup: Child,
}

impl Cgroups {
    /// Creates a cgroup in each controller of version 1, or one of version 2. A cpuset without processors admits no process.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("sluice-{name}");
        let mount = Path::new("/sys/fs/cgroup");
        let mut groups = Vec::new();
        if mount.join("cgroup.controllers").exists() {
            groups.push(mount.join(&name));
        } else {
            let controllers = fs::read_dir(mount)?.filter_map(|entry| Some(entry.ok()?.path()));
            let controllers = controllers.filter(|controller| controller.join("cgroup.procs").exists());
            groups.extend(controllers.map(|controller| controller.join(&name)));
        }
        for group in &groups {
            fs::create_dir_all(group)?;
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let of_parent = group.with_file_name(file);
                if of_parent.exists() {
                    fs::write(group.join(file), fs::read(of_parent)?)?;
                }
            }
        }
        let cleanup = Command::new("sh")
            .args(["-c", CLEANUP, "cleanup"])
            .arg(folder)
            .args(&groups)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self {
            name: format!("/{name}"),
            cleanup,
        })
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        // This closes the pipe first.
        drop(self.cleanup.wait());
    }
}
