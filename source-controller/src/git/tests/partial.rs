//! Commits of which only some files are wanted, from servers that can leave files out and from those that cannot.

use sluice_harness::git::{Fault, Injection, Scope};

use super::*;

/// Wants what lies below a directory.
#[derive(Debug)]
struct Below(&'static str);

impl Selection for Below {
    fn selects(&self, path: &[u8]) -> bool {
        path.starts_with(self.0.as_bytes())
    }

    fn enters(&self, directory: &[u8]) -> bool {
        let inside = [directory, b"/"].concat();
        inside.starts_with(self.0.as_bytes()) || self.0.as_bytes().starts_with(&inside)
    }
}

/// 100 files of 8 KB, at a server that can filter.
async fn filtering() -> World {
    let world = World::with_files().await;
    let allow = ["config", "uploadpack.allowFilter", "true"];
    world.repository.git(allow).unwrap();
    world
}

impl World {
    async fn part(&self, wanted: &'static str) -> Result<Checkout, FetchError> {
        self.part_of(&main(), wanted).await
    }

    async fn part_of(&self, reference: &Reference, wanted: &'static str) -> Result<Checkout, FetchError> {
        let remote = self.remote();
        let head = self.head(reference).await?;
        let wanted: Arc<dyn Selection> = Arc::new(Below(wanted));
        let stop = CancellationToken::new();
        bounded(fetch_part(&self.mirrors, &remote, &head, &wanted, &stop)).await
    }

    /// Bytes of all answers to fetches since the last look, and how many there were.
    fn fetched(&self) -> (u64, usize) {
        let requests = self.server.requests();
        self.server.clear_requests();
        let answers = requests.iter().filter(|request| request.step == Step::Fetch);
        let sizes: Vec<_> = answers.map(|request| request.response_bytes).collect();
        (sizes.iter().sum(), sizes.len())
    }
}

/// Paths of the files that can be read.
fn readable(checkout: &Checkout) -> Vec<String> {
    let files = entries(checkout).unwrap().into_iter();
    let files = files.filter(|(_, entry)| entry.kind == Kind::File && checkout.holds(entry.id));
    files.map(|(path, _)| path).collect()
}

#[tokio::test]
async fn only_names_and_the_files_that_are_wanted_travel() {
    let world = filtering().await;
    let checkout = world.part("modules/7/").await.unwrap();
    let (part, requests) = world.fetched();
    assert_eq!(requests, 2);
    assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"));
    assert_eq!(readable(&checkout), ["modules/7/main.tf"]);
    let (_, file) = entries(&checkout)
        .unwrap()
        .into_iter()
        .find(|(path, _)| path == "modules/7/main.tf")
        .unwrap();
    assert_eq!(*checkout.read(file.id).unwrap(), *noise(7, 8192).as_bytes());
    // A mirror of whole commits knows nothing of it.
    let whole = world.fetch(&main()).await.unwrap();
    let (all, _) = world.fetched();
    assert_eq!(readable(&whole).len(), 100);
    assert!(part * 10 < all, "{part} of {all} bytes");
}

#[tokio::test]
async fn what_is_there_is_not_fetched_again_and_others_add_to_it() {
    let world = filtering().await;
    world.part("modules/7/").await.unwrap();
    world.fetched();
    world.part("modules/7/").await.unwrap();
    assert_eq!(world.fetched(), (0, 0));
    let checkout = world.part("modules/8/").await.unwrap();
    assert_eq!(world.fetched().1, 1);
    assert_eq!(readable(&checkout).len(), 2);
    world
        .repository
        .commit_files(
            &[
                ("modules/7/main.tf", noise(700, 8192)),
                ("modules/9/main.tf", noise(900, 65536)),
            ],
            "next",
        )
        .unwrap();
    world.fetched();
    let checkout = world.part("modules/7/").await.unwrap();
    let (bytes, requests) = world.fetched();
    assert!(requests == 2 && bytes < 16384, "{bytes} bytes in {requests}");
    assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"));
}

#[tokio::test]
async fn nothing_is_wanted_of_a_commit_without_such_a_path() {
    let world = filtering().await;
    let checkout = world.part("nowhere/").await.unwrap();
    assert_eq!(world.fetched().1, 1);
    assert_eq!(readable(&checkout), Vec::<String>::new());
    assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"));
}

#[tokio::test]
async fn a_pinned_commit_and_a_tag_can_be_partial() {
    let world = filtering().await;
    let first = world.repository.head().unwrap();
    world.repository.annotated_tag("v1", "one").unwrap();
    world
        .repository
        .commit_files(&[("modules/7/main.tf", "new")], "next")
        .unwrap();
    for reference in [pinned(&first), Reference::Tag("v1".into())] {
        let checkout = world.part_of(&reference, "modules/7/").await.unwrap();
        assert_eq!(checkout.commit().id.to_string(), first);
        assert_eq!(readable(&checkout), ["modules/7/main.tf"]);
    }
}

#[tokio::test]
async fn another_process_goes_on_with_what_is_there() {
    let world = filtering().await;
    world.part("modules/7/").await.unwrap();
    world.fetched();
    let World {
        mirrors,
        repository,
        server,
        url,
        transport,
        root,
    } = world;
    drop(mirrors);
    let world = World {
        mirrors: Mirrors::new(root.path()).unwrap(),
        repository,
        server,
        url,
        transport,
        root,
    };
    world.part("modules/7/").await.unwrap();
    assert_eq!(world.fetched(), (0, 0));
}

#[tokio::test]
async fn a_server_that_cannot_leave_files_out_is_asked_for_everything() {
    let world = World::with_files().await;
    let checkout = world.part("modules/7/").await.unwrap();
    assert_eq!((readable(&checkout).len(), world.fetched().1), (100, 1));
    // Nor is one without version 2.
    let world = filtering().await;
    world.server.speak_at_most(1);
    let checkout = world.part("modules/7/").await.unwrap();
    assert_eq!((readable(&checkout).len(), world.fetched().1), (100, 1));
}

#[tokio::test]
async fn a_server_that_gives_no_file_by_its_hash_is_asked_for_everything_and_not_tried_again() {
    let world = filtering().await;
    let refusal = "0023ERR upload-pack: not our ref x\n".replace("0023", &format!("{:04x}", 4 + 31));
    let page = Fault::Page("application/x-git-upload-pack-result", refusal);
    world
        .server
        .inject(Injection::new(Scope::FETCH, page).sparing("deepen"));
    let checkout = world.part("modules/7/").await.unwrap();
    assert_eq!((readable(&checkout).len(), world.fetched().1), (100, 3));
    world
        .repository
        .commit_files(&[("modules/7/main.tf", "new")], "next")
        .unwrap();
    let checkout = world.part("modules/7/").await.unwrap();
    assert_eq!((readable(&checkout).len(), world.fetched().1), (100, 1));
}

#[tokio::test]
async fn files_that_were_lost_on_disk_are_fetched_again() {
    let world = filtering().await;
    let checkout = world.part("modules/7/").await.unwrap();
    drop(checkout);
    let mut packs = world.files(|name| name.starts_with("pack-"));
    packs.retain(|path| path.extension().is_some_and(|extension| extension == "pack"));
    packs.sort_by_key(|path| std::fs::metadata(path).unwrap().modified().unwrap());
    let newest = packs.pop().unwrap();
    for extension in ["pack", "idx"] {
        std::fs::remove_file(newest.with_extension(extension)).unwrap();
    }
    let checkout = world.part("modules/7/").await.unwrap();
    assert_eq!(readable(&checkout), ["modules/7/main.tf"]);
}

#[tokio::test]
async fn many_files_are_asked_for_in_several_requests() {
    let world = World::new().await;
    for number in 0..10_500_u32 {
        world
            .repository
            .write(&format!("many/{}/{number}", number % 16), number.to_string())
            .unwrap();
    }
    world.repository.commit("many").unwrap();
    let allow = ["config", "uploadpack.allowFilter", "true"];
    world.repository.git(allow).unwrap();
    let checkout = world.part("many/").await.unwrap();
    assert_eq!(world.fetched().1, 3);
    assert_eq!(readable(&checkout).len(), 10_500);
}

#[tokio::test]
async fn several_selections_at_once_share_a_mirror() {
    let world = shared(filtering().await);
    let part = |wanted: &'static str| {
        let world = Arc::clone(&world);
        async move { readable(&world.part(wanted).await.unwrap()) }
    };
    let (one, two, three) = tokio::join!(part("modules/1/"), part("modules/2/"), part("modules/3/"));
    for (found, number) in [(one, 1), (two, 2), (three, 3)] {
        assert!(found.contains(&format!("modules/{number}/main.tf")), "{found:?}");
        assert!(found.len() <= 3, "{found:?}");
    }
}
