//! Tests of malicious servers that send little and cost much: memory stays bounded, other objects are served, and the
//! limit is reported.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::source::GitRepository;
use sluice_harness::git::pack::{
    PackWriter, deflate, deflated_zeros, fetch_response, literal_delta, object_name, packet, repeating_delta,
};
use sluice_harness::git::{Fault, GitServer, Injection, Repository, Scope};
use sluice_harness::ssh::{Fault as SshFault, Key, SshServer};

use crate::fixture::api;
use crate::program::Program;

/// Maximum memory of the program.
const MAX_MEMORY: u64 = 256 << 20;
/// Maximum delay of another object of the same host.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// A malicious repository.
struct MaliciousRepository {
    name: &'static str,
    answer: Vec<u8>,
    commit: String,
    sparse: bool,
    /// Part of the object's message.
    message: &'static str,
}

fn entry(mode: &str, name: &str, id: [u8; 20]) -> Vec<u8> {
    [format!("{mode} {name}\0").as_bytes(), &id].concat()
}

/// Adds a commit of a tree to a pack.
fn commit(pack: &mut PackWriter, tree: [u8; 20]) -> String {
    let tree = hex::encode(tree);
    let text = format!("tree {tree}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nhostile\n");
    hex::encode(pack.object("commit", text.as_bytes()))
}

impl MaliciousRepository {
    /// A pack with additional objects after a commit.
    fn pack(name: &'static str, message: &'static str, more: impl FnOnce(&mut PackWriter)) -> Self {
        let mut pack = PackWriter::default();
        let tree = pack.object("tree", b"");
        let commit = commit(&mut pack, tree);
        more(&mut pack);
        Self::of(name, message, commit, &pack.finish())
    }

    /// A commit of a malicious tree.
    fn tree(
        name: &'static str,
        message: &'static str,
        make: impl FnOnce(&mut PackWriter) -> [u8; 20],
    ) -> Self {
        let mut pack = PackWriter::default();
        let tree = make(&mut pack);
        let commit = commit(&mut pack, tree);
        Self::of(name, message, commit, &pack.finish())
    }

    fn of(name: &'static str, message: &'static str, commit: String, pack: &[u8]) -> Self {
        Self {
            name,
            answer: fetch_response(&[], pack),
            commit,
            sparse: false,
            message,
        }
    }
}

fn deltas() -> Vec<MaliciousRepository> {
    let base = object_name("tree", b"");
    let twice = MaliciousRepository::pack("two-of-one", "it contains object", |pack| {
        let base = pack.object("blob", b"base");
        pack.reference(base, &literal_delta(4, b"same"));
        pack.reference(base, &literal_delta(4, b"same"));
    });
    let mut pack = PackWriter::default();
    let tree = pack.object("tree", b"");
    let id = commit(&mut pack, tree);
    let (delta, size) = (deflate(&literal_delta(0, b"x")), 4);
    for _ in 0..1_000_000 {
        pack.entry(7, size, &base, &delta);
    }
    let million = "it continues after the 2 objects of its header";
    let million = MaliciousRepository::of("million", million, id, &pack.finish_with_count(2));
    let inflating = MaliciousRepository::pack("inflating", "raise --git-max-delta-bytes", |pack| {
        let at = pack.position();
        pack.entry(3, 300_000_000, &[], &deflated_zeros(300_000_000));
        pack.offset(pack.position() - at, &repeating_delta(300_000_000, 600_000_000));
    });
    let looping = "is a delta whose base is not an earlier entry";
    let looping = MaliciousRepository::pack("looping", looping, |pack| {
        pack.offset(0, &literal_delta(4, b"next"));
    });
    vec![twice, million, inflating, looping]
}

fn bomb(pack: &mut PackWriter) -> [u8; 20] {
    let blob = pack.object("blob", b"bang");
    let leaves: Vec<_> = (0..10).map(|n| entry("100644", &n.to_string(), blob)).collect();
    let mut tree = pack.object("tree", &leaves.concat());
    for _ in 0..9 {
        let names: Vec<_> = (0..10).map(|n| entry("40000", &n.to_string(), tree)).collect();
        tree = pack.object("tree", &names.concat());
    }
    tree
}

