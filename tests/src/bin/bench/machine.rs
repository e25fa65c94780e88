//! What the results were measured on: CPU, kernel, the versions of all programs, the date.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sluice_harness::gobuild::{self, Tool};
use sluice_harness::{cli, compared};
use sluice_tests::binary;

/// The machine and the programs of a run.
#[derive(Debug)]
pub(crate) struct Machine {
    cpu: String,
    /// Whether the CPU has instructions for SHA-256.
    has_sha: bool,
    cores: usize,
    kernel: String,
    date: String,
    commit: String,
    /// Number of measurements per median.
    rounds: usize,
    /// Programs with the first line that they print about their version.
    programs: BTreeMap<String, String>,
}

impl Machine {
    /// Describes this machine.
    pub(crate) fn describe(rounds: usize) -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = field(&info, "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
        // x86 names the extension `sha_ni`, Arm `sha2`.
        let flags = field(&info, "flags").or_else(|| field(&info, "Features"));
        let has_sha = flags.is_some_and(|flags| {
            let mut flags = flags.split(' ');
            flags.any(|flag| matches!(flag, "sha_ni" | "sha2"))
        });
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut commit = Command::new("git");
        commit.current_dir(here).args(["describe", "--always", "--dirty"]);
        Self {
            cpu,
            has_sha,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: first_line(Command::new("uname").arg("-sr")).unwrap_or_default(),
            date: first_line(Command::new("date").args(["-u", "+%Y-%m-%d"])).unwrap_or_default(),
            commit: first_line(&mut commit).unwrap_or_default(),
            rounds,
            programs: versions(),
        }
    }

    /// Returns a paragraph of Markdown.
    pub(crate) fn text(&self) -> String {
        let programs: Vec<_> = self.programs.values().map(String::as_str).collect();
        format!(
            "{}; {}, {} cores, {}; {}; commit {}; medians of {} rounds. Programs: {}.\n",
            self.date,
            self.cpu,
            self.cores,
            if self.has_sha {
                "with SHA extensions"
            } else {
                "without SHA extensions"
            },
            self.kernel,
            self.commit,
            self.rounds,
            programs.join("; ")
        )
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "cpu": self.cpu, "shaExtensions": self.has_sha, "cores": self.cores, "kernel": self.kernel,
            "date": self.date, "commit": self.commit, "rounds": self.rounds,
            "programs": self.programs })
    }
}

/// Returns the first value of a field of `/proc/cpuinfo`.
fn field(info: &str, name: &str) -> Option<String> {
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(field, _)| field.trim() == name)?;
    Some(value.trim().to_owned())
}

fn versions() -> BTreeMap<String, String> {
    let on_path = |name: &str| PathBuf::from(name);
    let cli = ["terraform", "tofu"].into_iter().find_map(cli::on_path);
    // Python computes digests by OpenSSL.
    let openssl: &[&str] = &["-c", "import ssl; print(ssl.OPENSSL_VERSION)"];
    let programs: [(&str, Option<PathBuf>, &[&str]); 10] = [
        ("sluice", binary("sluice").ok(), &["version", "--client"]),
        ("git", Some(on_path("git")), &["--version"]),
        ("tar", Some(on_path("tar")), &["--version"]),
        ("sha256sum", Some(on_path("sha256sum")), &["--version"]),
        ("gzip", Some(on_path("gzip")), &["--version"]),
        ("pigz", compared::installed("pigz"), &["--version"]),
        ("nginx", compared::installed("nginx"), &["-v"]),
        ("kubectl", Some(on_path("kubectl")), &["version", "--client"]),
        ("openssl", Some(on_path("python3")), openssl),
        ("cli", cli, &["version"]),
    ];
    let shown = programs.into_iter().filter_map(|(name, program, arguments)| {
        let version = first_line(Command::new(program?).args(arguments))?;
        Some((name.to_owned(), version))
    });
    shown.chain(built()).collect()
}

/// Returns the versions of the programs that are built from Go modules, if they are: not each prints its own.
fn built() -> impl Iterator<Item = (String, String)> {
    let tools = [
        (Tool::FluxSourceController, "Flux's source-controller"),
        (Tool::Etcd, "etcd"),
        (Tool::KubeApiserver, "kube-apiserver"),
    ];
    tools.into_iter().filter_map(|(tool, title)| {
        let is_built = gobuild::binary_path(tool).is_ok_and(|program| program.is_file());
        let version = gobuild::version(tool).filter(|_| is_built)?;
        Some((tool.name().to_owned(), format!("{title} {version}")))
    })
}

/// Returns the first line that a program prints; nginx prints its version to its standard error.
fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    Some(line.trim().to_owned())
}
