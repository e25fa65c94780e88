//! Servers that send little and cost much: the program stays small, serves others meanwhile, and says what was too much.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::source::GitRepository;
use sluice_harness::git::pack::{
    PackWriter, deflate, deflated_zeros, fetch_answer, literal_delta, object_name, packet, repeating_delta,
};
use sluice_harness::git::{Fault, GitServer, Injection, Repository, Scope};
use sluice_harness::ssh::{Fault as SshFault, Key, SshServer};

use crate::program::Program;
use crate::world::api;

/// What the program may have at most, whatever a server sends.
const MOST: u64 = 256 << 20;
/// Within this time an object of the same host follows a push while hostile bytes are worked on.
const FOLLOWS: Duration = Duration::from_secs(5);

/// What a server sends in the place of its repository.
struct Hostile {
    name: &'static str,
    answer: Vec<u8>,
    commit: String,
    sparse: bool,
    /// What the object says.
    says: &'static str,
}

fn entry(mode: &str, name: &str, id: [u8; 20]) -> Vec<u8> {
    [format!("{mode} {name}\0").as_bytes(), &id].concat()
}

/// A commit of a tree, added to a pack.
fn commit(pack: &mut PackWriter, tree: [u8; 20]) -> String {
    let tree = hex::encode(tree);
    let text = format!("tree {tree}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nhostile\n");
    hex::encode(pack.object("commit", text.as_bytes()))
}

impl Hostile {
    /// A pack whose objects do not matter, behind its first ones.
    fn pack(name: &'static str, says: &'static str, more: impl FnOnce(&mut PackWriter)) -> Self {
        let mut pack = PackWriter::default();
        let tree = pack.object("tree", b"");
        let commit = commit(&mut pack, tree);
        more(&mut pack);
        Self::of(name, says, commit, &pack.finish())
    }

    /// A whole commit of a tree.
    fn tree(name: &'static str, says: &'static str, make: impl FnOnce(&mut PackWriter) -> [u8; 20]) -> Self {
        let mut pack = PackWriter::default();
        let tree = make(&mut pack);
        let commit = commit(&mut pack, tree);
        Self::of(name, says, commit, &pack.finish())
    }

    fn of(name: &'static str, says: &'static str, commit: String, pack: &[u8]) -> Self {
        Self {
            name,
            answer: fetch_answer(&[], pack),
            commit,
            sparse: false,
            says,
        }
    }
}