fn trees() -> Vec<MaliciousRepository> {
    let entries = "has more than 1000000 entries; raise --git-max-entries";
    let whole = MaliciousRepository::tree("bomb", entries, bomb);
    let sparse = MaliciousRepository {
        name: "sparse-bomb",
        sparse: true,
        ..MaliciousRepository::tree("bomb", entries, bomb)
    };
    let wide = MaliciousRepository::tree(
        "wide",
        "16 for each entry that --git-max-entries allows",
        |pack| {
            let blob = pack.object("blob", b"bang");
            let names = entry("100644", "0000000", blob).repeat(4_000_000);
            pack.object("tree", &names)
        },
    );
    let rules = MaliciousRepository::tree("rules", "raise --git-max-ignore-bytes", |pack| {
        let rules = pack.object("blob", &b"#\n".repeat(1 << 19));
        let inner = pack.object("tree", &entry("100644", ".sourceignore", rules));
        let names: Vec<_> = (0..8).map(|n| entry("40000", &n.to_string(), inner)).collect();
        pack.object("tree", &names.concat())
    });
    let patterns = MaliciousRepository::tree("patterns", "raise --git-max-ignore-patterns", |pack| {
        let patterns = pack.object("blob", &b"a\n".repeat(1 << 17));
        pack.object("tree", &entry("100644", ".sourceignore", patterns))
    });
    // As many patterns as permitted, in a deep directory. The odd name ends the build after their parsing.
    let deep = MaliciousRepository::tree("deep", "has a control character", |pack| {
        let patterns = pack.object("blob", &b"a\n".repeat(1 << 16));
        let mut tree = pack.object("tree", &entry("100644", ".sourceignore", patterns));
        for _ in 0..2000 {
            tree = pack.object("tree", &entry("40000", "d", tree));
        }
        let odd = pack.object("blob", b"odd");
        pack.object(
            "tree",
            &[entry("100644", "a\tb", odd), entry("40000", "d", tree)].concat(),
        )
    });
    let mut shallow = MaliciousRepository::pack("shallow", "raise --git-max-refs-bytes", |_| {});
    let lines: Vec<u8> = (0..660_000)
        .flat_map(|n| [format!("shallow {n:040x}"), format!("unshallow {n:040x}")])
        .flat_map(|line| packet(line.as_bytes()))
        .collect();
    shallow.answer = fetch_response(&lines, &[]);
    vec![whole, sparse, wide, rules, patterns, deep, shallow]
}

/// The program, a good object, and the server of it and of all malicious ones.
struct Environment {
    server: GitServer,
    repository: Repository,
    program: Program,
    objects: Api<GitRepository>,
    storage: PathBuf,
}

