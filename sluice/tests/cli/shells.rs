//! Completion in the shells of users: bash and zsh in a pseudo-terminal with the key Tab, fish by its command `complete -C`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use sluice_harness::shell::{MissingShell, Shell};
use sluice_harness::skip;
use sluice_harness::terminal::Terminal;

use crate::complete;
use crate::fixture::{TIMEOUT, TestEnvironment};

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");
/// The prompt.
const READY: &str = "the shell is ready";
/// What a shell prints after the words of a line.
const END: &str = "end of the words";
/// What is typed before Tab, and the words of the line after it.
const LINES: [(&str, &str); 12] = [
    ("sluice hist", "<sluice><history>"),
    ("sluice plan sh", "<sluice><plan><show>"),
    ("sluice force-unlock a", "<sluice><force-unlock><app>"),
    ("sluice approve --com", "<sluice><approve><--comment>"),
    ("sluice approve zo", "<sluice><approve><zone>"),
    ("sluice get sources i", "<sluice><get><sources><infra>"),
    ("sluice get tf -o y", "<sluice><get><tf><-o><yaml>"),
    ("sluice logs app --run ", "<sluice><logs><app><--run><3>"),
    ("sluice status -n kube", "<sluice><status><-n><kube-system>"),
    (
        "sluice status --context ci:t",
        "<sluice><status><--context><ci:team@x>",
    ),
    (
        "sluice status --context=ci:",
        "<sluice><status><--context=ci:team@x>",
    ),
    (
        "sluice suspend -n \"default\" n",
        "<sluice><suspend><-n><default><net>",
    ),
];

/// Returns the shell, or records that the test is skipped.
fn or_skip(shell: Result<Shell, MissingShell>) -> Option<Shell> {
    match shell {
        Ok(shell) => Some(shell),
        Err(error) => {
            skip::skip(&error.to_string().replace('\n', " ")).unwrap();
            None
        }
    }
}

/// Returns the command of a shell: `sluice` is on its PATH, and no file of the user has a meaning.
fn command(environment: &TestEnvironment, shell: &Shell) -> Command {
    let programs = Path::new(SLUICE).parent().unwrap().display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let mut command = shell.command();
    command
        .env("PATH", path)
        .env("KUBECONFIG", environment.kubeconfig())
        .env("HOME", environment.directory())
        .env("ZDOTDIR", environment.directory())
        .env("INPUTRC", "/dev/null")
        .env("TERM", "xterm");
    for variable in [
        "EDITOR",
        "VISUAL",
        "PROMPT_COMMAND",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "FPATH",
    ] {
        command.env_remove(variable);
    }
    command
}

/// A shell in a pseudo-terminal.
struct Session {
    terminal: Terminal,
    /// What it wrote since the last keys.
    text: String,
}

impl Session {
    /// Starts an interactive shell, which has read its start-up file.
    fn start(command: Command) -> Self {
        let mut session = Self {
            terminal: Terminal::start(command, 160).unwrap(),
            text: String::new(),
        };
        session.wait_for(READY);
        session
    }

    fn press(&mut self, keys: &str) {
        self.text.clear();
        self.terminal.press(keys).unwrap();
    }

    fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.text.contains(text) {
            let Some(chunk) = self.terminal.read(deadline) else {
                panic!("no {text:?} in time in: {}", self.text);
            };
            self.text.push_str(&String::from_utf8_lossy(&chunk));
        }
    }

    /// Presses the keys, goes to the start of the line (Ctrl-A), and executes the line as the arguments of `ran`, which prints them.
    fn words_after(&mut self, keys: &str) -> String {
        self.press(&format!("{keys}\x01ran \r"));
        self.wait_for(END);
        let (before, after) = self.text.split_once(END).unwrap();
        let words = before[before.find('<').unwrap_or_default()..].to_owned();
        self.text = after.to_owned();
        self.wait_for(READY);
        words
    }
}

/// The end of a start-up file.
fn rest_of_start_up() -> String {
    format!("PS1='{READY}$ '\nran() {{ printf '<%s>' \"$@\"; echo '{END}'; }}\n")
}

/// Writes a file whose name contains a space; returns what is typed of its path, and all of it.
fn file_with_space(environment: &TestEnvironment) -> (String, String) {
    let file = environment.directory().join("my stack.yaml");
    fs::write(&file, "").unwrap();
    let typed = environment.directory().join("my");
    (typed.display().to_string(), file.display().to_string())
}

