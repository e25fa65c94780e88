//! `docs/terraform-examples.md`, told as it is printed: manifests are applied by `kubectl`, its commands are typed, and each
//! prints in time what the page says. Every field of the definition is in it, or in the page that is named here.

use crate::world::{DEADLINE, NAMESPACE, SOURCE, World};
use futures::{StreamExt as _, stream};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use regex::Regex;
use serde_json::{Value, json};
use sluice_api::source::GitRepository;
use std::{
    collections::BTreeSet,
    fmt::Write as _,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::PathBuf,
    time::Duration,
};
use tokio::io::AsyncWriteExt as _;

const PAGE: &str = include_str!("../../../docs/terraform-examples.md");
/// Fields that need more than a module: where their examples are, which other tests read.
const ELSEWHERE: [(&str, &str); 3] = [
    ("cloud", include_str!("../../../docs/backends.md")),
    ("tool", include_str!("../../../docs/terraform.md")),
    (
        "backendConfig.configPath",
        include_str!("../../../docs/backends.md"),
    ),
];

/// A fenced part of a page.
#[derive(Clone, Debug)]
enum Part {
    /// A file of the artifact, by its path.
    File(String, String),
    Manifests(String),
    /// Commands, each with what it prints.
    Session(Vec<(String, String)>),
}

/// The sections of the page with their parts.
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

/// What the page names and the test puts something in the place of.
struct Desk {
    world: World,
    kubectl: PathBuf,
    config: PathBuf,
    replaced: Vec<(&'static str, String)>,
}

impl Desk {
    async fn open() -> Self {
        let mut world = World::without_controller().await;
        world.start(4).await;
        let kubectl = sluice_harness::cli::kubectl().unwrap();
        let states = world.path("states").display().to_string();
        let config = world.path("kubeconfig");
        std::fs::copy(&world.kubeconfig, &config).unwrap();
        let service = service();
        let desk = Self {
            world,
            kubectl,
            config,
            replaced: vec![
                ("/tmp/sluice-examples", states),
                ("https://policy.example.com", format!("http://{service}")),
                ("health.example.com", service),
            ],
        };
        let context = format!("kubectl config set-context --current --namespace={NAMESPACE}");
        desk.shell(&context, "").await.unwrap();
        desk
    }

    /// A text of the page with what the test puts there.
    fn here(&self, text: &str) -> String {
        let put = |text: String, (from, to): &(&str, String)| text.replace(from, to);
        self.replaced.iter().fold(text.to_owned(), put)
    }

