//! The story on `sluice up --state`.

use std::path::Path;

use crate::{
    telling::{self, Trace},
    within_deadline,
    world::{Origin, leftovers},
};
use sluice_tests::{
    program::{Program, Setup},
    story::{Story, manifests},
};

#[test]
fn the_story_on_sluice_up() {
    within_deadline(async {
        let origin = Origin::start().await;
        let folder = tempfile::tempdir().unwrap();
        let setup = Setup::new(folder.path());
        setup.write(&[]).unwrap();
        let program = Program::start(setup.clone()).await.unwrap();
        let client = program.client();
        let trace = Trace::follow(client.clone());
        let story = Story::new(client.clone());
        story.make(&manifests(&origin.url)).await.unwrap();

        let told = telling::tell(&story, &origin.repository).await;
        let told = told.unwrap_or_else(|error| panic!("{error}\n{}", program.log_tail()));
        telling::assert_applied_once(&story).await.unwrap();
        let text = telling::event(&client, "NoRelevantChange").await.unwrap();
        assert!(text.starts_with(&told.revisions[2]), "{text}");
        assert_eq!(refusals(folder.path()), Vec::<String>::new());
        let ended = telling::end(&story).await;
        ended.unwrap_or_else(|error| panic!("{error}\n{}", program.log_tail()));
        trace.check(&telling::golden(&told));

        program.end().await.unwrap();
        assert_eq!(leftovers(folder.path()), Vec::<String>::new());
    });
}

/// What the credentials of runs were not good for, as the logs of the runs that are kept tell it.
fn refusals(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join("state/runs/runs")).unwrap();
    let logs: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "log"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    assert!(logs.iter().any(|log| !log.is_empty()), "runs have logs");
    let lines = logs.iter().flat_map(|log| log.lines());
    lines
        .filter(|line| line.contains("forbidden"))
        .map(str::to_owned)
        .collect()
}
