//! Runs `docs/reference/terraform-examples.md`: applies its manifests with `kubectl`, runs its commands, and compares their output with the
//! page. Every field of the definition must occur there or on the pages listed here.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use regex::Regex;
use serde_json::{Value, json};
use sluice_api::source::GitRepository;
use tokio::io::AsyncWriteExt as _;

use crate::environment::{NAMESPACE, SOURCE, TIMEOUT, TestEnvironment};

const PAGE: &str = include_str!("../../../docs/reference/terraform-examples.md");
/// Fields that need more than a module, with the pages of their examples, which other tests check.
const OTHER_PAGES: [(&str, &str); 3] = [
    ("cloud", include_str!("../../../docs/guides/backends.md")),
    ("tool", include_str!("../../../docs/guides/cli-and-providers.md")),
    (
        "backendConfig.configPath",
        include_str!("../../../docs/guides/backends.md"),
    ),
];

/// A code block of a page.
#[derive(Clone, Debug)]
enum Part {
    /// A file of the artifact, by its path.
    File(String, String),
    Manifests(String),
    /// Commands with their expected output.
    Session(Vec<(String, String)>),
}

/// Returns the sections of the page with their blocks.
fn sections() -> Vec<(String, Vec<Part>)> {
    let sections = PAGE.split("\n## ").skip(1);
    let read = |section: &str| {
        let title = section.lines().next().unwrap().to_owned();
        let fences: Vec<_> = section.split("```").collect();
        (
            title,
            fences
                .iter()
                .skip(1)
                .step_by(2)
                .map(|fence| part(fence))
                .collect(),
        )
    };
    sections.map(read).collect()
}

fn part(fence: &str) -> Part {
    let (head, body) = fence.split_once('\n').unwrap();
    match head.split_once(' ') {
        Some((_, path)) => Part::File(path.to_owned(), body.to_owned()),
        None if head == "yaml" => Part::Manifests(body.to_owned()),
        None => {
            assert_eq!(head, "console", "{fence}");
            Part::Session(session(body))
        }
    }
}

fn session(body: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in body.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            commands.push((command.to_owned(), String::new()));
        } else {
            writeln!(commands.last_mut().unwrap().1, "{line}").unwrap();
        }
    }
    commands
}

/// Runs the page; replaces some of its texts.
struct PageRunner {
    env: TestEnvironment,
    kubectl: PathBuf,
    config: PathBuf,
    replaced: Vec<(&'static str, String)>,
}

impl PageRunner {
    async fn create() -> Self {
        let mut env = TestEnvironment::without_controller().await;
        env.start(4).await;
        let kubectl = sluice_harness::cli::kubectl().unwrap();
        let states = env.path("states").display().to_string();
        let config = env.path("kubeconfig");
        std::fs::copy(&env.kubeconfig, &config).unwrap();
        let service = service();
        let runner = Self {
            env,
            kubectl,
            config,
            replaced: vec![
                ("/tmp/sluice-examples", states),
                ("https://policy.example.com", format!("http://{service}")),
                ("health.example.com", service),
            ],
        };
        let context = format!("kubectl config set-context --current --namespace={NAMESPACE}");
        runner.shell(&context, "").await.unwrap();
        runner
    }

    /// Replaces texts of the page.
    fn documented(&self, text: &str) -> String {
        let put = |text: String, (from, to): &(&str, String)| text.replace(from, to);
        self.replaced.iter().fold(text.to_owned(), put)
    }

