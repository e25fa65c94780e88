//! A request that lasts: a terminal shows for which object the program waits.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::line::{self, ProgressLine};

/// Delay before the line is shown: most answers arrive earlier.
const DISPLAY_DELAY: Duration = Duration::from_secs(1);

/// Whether a line is shown: of requests at the same time, only one has it. A process has one terminal.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// Waits for the answer to a request. After a second, a terminal shows the object; the answer erases the line.
pub(crate) async fn request<T>(object: &str, request: impl Future<Output = T>) -> T {
    show_after(DISPLAY_DELAY, object, request).await
}

async fn show_after<T>(delay: Duration, object: &str, request: impl Future<Output = T>) -> T {
    let since = Instant::now();
    let mut request = pin!(request);
    if let Ok(answer) = tokio::time::timeout(delay, request.as_mut()).await {
        return answer;
    }
    if IS_SHOWN.swap(true, Ordering::Relaxed) {
        return request.await;
    }
    let _shown = Shown;
    let mut line = ProgressLine::of_request(object, since);
    let mut redraws = tokio::time::interval(line::REDRAW);
    loop {
        tokio::select! {
            answer = request.as_mut() => return answer,
            _ = redraws.tick() => line.redraw(),
        }
    }
}

/// Gives the line to the next request, also if this one is dropped.
struct Shown;

impl Drop for Shown {
    fn drop(&mut self) {
        IS_SHOWN.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn each_request_has_its_answer_and_one_has_the_line() {
        let ((send_first, first), (send_second, second)) = (oneshot::channel(), oneshot::channel());
        let answers = async {
            while !IS_SHOWN.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
            send_second.send(2).unwrap();
            send_first.send(1).unwrap();
        };
        let all = async {
            tokio::join!(
                show_after(Duration::ZERO, "terraforms", first),
                show_after(Duration::ZERO, "gitrepositories", second),
                answers,
            )
        };
        let ended = tokio::time::timeout(Duration::from_mins(1), all).await.unwrap();
        assert_eq!(ended, (Ok(1), Ok(2), ()));
        assert!(!IS_SHOWN.load(Ordering::Relaxed), "the line is free again");
    }
}
