//! Commits with a selection of files, from servers with and without support for filters.

use sluice_harness::git::{Fault, Injection, Scope};

use super::*;

/// Selects the files below a directory.
#[derive(Debug)]
struct BelowDirectory(&'static str);

impl Selection for BelowDirectory {
    fn selects(&self, path: &[u8]) -> bool {
        path.starts_with(self.0.as_bytes())
    }

    fn may_contain(&self, directory: &[u8]) -> bool {
        let inside = [directory, b"/"].concat();
        inside.starts_with(self.0.as_bytes()) || self.0.as_bytes().starts_with(&inside)
    }
}

/// Creates 100 files of 8 KB at a server that supports filters.
async fn env_with_filter() -> TestEnvironment {
    let env = TestEnvironment::with_files().await;
    let allow = ["config", "uploadpack.allowFilter", "true"];
    env.repository.git(allow).unwrap();
    env
}

impl TestEnvironment {
    async fn fetch_partial_of(&self, expected: &'static str) -> Result<Checkout, FetchError> {
        self.fetch_partial_ref(&main(), expected).await
    }

    async fn fetch_partial_ref(
        &self,
        reference: &Reference,
        expected: &'static str,
    ) -> Result<Checkout, FetchError> {
        let remote = self.remote();
        let head = self.head(reference).await?;
        let expected: Arc<dyn Selection> = Arc::new(BelowDirectory(expected));
        let stop = CancellationToken::new();
        bounded(fetch_partial(&self.mirrors, &remote, &head, &expected, &stop)).await
    }

    /// Returns the total size of all responses to fetches since the previous call, and their number.
    fn fetched(&self) -> (u64, usize) {
        let requests = self.server.requests();
        self.server.clear_requests();
        let answers = requests.iter().filter(|request| request.step == Step::Fetch);
        let sizes: Vec<_> = answers.map(|request| request.response_bytes).collect();
        (sizes.iter().sum(), sizes.len())
    }
}

/// Returns the paths of the readable files.
fn readable(checkout: &Checkout) -> Vec<String> {
    let files = entries(checkout).unwrap().into_iter();
    let files = files.filter(|(_, entry)| entry.kind == Kind::File && checkout.contains(entry.id));
    files.map(|(path, _)| path).collect()
}

#[tokio::test]
async fn only_trees_and_selected_blobs_are_fetched() {
    let env = env_with_filter().await;
    let checkout = env.fetch_partial_of("modules/7/").await.unwrap();
    let (fetch_partial_of, requests) = env.fetched();
    assert_eq!(requests, 2);
    assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
    assert_eq!(readable(&checkout), ["modules/7/main.tf"]);
    let (_, file) = entries(&checkout)
        .unwrap()
        .into_iter()
        .find(|(path, _)| path == "modules/7/main.tf")
        .unwrap();
    assert_eq!(*checkout.read(file.id).unwrap(), *noise(7, 8192).as_bytes());
    // The mirror of complete commits is separate.
    let whole = env.fetch(&main()).await.unwrap();
    let (all, _) = env.fetched();
    assert_eq!(readable(&whole).len(), 100);
    assert!(fetch_partial_of * 10 < all, "{fetch_partial_of} of {all} bytes");
}

#[tokio::test]
async fn existing_blobs_are_not_fetched_again() {
    let env = env_with_filter().await;
    env.fetch_partial_of("modules/7/").await.unwrap();
    env.fetched();
    env.fetch_partial_of("modules/7/").await.unwrap();
    assert_eq!(env.fetched(), (0, 0));
    let checkout = env.fetch_partial_of("modules/8/").await.unwrap();
    assert_eq!(env.fetched().1, 1);
    assert_eq!(readable(&checkout).len(), 2);
    env.repository
        .commit_files(
            &[
                ("modules/7/main.tf", noise(700, 8192)),
                ("modules/9/main.tf", noise(900, 65536)),
            ],
            "next",
        )
        .unwrap();
    env.fetched();
    let checkout = env.fetch_partial_of("modules/7/").await.unwrap();
    let (bytes, requests) = env.fetched();
    assert!(requests == 2 && bytes < 16384, "{bytes} bytes in {requests}");
    assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
}

#[tokio::test]
async fn an_empty_selection_fetches_no_blobs() {
    let env = env_with_filter().await;
    let checkout = env.fetch_partial_of("nowhere/").await.unwrap();
    assert_eq!(env.fetched().1, 1);
    assert_eq!(readable(&checkout), Vec::<String>::new());
    assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
}

#[tokio::test]
async fn a_pinned_commit_and_a_tag_can_be_partial() {
    let env = env_with_filter().await;
    let first = env.repository.head().unwrap();
    env.repository.annotated_tag("v1", "one").unwrap();
    env.repository
        .commit_files(&[("modules/7/main.tf", "new")], "next")
        .unwrap();
    for reference in [pinned(&first), Reference::Tag("v1".into())] {
        let checkout = env.fetch_partial_ref(&reference, "modules/7/").await.unwrap();
        assert_eq!(checkout.commit().id.to_string(), first);
        assert_eq!(readable(&checkout), ["modules/7/main.tf"]);
    }
}

#[tokio::test]
async fn another_process_reuses_a_partial_mirror() {
    let env = env_with_filter().await;
    env.fetch_partial_of("modules/7/").await.unwrap();
    env.fetched();
    let TestEnvironment {
        mirrors,
        repository,
        server,
        url,
        transport,
        root,
    } = env;
    drop(mirrors);
    let env = TestEnvironment {
        mirrors: reopen(root.path()),
        repository,
        server,
        url,
        transport,
        root,
    };
    env.fetch_partial_of("modules/7/").await.unwrap();
    assert_eq!(env.fetched(), (0, 0));
}

#[tokio::test]
async fn without_filter_support_everything_is_fetched() {
    let env = TestEnvironment::with_files().await;
    let checkout = env.fetch_partial_of("modules/7/").await.unwrap();
    assert_eq!((readable(&checkout).len(), env.fetched().1), (100, 1));
    // The same applies to a server without version 2.
    let env = env_with_filter().await;
    env.server.limit_protocol_version(1);
    let checkout = env.fetch_partial_of("modules/7/").await.unwrap();
    assert_eq!((readable(&checkout).len(), env.fetched().1), (100, 1));
}

#[tokio::test]
async fn a_server_without_blobs_by_hash_disables_partial_mirrors() {
    let env = env_with_filter().await;
    let refusal = "0023ERR upload-pack: not our ref x\n".replace("0023", &format!("{:04x}", 4 + 31));
    let page = Fault::Page("application/x-git-upload-pack-result", refusal);
    env.server
        .inject(Injection::new(Scope::FETCH, page).when_body_lacks("deepen"));
    let checkout = env.fetch_partial_of("modules/7/").await.unwrap();
    assert_eq!((readable(&checkout).len(), env.fetched().1), (100, 3));
    env.repository
        .commit_files(&[("modules/7/main.tf", "new")], "next")
        .unwrap();
    let checkout = env.fetch_partial_of("modules/7/").await.unwrap();
    assert_eq!((readable(&checkout).len(), env.fetched().1), (100, 1));
}

#[tokio::test]
async fn blobs_missing_on_disk_are_fetched_again() {
    let env = env_with_filter().await;
    let checkout = env.fetch_partial_of("modules/7/").await.unwrap();
    drop(checkout);
    let mut packs = env.files(|name| name.starts_with("pack-"));
    packs.retain(|path| path.extension().is_some_and(|extension| extension == "pack"));
    packs.sort_by_key(|path| std::fs::metadata(path).unwrap().modified().unwrap());
    let newest = packs.pop().unwrap();
    for extension in ["pack", "idx"] {
        std::fs::remove_file(newest.with_extension(extension)).unwrap();
    }
    let checkout = env.fetch_partial_of("modules/7/").await.unwrap();
    assert_eq!(readable(&checkout), ["modules/7/main.tf"]);
}

#[tokio::test]
async fn many_blobs_are_fetched_in_several_requests() {
    let env = TestEnvironment::new().await;
    for number in 0..10_500_u32 {
        env.repository
            .write(&format!("many/{}/{number}", number % 16), number.to_string())
            .unwrap();
    }
    env.repository.commit("many").unwrap();
    let allow = ["config", "uploadpack.allowFilter", "true"];
    env.repository.git(allow).unwrap();
    let checkout = env.fetch_partial_of("many/").await.unwrap();
    assert_eq!(env.fetched().1, 3);
    assert_eq!(readable(&checkout).len(), 10_500);
}

#[tokio::test]
async fn several_selections_at_once_share_a_mirror() {
    let env = shared(env_with_filter().await);
    let fetch_partial_of = |expected: &'static str| {
        let env = Arc::clone(&env);
        async move { readable(&env.fetch_partial_of(expected).await.unwrap()) }
    };
    let (one, two, three) = tokio::join!(
        fetch_partial_of("modules/1/"),
        fetch_partial_of("modules/2/"),
        fetch_partial_of("modules/3/")
    );
    for (found, number) in [(one, 1), (two, 2), (three, 3)] {
        assert!(found.contains(&format!("modules/{number}/main.tf")), "{found:?}");
        assert!(found.len() <= 3, "{found:?}");
    }
}