fn deltas() -> Vec<Hostile> {
    let base = object_name("tree", b"");
    let twice = Hostile::pack("two-of-one", "is in it twice", |pack| {
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
    let million = "it has more bytes than its header announces with 2 objects";
    let million = Hostile::of("million", million, id, &pack.finish_as(2));
    let inflating = Hostile::pack("inflating", "raise --git-max-delta-bytes", |pack| {
        let at = pack.position();
        pack.entry(3, 300_000_000, &[], &deflated_zeros(300_000_000));
        pack.offset(pack.position() - at, &repeating_delta(300_000_000, 600_000_000));
    });
    let looping = "is a difference to something that is no earlier entry";
    let looping = Hostile::pack("looping", looping, |pack| {
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

fn trees() -> Vec<Hostile> {
    let entries = "has more than 1000000 entries; raise --git-max-entries";
    let whole = Hostile::tree("bomb", entries, bomb);
    let sparse = Hostile {
        name: "sparse-bomb",
        sparse: true,
        ..Hostile::tree("bomb", entries, bomb)
    };
    let wide = Hostile::tree(
        "wide",
        "16 for each entry that --git-max-entries allows",
        |pack| {
            let blob = pack.object("blob", b"bang");
            let names = entry("100644", "0000000", blob).repeat(4_000_000);
            pack.object("tree", &names)
        },
    );
    let rules = Hostile::tree("rules", "raise --git-max-ignore-bytes", |pack| {
        let rules = pack.object("blob", &b"a\n".repeat(1 << 19));
        let inner = pack.object("tree", &entry("100644", ".sourceignore", rules));
        let names: Vec<_> = (0..8).map(|n| entry("40000", &n.to_string(), inner)).collect();
        pack.object("tree", &names.concat())
    });
    let mut shallow = Hostile::pack("shallow", "raise --git-max-refs-bytes", |_| {});
    let lines: Vec<u8> = (0..660_000)
        .flat_map(|n| [format!("shallow {n:040x}"), format!("unshallow {n:040x}")])
        .flat_map(|line| packet(line.as_bytes()))
        .collect();
    shallow.answer = fetch_answer(&lines, &[]);
    vec![whole, sparse, wide, rules, shallow]
}

/// The program, an object that is good, and the host that serves it and all hostile ones.
struct World {
    server: GitServer,
    repository: Repository,
    program: Program,
    objects: Api<GitRepository>,
    storage: PathBuf,
}

impl World {
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

    /// A push to the good repository is followed while something else happens.
    async fn follows_a_push(&self, what: &str) {
        let id = self.repository.commit_files(&[("main.tf", what)], what).unwrap();
        let asked = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": what } } });
        let begun = Instant::now();
        self.objects
            .patch("good", &PatchParams::default(), &Patch::Merge(asked))
            .await
            .unwrap();
        self.program
            .waits_for(&self.objects, "good", |ready| {
                ready.status == "True" && ready.message.contains(&id)
            })
            .await;
        let took = begun.elapsed();
        eprintln!(
            "{what}: a push is followed after {took:?}; {} MiB",
            self.program.peak_memory() >> 20
        );
        assert!(took < FOLLOWS, "{what}: a push was followed after {took:?}");
    }

    async fn says(&self, name: &str, words: &str) {
        self.program
            .waits_for(&self.objects, name, |ready| {
                ready.status == "False" && ready.message.contains(words)
            })
            .await;
        let peak = self.program.peak_memory();
        assert!(peak < MOST, "{name}: {} MiB", peak >> 20);
    }

    async fn endures(&self, hostile: Hostile) {
        let Hostile {
            name,
            answer,
            commit,
            sparse,
            says,
        } = hostile;
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
        self.follows_a_push(name).await;
        self.says(name, says).await;
        // So that no retry of it disturbs what comes next.
        let gone = self.objects.delete(name, &DeleteParams::default()).await;
        gone.unwrap();
    }
}

/// Files below a directory whose names fit.
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
async fn no_answer_of_a_server_takes_the_program_down() {
    let api = api();
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    repository
        .git(["config", "uploadpack.allowFilter", "true"])
        .unwrap();
    repository.commit_files(&[("main.tf", "")], "first").unwrap();
    let (directory, storage) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program = Program::start(&api, directory.path(), storage.path(), "true").await;
    let world = World {
        objects: Api::namespaced(api.client(), "default"),
        storage: storage.path().to_owned(),
        server,
        repository,
        program,
    };
    let url = world.server.serve("good", &world.repository);
    world.create("good", World::spec(&url)).await;
    world.follows_a_push("nothing").await;
    for hostile in deltas().into_iter().chain(trees()) {
        world.endures(hostile).await;
    }
    let secrets: Api<Secret> = Api::namespaced(api.client(), "default");
    endures_refs(&world, &secrets).await;
    let left = files(&world.storage, &|name| name.starts_with("tmp_"));
    assert_eq!(left, Vec::<PathBuf>::new());
    let artifacts = files(&world.storage, &|name| name.ends_with(".tar.gz"));
    let good = |path: &PathBuf| path.to_string_lossy().contains("/good/");
    assert!(artifacts.iter().all(good), "{artifacts:?}");
}

/// 128 MiB of refs over ssh, from a server without version 2.
async fn endures_refs(world: &World, secrets: &Api<Secret>) {
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
    let mut spec = World::spec(&server.serve("app", &repository).unwrap());
    spec["secretRef"] = json!({ "name": "ssh" });
    world.create("refs", spec).await;
    world.follows_a_push("refs").await;
    world.says("refs", "raise --git-max-refs-bytes").await;
}
