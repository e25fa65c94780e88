//! Debounces keys that arrive in bursts.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::stream::{self, Stream, StreamExt as _};

use crate::schedule::ObjectKey;

/// How long keys are collected: several writes of one change count once, without a noticeable delay.
pub(super) const DEBOUNCE: Duration = Duration::from_millis(200);

/// Collects keys for `span` after the first one, then yields each of them once.
pub(super) fn debounce(
    keys: impl Stream<Item = ObjectKey> + Send + 'static,
    span: Duration,
) -> impl Stream<Item = ObjectKey> + Send {
    stream::unfold(keys.boxed().fuse(), move |mut keys| async move {
        let mut pending = BTreeSet::from([keys.next().await?]);
        let end = tokio::time::sleep(span);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => break,
                key = keys.next() => match key {
                    Some(key) => pending.insert(key),
                    None => break,
                },
            };
        }
        Some((stream::iter(pending), keys))
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
    async fn a_burst_yields_each_key_once() {
        let (ask, asked) = mpsc::unbounded();
        let mut keys = debounce(asked, DEBOUNCE).boxed();
        for name in ["b", "a", "b", "b"] {
            ask.unbounded_send(key(name)).unwrap();
        }
        let begin = tokio::time::Instant::now();
        assert_eq!(keys.next().await, Some(key("a")));
        assert!(begin.elapsed() >= DEBOUNCE);
        ask.unbounded_send(key("b")).unwrap();
        assert_eq!(keys.next().await, Some(key("b")));
        assert_eq!(keys.next().await, Some(key("b")));
        ask.unbounded_send(key("c")).unwrap();
        drop(ask);
        assert_eq!(keys.next().await, Some(key("c")));
        assert_eq!(keys.next().await, None);
    }
}