    /// Publishes all files of the page as the artifact of its source.
    async fn publish(&self, sections: &[(String, Vec<Part>)]) {
        let files = sections
            .iter()
            .flat_map(|(_, parts)| parts)
            .filter_map(|part| match part {
                Part::File(path, text) => Some((path.as_str(), self.documented(text))),
                Part::Manifests(_) | Part::Session(_) => None,
            });
        let files: Vec<_> = files.collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        self.env.commit("a", &files).await;
        let api: Api<GitRepository> = self.env.api();
        let code = serde_json::to_value(api.get(SOURCE).await.unwrap()).unwrap();
        let stacks = json!({ "apiVersion": code["apiVersion"], "kind": code["kind"], "metadata": { "name": "stacks" },
            "spec": code["spec"] });
        api.create(&PostParams::default(), &serde_json::from_value(stacks).unwrap())
            .await
            .unwrap();
        let status = json!({ "status": code["status"] });
        api.patch_status("stacks", &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    /// Returns the output of a command; an error with its output if it fails.
    async fn shell(&self, command: &str, input: &str) -> Result<String, String> {
        let mut shell = tokio::process::Command::new("sh");
        let path = format!(
            "{}:{}",
            self.kubectl.parent().unwrap().display(),
            std::env::var("PATH").unwrap()
        );
        let home = self.env.path("home");
        shell
            .args(["-c", command])
            .env("PATH", path)
            .env("KUBECONFIG", &self.config)
            .env("HOME", home)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .kill_on_drop(true);
        let mut child = shell.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = tokio::time::timeout(TIMEOUT, child.wait_with_output()).await;
        let output = output.expect("timeout of a command").unwrap();
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        if output.status.success() {
            Ok(printed)
        } else {
            Err(printed)
        }
    }

    /// Runs a section; returns its differences as an error.
    async fn run_section(&self, title: &str, parts: &[Part]) -> Result<(), String> {
        let mut variables = String::new();
        for part in parts {
            match part {
                Part::File(..) => {}
                Part::Manifests(text) => {
                    let applied = self.shell("kubectl apply -f -", &self.documented(text)).await;
                    let output = applied.map_err(|output| format!("{title}: {output}\n{text}"))?;
                    // Warnings about dropped fields are printed here.
                    if output.contains("Warning") {
                        return Err(format!("{title}: {output}"));
                    }
                }
                Part::Session(commands) => {
                    for (command, expected) in commands {
                        if command.starts_with("ID=") {
                            variables = format!("{command}\n");
                            continue;
                        }
                        let typed = format!("{variables}{}", self.documented(command));
                        let printed = self
                            .assert_output(&typed, &pattern(&self.documented(expected)))
                            .await;
                        printed
                            .map_err(|output| format!("{title}: {command}\n{output}\nis not\n{expected}"))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Repeats a reading command until its output matches; runs a changing command once. The error is the last output.
    async fn assert_output(&self, command: &str, expected: &Regex) -> Result<(), String> {
        let is_read = !command.contains("kubectl patch") && !command.contains("kubectl delete");
        let is_expected = |output: &Result<String, String>| {
            output
                .as_ref()
                .is_ok_and(|output| expected.is_match(&normalize_spaces(output)))
        };
        let mut printed = self.shell(command, "").await;
        let repeated = async {
            while is_read && !is_expected(&printed) {
                tokio::time::sleep(Duration::from_millis(300)).await;
                printed = self.shell(command, "").await;
            }
        };
        drop(tokio::time::timeout(TIMEOUT, repeated).await);
        if is_expected(&printed) {
            return Ok(());
        }
        Err(printed.unwrap_or_else(|output| output))
    }
}

/// Collapses spaces and removes empty lines.
fn normalize_spaces(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the pattern of an expected output, in which `…` stands for any text.
fn pattern(expected: &str) -> Regex {
    let whole = regex::escape(&normalize_spaces(expected)).replace('…', "(?s:.*?)");
    Regex::new(&format!("^{whole}$")).unwrap()
}

/// Starts a service that is healthy and passes every plan.
fn service() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut some = vec![0; 65_536];
            // A TCP check sends nothing; a plan of this page arrives in one or two reads.
            let _ = stream.set_read_timeout(Some(Duration::from_millis(300)));
            while stream.read(&mut some).is_ok_and(|count| count > 0) {}
            let body = "{\"passed\": true}";
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn each_example_of_the_docs_works_as_described() {
    let sections = sections();
    assert!(sections.len() >= 14, "{}", sections.len());
    let runner = PageRunner::create().await;
    runner.publish(&sections).await;
    let results = stream::iter(&sections).map(|(title, parts)| runner.run_section(title, parts));
    let results: Vec<_> = results.buffer_unordered(4).collect().await;
    let wrong: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Collects the paths of all fields in a schema, except below pods and free-form values.
fn fields(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let object = schema.get("items").unwrap_or(schema);
    for (name, below) in object["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}{}{name}", if path.is_empty() { "" } else { "." });
        let deep = path.starts_with("runnerPodTemplate.") || path.ends_with(".valueFrom");
        if !deep {
            fields(below, &path, found);
        }
        found.insert(path);
    }
}

/// Collects the paths of all members of a value.
fn members(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, below) in object {
                let path = format!("{path}{}{name}", if path.is_empty() { "" } else { "." });
                members(below, &path, found);
                found.insert(path);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| members(item, path, found)),
        _ => {}
    }
}

/// Returns the members of specs in the examples of a page.
fn example_fields(page: &str) -> BTreeSet<String> {
    let mut example_fields = BTreeSet::new();
    for block in page.split("```yaml\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for document in block.split("---\n") {
            let document: Value = serde_yaml_ng::from_str(document).unwrap();
            members(&document["spec"], "", &mut example_fields);
        }
    }
    example_fields
}

#[test]
fn every_field_of_the_definition_has_an_example() {
    let crds = serde_json::to_value(sluice_api::crds()).unwrap();
    let terraform = crds.as_array().unwrap().iter();
    let mut terraform = terraform.filter(|crd| crd["spec"]["names"]["kind"] == "Terraform");
    let versions = terraform.next().unwrap()["spec"]["versions"]
        .as_array()
        .unwrap()
        .clone();
    let stored = versions
        .iter()
        .find(|version| version["storage"] == true)
        .unwrap();
    let mut expected = BTreeSet::new();
    let spec = "/schema/openAPIV3Schema/properties/spec";
    fields(stored.pointer(spec).unwrap(), "", &mut expected);
    assert!(expected.len() > 100, "{expected:?}");
    let documented = example_fields(PAGE);
    let elsewhere = |field: &str| {
        let page = OTHER_PAGES
            .iter()
            .find(|(beginning, _)| field.starts_with(beginning));
        page.is_some_and(|(_, page)| example_fields(page).contains(field))
    };
    let missing = expected
        .iter()
        .filter(|field| !documented.contains(*field) && !elsewhere(field));
    // Two fields of pods are implemented, and have their examples.
    let missing: Vec<_> = missing
        .filter(|field| !field.starts_with("runnerPodTemplate."))
        .collect();
    assert!(missing.is_empty(), "without an example: {missing:?}");
    for field in ["env", "envFrom", "image"] {
        assert!(
            documented.contains(&format!("runnerPodTemplate.spec.{field}")),
            "{field}"
        );
    }
}
