//! A real OpenSSH server on loopback that lets people run Git, and keys made by the real `ssh-keygen`.
//!
//! `sshd` is the machine's own, or the distribution's package unpacked into cargo's target folder ([`package`]). It has
//! its own configuration, host keys and authorized keys, and nothing of the machine is written. As root it runs in
//! namespaces of its own, because sshd then insists on a user and a folder that machines without it do not have; they
//! also end everything that it started.

mod keys;
mod package;

use std::fs;
use std::io::{self, BufRead, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub use keys::{Key, KeyError, certify};
pub use package::MissingServer;

use crate::git::Repository;
use crate::process::Process;
use package::Program;

/// A server that is not ready by then never will be.
const READY: Duration = Duration::from_secs(60);
/// How often a start is tried when its port was taken.
const STARTS: u32 = 5;
/// What the server runs instead of what it is asked to run: the same, noted down, with faults, and with nothing of the
/// machine's configuration of Git.
const WRAPPER: &str = include_str!("ssh/wrapper.sh");
/// Makes the world in which sshd is content as root: a user `git` and a user `sshd`, and a folder `/run/sshd`.
const NAMESPACE: &str = r#"
mount --bind "$1/passwd" /etc/passwd && mount -t tmpfs -o mode=0755 sluice /run && mkdir -m 0755 /run/sshd || exit 99
shift
exec "$@"
"#;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// No sshd, and no way to get one.
    #[error(transparent)]
    Missing(#[from] MissingServer),
    /// No key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A file or process.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It ended, or did not answer in time.
    #[error("sshd did not start; its last words:\n{0}")]
    NotReady(String),
}

/// What goes wrong while the server runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is ever answered.
    Hung,
    /// After this many bytes nothing more comes.
    Stalled(u64),
    /// After this many bytes the command is ended by a signal.
    Truncated(u64),
    /// The command fails with a complaint.
    Failed,
    /// The connection ends instead of the next answer; after that everything works.
    ClosedOnce,
    /// `GIT_PROTOCOL` is not passed on, as by servers that do not accept it.
    Version0,
}

/// A command that the server ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The client's port, which tells connections apart.
    pub connection: u16,
    /// The command line.
    pub command: String,
}

/// A running server; it ends with the value.
#[derive(Debug)]
pub struct SshServer {
    process: Option<Process>,
    folder: TempDir,
    port: u16,
    user: String,
    host_keys: Vec<Key>,
}

impl SshServer {
    /// A server with these host keys and further lines of `sshd_config`. Blocks until it answers.
    ///
    /// # Errors
    /// There is no sshd, or it does not start.
    pub fn start(host_keys: Vec<Key>, lines: &[&str]) -> Result<Self, SshError> {
        let program = package::find(&mut |line| eprintln!("{line}"))?;
        let folder = TempDir::with_prefix("sshd-").map_err(system("make a folder"))?;
        let root = rustix::process::getuid().is_root();
        let user = if root { "git".to_owned() } else { own_name()? };
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
                Err(SshError::NotReady(_)) if attempt < STARTS => {}
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
        let mut words: Vec<String> = Vec::new();
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
            words.extend(namespaces.map(str::to_owned));
            words.extend(["sh", "-c", NAMESPACE, "sshd"].map(str::to_owned));
            words.push(text(self.folder.path().to_owned()));
        }
        words.push("env".into());
        if let Some(libraries) = &program.libraries {
            words.push(format!("LD_LIBRARY_PATH={}", libraries.display()));
        }
        words.extend([
            text(program.sshd.clone()),
            "-D".into(),
            "-e".into(),
            "-f".into(),
            text(file("sshd_config")),
        ]);
        let command = find_on_path(&words[0]).unwrap_or_else(|| words[0].clone().into());
        let mut process = Process::start(&command, &words[1..], &log, Some(self.folder.path()))
            .map_err(system("start sshd"))?;
        let started = Instant::now();
        while !answers(self.address()) {
            if process.has_ended() || started.elapsed() > READY {
                return Err(SshError::NotReady(process.last_words(10)));
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
        // The first line for an option counts.
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

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The user who may come in: `git`, or who runs the tests unless that is root.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Lets a repository be fetched; answers its address.
    ///
    /// # Errors
    /// When the link to it cannot be made.
    pub fn serve(&self, name: &str, repository: &Repository) -> Result<String, SshError> {
        let link = self.folder.path().join("home").join(format!("{name}.git"));
        symlink(repository.git_dir(), &link).map_err(system("link the repository"))?;
        Ok(self.url(&link.display().to_string()))
    }

    /// The address of a path, which begins with a slash.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("ssh://{}@{}{path}", self.user, self.address())
    }

    /// Lets the owner of this public key come in.
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

    /// The lines that a user would have of `ssh-keyscan`.
    #[must_use]
    pub fn known_hosts(&self) -> String {
        let line = |key: &Key| format!("[127.0.0.1]:{} {}\n", self.port, key.public);
        self.host_keys.iter().map(line).collect()
    }

    /// Its host keys.
    #[must_use]
    pub fn host_keys(&self) -> &[Key] {
        &self.host_keys
    }

    /// Sets what goes wrong from now on, or that nothing does.
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
        // Renamed into place, so that a command that starts now reads one or the other.
        let (new, path) = (
            self.folder.path().join("fault.new"),
            self.folder.path().join("fault"),
        );
        fs::write(&new, text + "\n")
            .and_then(|()| fs::rename(&new, &path))
            .map_err(system("set a fault"))
    }

    /// What it ran so far.
    #[must_use]
    pub fn commands(&self) -> Vec<Ran> {
        let log = fs::read_to_string(self.folder.path().join("commands")).unwrap_or_default();
        let ran = |line: &str| {
            let (connection, command) = line.split_once(' ')?;
            Some(Ran {
                connection: connection.parse().ok()?,
                command: command.to_owned(),
            })
        };
        log.lines().filter_map(ran).collect()
    }

    /// The server's own log.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Kills it with all that it runs, so that connections break.
    pub fn kill(&mut self) {
        // Nobody but root has a namespace that ends with its first process.
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

/// The files of a server: its keys, an empty list of authorized keys, the wrapper, and the list of users for root.
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
    let wrapper = WRAPPER
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

/// Whether somebody at the address speaks SSH.
fn answers(address: SocketAddr) -> bool {
    let Ok(socket) = TcpStream::connect_timeout(&address, Duration::from_secs(5)) else {
        return false;
    };
    let mut line = String::new();
    let timed = socket.set_read_timeout(Some(Duration::from_secs(5))).is_ok();
    timed && BufReader::new(socket).read_line(&mut line).is_ok() && line.starts_with("SSH-2.0-")
}

fn own_name() -> Result<String, SshError> {
    let output = Command::new("id")
        .arg("-un")
        .output()
        .map_err(system("ask who runs the tests"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A program on `PATH`.
fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests;
