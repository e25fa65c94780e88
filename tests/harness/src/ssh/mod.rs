//! A real OpenSSH server on loopback that serves Git, and keys created by the real `ssh-keygen`.
//!
//! `sshd` is the installed one, or the distribution's package unpacked into cargo's target folder ([`package`]). It has its
//! own configuration, host keys and authorized keys, and writes nothing outside its folder. As root it runs in its own
//! namespaces: sshd then requires a user and a folder that some machines lack. The namespaces also end all of its
//! descendants.

mod keys;
mod package;

use std::fs;
use std::io::{self, BufRead, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub use keys::{Key, KeyError, certify};
pub use package::MissingServer;
use package::Program;
use tempfile::TempDir;

use crate::git::Repository;
use crate::process::Process;

/// Start-up timeout.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum number of starts when the port is taken.
const MAX_STARTS: u32 = 5;
/// Wraps each command of a client: logs it, injects faults, and ignores the machine's Git configuration.
const WRAPPER_SCRIPT: &str = include_str!("wrapper.sh");
/// Provides what sshd requires as root: the users `git` and `sshd` and the folder `/run/sshd`.
const NAMESPACE_SCRIPT: &str = r#"
mount --bind "$1/passwd" /etc/passwd && mount -t tmpfs -o mode=0755 sluice /run && mkdir -m 0755 /run/sshd || exit 99
shift
exec "$@"
"#;

/// Why the server is not available.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// sshd is not installed and cannot be downloaded.
    #[error(transparent)]
    Missing(#[from] MissingServer),
    /// A key cannot be created.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// An operation on a file or process failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// It ended, or did not respond in time.
    #[error("sshd did not start; the end of its log:\n{0}")]
    NotReady(String),
}

/// A fault of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Never responds.
    Hung,
    /// Stalls after this many bytes.
    Stalled(u64),
    /// A signal ends the command after this many bytes.
    Truncated(u64),
    /// The command fails with an error message.
    Failed,
    /// The connection closes instead of the next response; later ones work.
    ClosedOnce,
    /// `GIT_PROTOCOL` is not passed on, as by servers that do not accept it.
    Version0,
}

/// A command that a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutedCommand {
    /// The client's port, which distinguishes connections.
    pub connection: u16,
    /// The command line.
    pub command: String,
}

/// A running server; dropping it ends the process.
#[derive(Debug)]
pub struct SshServer {
    process: Option<Process>,
    folder: TempDir,
    port: u16,
    user: String,
    host_keys: Vec<Key>,
}

impl SshServer {
    /// Starts a server with these host keys and further lines of `sshd_config`. Blocks until it responds.
    ///
    /// # Errors
    /// When there is no sshd, or it does not start.
    pub fn start(host_keys: Vec<Key>, lines: &[&str]) -> Result<Self, SshError> {
        let program = package::find(&mut |line| eprintln!("{line}"))?;
        let folder = TempDir::with_prefix("sshd-").map_err(system("make a folder"))?;
        let root = rustix::process::getuid().is_root();
        let user = if root { "git".to_owned() } else { current_user()? };
        prepare(folder.path(), &host_keys).map_err(system("write the server's files"))?;
        let mut server = Self {
            process: None,
            folder,
            port: 0,
            user,
            host_keys,
        };
        for attempt in 1.. {
            server.port = free_port().map_err(system("find a free port"))?;
            match server.run(&program, lines, root) {
                Err(SshError::NotReady(_)) if attempt < MAX_STARTS => {}
                other => return other.map(|()| server),
            }
        }
        Err(SshError::NotReady(String::new()))
    }