    /// Publishes all files of the page as the artifact of the source that the page names.
    async fn publish(&self, sections: &[(String, Vec<Part>)]) {
        let files = sections
            .iter()
            .flat_map(|(_, parts)| parts)
            .filter_map(|part| match part {
                Part::File(path, text) => Some((path.as_str(), self.here(text))),
                Part::Manifests(_) | Part::Session(_) => None,
            });
        let files: Vec<_> = files.collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        self.world.commit("a", &files).await;
        let api: Api<GitRepository> = self.world.api();
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

    /// What a command prints, to both of its ends; an error with that if it fails.
    async fn shell(&self, command: &str, input: &str) -> Result<String, String> {
        let mut shell = tokio::process::Command::new("sh");
        let path = format!(
            "{}:{}",
            self.kubectl.parent().unwrap().display(),
            std::env::var("PATH").unwrap()
        );
        let home = self.world.path("home");
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
        let output = tokio::time::timeout(DEADLINE, child.wait_with_output()).await;
        let output = output.expect("a command ends in time").unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        if output.status.success() {
            Ok(said)
        } else {
            Err(said)
        }
    }

    /// Tells a section; what is not as it says is the error.
    async fn tell(&self, title: &str, parts: &[Part]) -> Result<(), String> {
        let mut variables = String::new();
        for part in parts {
            match part {
                Part::File(..) => {}
                Part::Manifests(text) => {
                    let applied = self.shell("kubectl apply -f -", &self.here(text)).await;
                    let said = applied.map_err(|said| format!("{title}: {said}\n{text}"))?;
                    // What the definition does not take whole is told here.
                    if said.contains("Warning") {
                        return Err(format!("{title}: {said}"));
                    }
                }
                Part::Session(commands) => {
                    for (command, wanted) in commands {
                        if command.starts_with("ID=") {
                            variables = format!("{command}\n");
                            continue;
                        }
                        let typed = format!("{variables}{}", self.here(command));
                        let printed = self.prints(&typed, &pattern(&self.here(wanted))).await;
                        printed.map_err(|said| format!("{title}: {command}\n{said}\nis not\n{wanted}"))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks until a command prints what it is to print; what changes something is typed once. The error is what it printed.
    async fn prints(&self, command: &str, wanted: &Regex) -> Result<(), String> {
        let looks = !command.contains("kubectl patch") && !command.contains("kubectl delete");
        let is_wanted =
            |said: &Result<String, String>| said.as_ref().is_ok_and(|said| wanted.is_match(&squeezed(said)));
        let mut printed = self.shell(command, "").await;
        let looking = async {
            while looks && !is_wanted(&printed) {
                tokio::time::sleep(Duration::from_millis(300)).await;
                printed = self.shell(command, "").await;
            }
        };
        drop(tokio::time::timeout(DEADLINE, looking).await);
        if is_wanted(&printed) {
            return Ok(());
        }
        Err(printed.unwrap_or_else(|said| said))
    }
}

/// Runs of spaces as one, and no line that is empty.
fn squeezed(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

/// What the page says is printed: `…` is anything.
fn pattern(wanted: &str) -> Regex {
    let whole = regex::escape(&squeezed(wanted)).replace('…', "(?s:.*?)");
    Regex::new(&format!("^{whole}$")).unwrap()
}

/// A service that is healthy and lets everything pass.
fn service() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut some = vec![0; 65_536];
            // A check of TCP says nothing, and a plan of this page is sent in one piece or two.
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
async fn each_example_of_the_docs_does_what_they_say() {
    let sections = sections();
    assert!(sections.len() >= 14, "{}", sections.len());
    let desk = Desk::open().await;
    desk.publish(&sections).await;
    let told = stream::iter(&sections).map(|(title, parts)| desk.tell(title, parts));
    let told: Vec<_> = told.buffer_unordered(4).collect().await;
    let wrong: Vec<_> = told.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The paths of all fields in a schema, without what lies below pods and free-form values.
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

/// The paths of all members of a value.
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

/// The members of the specs in the examples of a page.
fn shown(page: &str) -> BTreeSet<String> {
    let mut shown = BTreeSet::new();
    for block in page.split("```yaml\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for document in block.split("---\n") {
            let document: Value = serde_yaml_ng::from_str(document).unwrap();
            members(&document["spec"], "", &mut shown);
        }
    }
    shown
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
    let mut wanted = BTreeSet::new();
    let spec = "/schema/openAPIV3Schema/properties/spec";
    fields(stored.pointer(spec).unwrap(), "", &mut wanted);
    assert!(wanted.len() > 100, "{wanted:?}");
    let here = shown(PAGE);
    let elsewhere = |field: &str| {
        let page = ELSEWHERE
            .iter()
            .find(|(beginning, _)| field.starts_with(beginning));
        page.is_some_and(|(_, page)| shown(page).contains(field))
    };
    let missing = wanted
        .iter()
        .filter(|field| !here.contains(*field) && !elsewhere(field));
    // Of a pod's fields two are carried out, and have their examples.
    let missing: Vec<_> = missing
        .filter(|field| !field.starts_with("runnerPodTemplate."))
        .collect();
    assert!(missing.is_empty(), "without an example: {missing:?}");
    for field in ["env", "envFrom", "image"] {
        assert!(
            here.contains(&format!("runnerPodTemplate.spec.{field}")),
            "{field}"
        );
    }
}
