//! The story on `sluice up --state`.

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
        let ended = telling::end(&story).await;
        ended.unwrap_or_else(|error| panic!("{error}\n{}", program.log_tail()));
        trace.check(&telling::golden(&told));

        program.end().await.unwrap();
        assert_eq!(leftovers(folder.path()), Vec::<String>::new());
    });
}