    fn run(&mut self, program: &Program, lines: &[&str], root: bool) -> Result<(), SshError> {
        let file = |name: &str| self.folder.path().join(name);
        fs::write(file("sshd_config"), self.configuration(program, lines))
            .map_err(system("write sshd_config"))?;
        let (log, text) = (file("log"), |path: PathBuf| path.display().to_string());
        let mut arguments: Vec<String> = Vec::new();
        if root {
            let namespaces = [
                "unshare",
                "--mount",
                "--propagation",
                "private",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ];
            arguments.extend(namespaces.map(str::to_owned));
            arguments.extend(["sh", "-c", NAMESPACE_SCRIPT, "sshd"].map(str::to_owned));
            arguments.push(text(self.folder.path().to_owned()));
        }
        arguments.push("env".into());
        if let Some(libraries) = &program.libraries {
            arguments.push(format!("LD_LIBRARY_PATH={}", libraries.display()));
        }
        arguments.extend([
            text(program.sshd.clone()),
            "-D".into(),
            "-e".into(),
            "-f".into(),
            text(file("sshd_config")),
        ]);
        let command = crate::cli::on_path(&arguments[0]).unwrap_or_else(|| arguments[0].clone().into());
        let mut process = Process::start(&command, &arguments[1..], &log, Some(self.folder.path()))
            .map_err(system("start sshd"))?;
        let started = Instant::now();
        while !responds(self.address()) {
            if process.has_ended() || started.elapsed() > READY_TIMEOUT {
                return Err(SshError::NotReady(process.log_tail(10)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.process = Some(process);
        Ok(())
    }

    fn configuration(&self, program: &Program, lines: &[&str]) -> String {
        let folder = self.folder.path().display();
        let own = format!(
            "ListenAddress 127.0.0.1\nPort {}\nAuthorizedKeysFile {folder}/authorized_keys\nPidFile none\n\
             StrictModes no\nUsePAM no\nAcceptEnv GIT_PROTOCOL\nPermitRootLogin yes\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nLogLevel VERBOSE\nForceCommand {folder}/wrapper.sh\n",
            self.port
        );
        // sshd uses the first line for each option.
        let mut text = lines.join("\n") + "\n" + &own;
        let mut add = |line: &str| {
            text.push_str(line);
            text.push('\n');
        };
        program.configuration.iter().for_each(|line| add(line));
        for number in 0..self.host_keys.len() {
            add(&format!("HostKey {folder}/host-{number}"));
            if self
                .folder
                .path()
                .join(format!("host-{number}-cert.pub"))
                .exists()
            {
                add(&format!("HostCertificate {folder}/host-{number}-cert.pub"));
            }
        }
        text
    }

    /// Returns its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns the user name to log in with: `git` as root, else the user of the tests.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Serves a repository; returns its URL.
    ///
    /// # Errors
    /// When the link to it cannot be created.
    pub fn serve(&self, name: &str, repository: &Repository) -> Result<String, SshError> {
        let link = self.folder.path().join("home").join(format!("{name}.git"));
        symlink(repository.git_dir(), &link).map_err(system("link the repository"))?;
        Ok(self.url(&link.display().to_string()))
    }

    /// Returns the URL of an absolute path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("ssh://{}@{}{path}", self.user, self.address())
    }

    /// Authorizes the owner of this public key.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn authorize(&self, key: &Key) -> Result<(), SshError> {
        let path = self.folder.path().join("authorized_keys");
        let mut file = fs::OpenOptions::new()
            .append(true)
            .open(path)
            .map_err(system("authorize a key"))?;
        writeln!(file, "{}", key.public).map_err(system("authorize a key"))
    }

    /// Returns the server's lines of `known_hosts`, as from `ssh-keyscan`.
    #[must_use]
    pub fn known_hosts(&self) -> String {
        let line = |key: &Key| format!("[127.0.0.1]:{} {}\n", self.port, key.public);
        self.host_keys.iter().map(line).collect()
    }

    /// Returns its host keys.
    #[must_use]
    pub fn host_keys(&self) -> &[Key] {
        &self.host_keys
    }

    /// Sets or clears the fault.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn fault(&self, fault: Option<Fault>) -> Result<(), SshError> {
        let text = match fault {
            None => "none 0".to_owned(),
            Some(Fault::Hung) => "hung 0".to_owned(),
            Some(Fault::Stalled(bytes)) => format!("stalled {bytes}"),
            Some(Fault::Truncated(bytes)) => format!("truncated {bytes}"),
            Some(Fault::Failed) => "failed 0".to_owned(),
            Some(Fault::ClosedOnce) => "closed 0".to_owned(),
            Some(Fault::Version0) => "version0 0".to_owned(),
        };
        // Renamed into place, so that a starting command reads the old or the new fault.
        let (new, path) = (
            self.folder.path().join("fault.new"),
            self.folder.path().join("fault"),
        );
        fs::write(&new, text + "\n")
            .and_then(|()| fs::rename(&new, &path))
            .map_err(system("set a fault"))
    }

    /// Returns the commands so far.
    #[must_use]
    pub fn commands(&self) -> Vec<ExecutedCommand> {
        let log = fs::read_to_string(self.folder.path().join("commands")).unwrap_or_default();
        let parse = |line: &str| {
            let (connection, command) = line.split_once(' ')?;
            Some(ExecutedCommand {
                connection: connection.parse().ok()?,
                command: command.to_owned(),
            })
        };
        log.lines().filter_map(parse).collect()
    }

    /// Returns the server's log.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Kills the server with its descendants, so that connections break.
    pub fn kill(&mut self) {
        // Only root has a namespace that ends with its first process.
        if let Some(process) = &self.process {
            process.kill_descendants();
        }
        self.process = None;
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Writes the server's files: its keys, an empty list of authorized keys, the wrapper, and the user list for root.
fn prepare(folder: &Path, host_keys: &[Key]) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    fs::create_dir(folder.join("home"))?;
    for (number, key) in host_keys.iter().enumerate() {
        let path = folder.join(format!("host-{number}"));
        fs::write(&path, &key.private)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        fs::write(folder.join(format!("host-{number}.pub")), &key.public)?;
        if let Some(certificate) = &key.certificate {
            fs::write(folder.join(format!("host-{number}-cert.pub")), certificate)?;
        }
    }
    fs::write(folder.join("authorized_keys"), "")?;
    fs::write(folder.join("fault"), "none 0\n")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let wrapper = WRAPPER_SCRIPT
        .replace("@FOLDER@", &folder.display().to_string())
        .replace("@PATH@", &path);
    fs::write(folder.join("wrapper.sh"), wrapper)?;
    fs::set_permissions(folder.join("wrapper.sh"), fs::Permissions::from_mode(0o755))?;
    let home = folder.join("home");
    let users = fs::read_to_string("/etc/passwd")?;
    let own = |line: &&str| !line.starts_with("git:") && !line.starts_with("sshd:");
    let users: String = users.lines().filter(own).flat_map(|line| [line, "\n"]).collect();
    let added = format!(
        "git:x:0:0::{}:/bin/sh\nsshd:x:65533:65534::/run/sshd:/bin/false\n",
        home.display()
    );
    fs::write(folder.join("passwd"), users + &added)
}

fn system(what: &'static str) -> impl Fn(io::Error) -> SshError {
    move |source| SshError::System { what, source }
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Whether an SSH server responds at the address.
fn responds(address: SocketAddr) -> bool {
    let Ok(socket) = TcpStream::connect_timeout(&address, Duration::from_secs(5)) else {
        return false;
    };
    let mut line = String::new();
    let timed = socket.set_read_timeout(Some(Duration::from_secs(5))).is_ok();
    timed && BufReader::new(socket).read_line(&mut line).is_ok() && line.starts_with("SSH-2.0-")
}

fn current_user() -> Result<String, SshError> {
    let output = Command::new("id")
        .arg("-un")
        .output()
        .map_err(system("find the user of the tests"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests;
