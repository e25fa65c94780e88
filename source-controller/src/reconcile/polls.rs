//! Lookups that objects share: those of the same remote, asked as the same reader on the same way for the same reference,
//! wait for one that is under way, and believe one that was answered less than a second ago. Where an event called for the
//! pass, only a lookup counts that began after it. A failure is nobody's but the asker's: those who waited for it ask
//! themselves.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::resolve::Source;
use crate::git::{FetchError, Head, Reference};

/// An answer is believed by others for this long from when it was asked for: shorter than any sensible interval, long
/// enough for objects that are called by one event.
const FRESH: Duration = Duration::from_secs(1);

/// What is asked: the remote's URL, the digest of who asks there on which way, and the reference.
type Question = (String, [u8; 32], Reference);

/// Lookups under way, and those just answered.
#[derive(Debug, Default)]
pub(super) struct Polls {
    asked: Mutex<HashMap<Question, Asked>>,
}

#[derive(Clone, Debug)]
struct Asked {
    since: Instant,
    answer: watch::Receiver<Option<Head>>,
}

impl Polls {
    /// The answer to the source's question, of others if there is one, else of `lookup`.
    pub(super) async fn share(
        &self,
        source: &Source,
        lookup: impl Future<Output = Result<Head, FetchError>>,
    ) -> Result<Head, FetchError> {
        let remote = &source.remote;
        let question = (
            remote.address.url().as_str().to_owned(),
            remote.way(),
            source.reference.clone(),
        );
        if let Some(mut asked) = self.asked_by_others(&question, source.call) {
            // Its end without an answer is a failure, or a pass that was given up.
            let answered = tokio::time::timeout(remote.timeout, asked.answer.wait_for(Option::is_some)).await;
            match answered {
                Ok(Ok(head)) => {
                    if let Some(head) = head.clone() {
                        tracing::debug!("lookup shared with another object");
                        return Ok(head);
                    }
                }
                Ok(Err(_)) => {}
                Err(_) => {
                    return Err(FetchError::TimedOut {
                        host: remote.address.host(),
                        limit: remote.timeout,
                    });
                }
            }
        }
        let (answer, asked) = watch::channel(None);
        self.announce(question, asked);
        let head = lookup.await?;
        answer.send_replace(Some(head.clone()));
        Ok(head)
    }

    /// A lookup of others that is still worth something to whoever was called then.
    fn asked_by_others(&self, question: &Question, call: Option<Instant>) -> Option<Asked> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked
            .get(question)
            .filter(|asked| asked.is_worth_something() && call.is_none_or(|call| asked.since > call))
            .cloned()
    }

    fn announce(&self, question: Question, answer: watch::Receiver<Option<Head>>) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.retain(|_, asked| asked.is_worth_something());
        let since = Instant::now();
        asked.insert(question, Asked { since, answer });
    }
}

impl Asked {
    fn is_worth_something(&self) -> bool {
        let answered = self.answer.borrow().is_some();
        let under_way = !answered && self.answer.has_changed().is_ok();
        under_way || (answered && self.since.elapsed() < FRESH)
    }
}
