//! Keys that come in bursts, each once.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::stream::{self, Stream, StreamExt as _};

use crate::schedule::ObjectKey;

/// How long keys are gathered: several writes of one change are one, and nobody waits noticeably.
pub(super) const SPAN: Duration = Duration::from_millis(200);

/// Gathers keys for `span`, counted from the first, and then yields each of them once.
pub(super) fn gathered(
    keys: impl Stream<Item = ObjectKey> + Send + 'static,
    span: Duration,
) -> impl Stream<Item = ObjectKey> + Send {
    stream::unfold(keys.boxed().fuse(), move |mut keys| async move {
        let mut held = BTreeSet::from([keys.next().await?]);
        let end = tokio::time::sleep(span);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => break,
                key = keys.next() => match key {
                    Some(key) => held.insert(key),
                    None => break,
                },
            };
        }
        Some((stream::iter(held), keys))
    })
    .flatten()
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;

    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey {
            namespace: "ns".into(),
            name: name.into(),
        }
    }

    #[tokio::test]
    async fn a_burst_is_one_key_and_nothing_is_lost() {
        let (ask, asked) = mpsc::unbounded();
        let mut keys = gathered(asked, SPAN).boxed();
        for name in ["b", "a", "b", "b"] {
            ask.unbounded_send(key(name)).unwrap();
        }
        let begin = tokio::time::Instant::now();
        assert_eq!(keys.next().await, Some(key("a")));
        assert!(begin.elapsed() >= SPAN);
        ask.unbounded_send(key("b")).unwrap();
        assert_eq!(keys.next().await, Some(key("b")));
        assert_eq!(keys.next().await, Some(key("b")));
        ask.unbounded_send(key("c")).unwrap();
        drop(ask);
        assert_eq!(keys.next().await, Some(key("c")));
        assert_eq!(keys.next().await, None);
    }
}