impl Environment {
    async fn create(&self, name: &str, spec: Value) {
        let object = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": name }, "spec": spec,
        });
        let object = serde_json::from_value(object).unwrap();
        self.objects
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
    }

    fn spec(url: &str) -> Value {
        json!({ "url": url, "interval": "1h", "timeout": "40s", "ref": { "branch": "main" } })
    }

    /// Checks that a push to the good repository is followed in time.
    async fn assert_push_followed(&self, what: &str) {
        let id = self.repository.commit_files(&[("main.tf", what)], what).unwrap();
        let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": what } } });
        let begun = Instant::now();
        self.objects
            .patch("good", &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
        self.program
            .wait_for(&self.objects, "good", |ready| {
                ready.status == "True" && ready.message.contains(&id)
            })
            .await;
        let took = begun.elapsed();
        eprintln!(
            "{what}: push reconciled after {took:?}; {} MiB",
            self.program.peak_memory() >> 20
        );
        assert!(took < MAX_DELAY, "{what}: push reconciled after {took:?}");
    }

    async fn assert_message(&self, name: &str, words: &str) {
        self.program
            .wait_for(&self.objects, name, |ready| {
                ready.status == "False" && ready.message.contains(words)
            })
            .await;
        let peak = self.program.peak_memory();
        assert!(peak < MAX_MEMORY, "{name}: {} MiB", peak >> 20);
    }

    async fn check_case(&self, case: MaliciousRepository) {
        let MaliciousRepository {
            name,
            answer,
            commit,
            sparse,
            message,
        } = case;
        let list = [
            packet(format!("{commit} refs/heads/main\n").as_bytes()),
            b"0000".to_vec(),
        ]
        .concat();
        let url = self.server.serve(name, &self.repository);
        for (scope, bytes) in [(Scope::LS_REFS, list), (Scope::FETCH, answer)] {
            let reply = Injection::new(scope, Fault::Reply(bytes.into()));
            self.server.inject(reply.repository(name));
        }
        let mut spec = Self::spec(&url);
        if sparse {
            spec["sparseCheckout"] = json!(["0"]);
        }
        self.create(name, spec).await;
        self.assert_push_followed(name).await;
        self.assert_message(name, message).await;
        // Avoid retries during the next cases.
        let gone = self.objects.delete(name, &DeleteParams::default()).await;
        gone.unwrap();
    }
}

/// Returns the files below a directory whose names match.
fn files(directory: &Path, fits: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, fits));
        } else if fits(&path.file_name().unwrap().to_string_lossy()) {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn no_malicious_response_exhausts_the_program() {
    let api = api();
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    repository
        .git(["config", "uploadpack.allowFilter", "true"])
        .unwrap();
    repository.commit_files(&[("main.tf", "")], "first").unwrap();
    let (directory, storage) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program = Program::start(&api, directory.path(), storage.path(), "true").await;
    let env = Environment {
        objects: Api::namespaced(api.client(), "default"),
        storage: storage.path().to_owned(),
        server,
        repository,
        program,
    };
    let url = env.server.serve("good", &env.repository);
    env.create("good", Environment::spec(&url)).await;
    env.assert_push_followed("nothing").await;
    for case in deltas().into_iter().chain(trees()) {
        env.check_case(case).await;
    }
    let secrets: Api<Secret> = Api::namespaced(api.client(), "default");
    check_endless_refs(&env, &secrets).await;
    let left = files(&env.storage, &|name| name.starts_with("tmp_"));
    assert_eq!(left, Vec::<PathBuf>::new());
    let artifacts = files(&env.storage, &|name| name.ends_with(".tar.gz"));
    let good = |path: &PathBuf| path.to_string_lossy().contains("/good/");
    assert!(artifacts.iter().all(good), "{artifacts:?}");
}

/// 128 MiB of refs over ssh, from a server without protocol version 2.
async fn check_endless_refs(env: &Environment, secrets: &Api<Secret>) {
    let key = || Key::generate("ed25519", 256).unwrap();
    let (server, key) = (SshServer::start(vec![key()], &[]).unwrap(), key());
    server.authorize(&key).unwrap();
    server.fault(Some(SshFault::Version0)).unwrap();
    let repository = Repository::create().unwrap();
    let id = repository.commit_files(&[("main.tf", "")], "first").unwrap();
    let lines = (0..2_200_000).fold(String::new(), |mut lines, n| {
        let _ = writeln!(lines, "{id} refs/tags/v0.0.{n:07}");
        lines
    });
    assert!(lines.len() > 120 << 20);
    std::fs::write(repository.git_dir().join("packed-refs"), lines).unwrap();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "ssh" },
        "stringData": { "identity": key.private, "known_hosts": server.known_hosts() },
    });
    let secret = serde_json::from_value(secret).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let mut spec = Environment::spec(&server.serve("app", &repository).unwrap());
    spec["secretRef"] = json!({ "name": "ssh" });
    env.create("refs", spec).await;
    env.assert_push_followed("refs").await;
    env.assert_message("refs", "raise --git-max-refs-bytes").await;
}