fn check_lines(session: &mut Session, environment: &TestEnvironment) {
    for (line, words) in LINES {
        assert_eq!(session.words_after(&format!("{line}\t")), words, "{line}");
    }
    let (typed, file) = file_with_space(environment);
    let words = session.words_after(&format!("sluice approve --file {typed}\t"));
    assert_eq!(words, format!("<sluice><approve><--file><{file}>"));
    let words = session.words_after(&format!("sluice approve --file={typed}\t"));
    assert_eq!(words, format!("<sluice><approve><--file={file}>"));
    // Nothing fits: the line stays.
    let words = session.words_after("sluice approve nonsense\t");
    assert_eq!(words, "<sluice><approve><nonsense>");
}

#[tokio::test(flavor = "multi_thread")]
async fn bash_completes_commands_flags_names_and_files() {
    let environment = complete::environment_to_complete().await;
    let shell = Shell::installed("bash").unwrap();
    let start_up = environment.directory().join("bashrc");
    let text = format!("source <(sluice completion bash)\n{}", rest_of_start_up());
    fs::write(&start_up, text).unwrap();
    let mut bash = command(&environment, &shell);
    bash.args(["--noprofile", "--rcfile"]).arg(&start_up).arg("-i");
    let mut session = Session::start(bash);
    check_lines(&mut session, &environment);
    // Alt-* inserts all completions, in their order.
    let words = session.words_after("sluice approve \x1b*");
    assert_eq!(words, "<sluice><approve><app><zone><db><net>");
}

#[tokio::test(flavor = "multi_thread")]
async fn zsh_completes_commands_flags_names_and_files() {
    let Some(shell) = or_skip(Shell::zsh()) else {
        return;
    };
    let environment = complete::environment_to_complete().await;
    let text = format!(
        "{}autoload -Uz compinit && compinit -D -u\nsource <(sluice completion zsh)\n{}",
        shell.setup,
        rest_of_start_up()
    );
    fs::write(environment.directory().join(".zshrc"), text).unwrap();
    let mut zsh = command(&environment, &shell);
    // Without the start-up files of the machine.
    zsh.args(["-d", "-i"]);
    let mut session = Session::start(zsh);
    check_lines(&mut session, &environment);
    // Several fit: they are listed with what they mean.
    session.press("sluice approve \t");
    session.wait_for("waits for approval");
}

#[tokio::test(flavor = "multi_thread")]
async fn zsh_finds_the_script_as_a_file() {
    let Some(shell) = or_skip(Shell::zsh()) else {
        return;
    };
    let environment = complete::environment_to_complete().await;
    let functions = environment.directory().join("functions");
    fs::create_dir(&functions).unwrap();
    fs::write(
        functions.join("_sluice"),
        environment.stdout(&["completion", "zsh"]).await,
    )
    .unwrap();
    let text = format!(
        "{}fpath+=('{}')\nautoload -Uz compinit && compinit -D -u\n{}",
        shell.setup,
        functions.display(),
        rest_of_start_up()
    );
    fs::write(environment.directory().join(".zshrc"), text).unwrap();
    let mut zsh = command(&environment, &shell);
    zsh.args(["-d", "-i"]);
    let mut session = Session::start(zsh);
    let (line, words) = LINES[4];
    assert_eq!(session.words_after(&format!("{line}\t")), words);
}

#[tokio::test(flavor = "multi_thread")]
async fn fish_completes_commands_flags_names_and_files() {
    let Some(shell) = or_skip(Shell::fish()) else {
        return;
    };
    let environment = complete::environment_to_complete().await;
    let (typed, file) = file_with_space(&environment);
    let answer = |line: &str| {
        let script = format!(
            "{}sluice completion fish | source\ncomplete -C $argv[1]",
            shell.setup
        );
        let mut fish = command(&environment, &shell);
        fish.args(["--no-config", "-c", &script, "--", line])
            .stdin(Stdio::null());
        let output = fish.output().unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{line}");
        String::from_utf8(output.stdout).unwrap()
    };
    for (line, expected) in [
        ("sluice hist", "history\tList the runs of a stack\n"),
        (
            "sluice approve ",
            "app\twaits for approval\nzone\twaits for approval\ndb\nnet\n",
        ),
        ("sluice get sources ", "infra\n"),
        ("sluice logs app --run ", "3\n"),
        ("sluice status -n kube", "kube-system\n"),
        ("sluice status --context=ci:", "--context=ci:team@x\n"),
        ("sluice describe -n \"team\" ", ""),
        ("sluice describe \"z", "zone\n"),
        ("sluice approve nonsense", ""),
    ] {
        assert_eq!(answer(line), expected, "{line}");
    }
    let flags = answer("sluice approve --com");
    assert!(
        flags.starts_with("--comment\t") && flags.lines().count() == 1,
        "{flags}"
    );
    // It prints what it would insert without the quotes.
    let files = answer(&format!("sluice approve --file {typed}"));
    assert_eq!(files.split('\t').next().unwrap_or_default().trim_end(), file);
}
