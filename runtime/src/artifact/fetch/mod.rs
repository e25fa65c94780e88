//! Downloads an artifact to a file, with limits on size and time, digest verification and retries.

mod error;

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
pub use error::FetchError;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use tokio::io::AsyncWriteExt as _;
use url::Url;

use super::checksum::Checksum;
use crate::failure::chain;
use crate::http::HttpClient;
use crate::redact::MaskedUrl;
use crate::shutdown::Token;

/// An artifact, as in a source's status.
#[derive(Clone, Copy, Debug)]
pub struct ArtifactRef<'a> {
    /// Its URL.
    pub url: &'a str,
    /// `algorithm:hex`, over the compressed bytes.
    pub digest: &'a str,
    /// Its size in bytes, if known.
    pub size: Option<u64>,
}

/// Downloads artifacts.
#[derive(Clone, Debug)]
pub struct Fetcher {
    /// The connection pool.
    pub client: HttpClient<Empty<Bytes>>,
    /// Maximum size of an artifact in bytes.
    pub limit: u64,
    /// Retries after the first attempt (Flux: `--http-retry`, 9).
    pub retries: u32,
    /// Delay before the first retry; doubled each time.
    pub min_wait: Duration,
    /// Maximum delay between attempts, also for `Retry-After`.
    pub max_wait: Duration,
    /// Maximum idle time of the server within an attempt.
    pub idle: Duration,
    /// Maximum duration of an attempt.
    pub total: Duration,
    /// `host[:port]` that replaces the host of the URL (`SOURCE_CONTROLLER_LOCALHOST`).
    pub host: Option<String>,
    /// Delay after 404: the source is about to publish another artifact.
    pub absent_wait: Duration,
}

impl Fetcher {
    /// Creates a fetcher with Flux's retry settings and a limit of 1 GiB.
    #[must_use]
    pub const fn new(client: HttpClient<Empty<Bytes>>) -> Self {
        Self {
            client,
            limit: 1 << 30,
            retries: 9,
            min_wait: Duration::from_secs(5),
            max_wait: Duration::from_secs(30),
            idle: Duration::from_secs(30),
            total: Duration::from_mins(15),
            host: None,
            absent_wait: Duration::from_secs(30),
        }
    }

    /// Downloads `wanted` to the file `to` and returns its size. The file exists only on success.
    ///
    /// # Errors
    /// See [`FetchError`]; connection errors, 429 and 5xx only after the retries.
    pub async fn fetch(&self, wanted: ArtifactRef<'_>, to: &Path, stop: &Token) -> Result<u64, FetchError> {
        self.fetch_with(wanted, to, stop, |_| ()).await
    }

    /// As [`Self::fetch`]. Calls `on_retry` for each failed attempt that is followed by another.
    ///
    /// # Errors
    /// As [`Self::fetch`].
    pub async fn fetch_with(
        &self,
        wanted: ArtifactRef<'_>,
        to: &Path,
        stop: &Token,
        mut on_retry: impl FnMut(&FailedAttempt) + Send,
    ) -> Result<u64, FetchError> {
        let url = self.address(wanted.url)?;
        let checksum = Checksum::parse(wanted.digest)?;
        if wanted.size.is_some_and(|size| size > self.limit) {
            return Err(FetchError::TooLarge {
                url: MaskedUrl::from(&url),
                limit: self.limit,
            });
        }
        let limit = self.retries.saturating_add(1);
        let (mut number, mut wait) = (1, self.min_wait);
        loop {
            let result = self.attempt(&url, wanted.size, checksum.clone(), to, stop).await;
            let failed = match result {
                Ok(bytes) => return Ok(bytes),
                Err(failed) => failed,
            };
            let asked = match &failed {
                Attempt::Final(_) => return Err(failed.into_error(&url)),
                _ if number == limit => return Err(failed.into_error(&url)),
                Attempt::Refused { after, .. } => after.unwrap_or(Duration::ZERO),
                Attempt::Broken(_) | Attempt::Silent(_) => Duration::ZERO,
            };
            let failed = FailedAttempt {
                number,
                limit,
                delay: wait.max(asked).min(self.max_wait),
                error: failed.into_error(&url),
            };
            tracing::warn!(
                error = &failed.error as &dyn std::error::Error,
                attempt = number,
                "the artifact cannot be downloaded yet"
            );
            on_retry(&failed);
            tokio::select! {
                () = tokio::time::sleep(failed.delay) => {}
                () = stop.cancelled() => return Err(FetchError::Stopped),
            }
            (number, wait) = (number + 1, wait.saturating_mul(2));
        }
    }

    /// Makes one attempt, until `stop`.
    async fn attempt(
        &self,
        url: &Url,
        size: Option<u64>,
        checksum: Checksum,
        to: &Path,
        stop: &Token,
    ) -> Result<u64, Attempt> {
        let download = tokio::time::timeout(self.total, self.download(url, size, checksum, to));
        let result = tokio::select! {
            result = download => result.unwrap_or_else(|_| Err(Attempt::Silent(self.total))),
            () = stop.cancelled() => Err(Attempt::Final(FetchError::Stopped)),
        };
        if result.is_err() {
            // An incomplete file must not look like an artifact.
            drop(tokio::fs::remove_file(to).await);
        }
        result
    }

    /// Returns the URL to request, with the host replaced if one is set.
    fn address(&self, text: &str) -> Result<Url, FetchError> {
        let bad = || FetchError::BadUrl {
            url: MaskedUrl::new(text),
        };
        let mut url = Url::parse(text).map_err(|_| bad())?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(bad());
        }
        if let Some(host) = &self.host {
            let base = Url::parse(&format!("{}://{host}", url.scheme())).map_err(|_| bad())?;
            url.set_host(base.host_str()).map_err(|_| bad())?;
            url.set_port(base.port()).map_err(|()| bad())?;
        }
        Ok(url)
    }

    async fn download(
        &self,
        url: &Url,
        size: Option<u64>,
        checksum: Checksum,
        to: &Path,
    ) -> Result<u64, Attempt> {
        let request = Request::get(url.as_str())
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::USER_AGENT, concat!("sluice/", env!("CARGO_PKG_VERSION")))
            .body(Empty::new())
            .map_err(|_| {
                Attempt::Final(FetchError::BadUrl {
                    url: MaskedUrl::from(url),
                })
            })?;
        let response = tokio::time::timeout(self.idle, self.client.request(request))
            .await
            .map_err(|_| Attempt::Silent(self.idle))?
            .map_err(|error| Attempt::Broken(Box::new(error)))?;
        self.accept(url, size, &response)?;
        self.receive(url, size, checksum, response.into_body(), to).await
    }

    /// Validates the head of the response.
    fn accept(&self, url: &Url, size: Option<u64>, response: &Response<Incoming>) -> Result<(), Attempt> {
        let masked = || MaskedUrl::from(url);
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => {
                return Err(Attempt::Final(FetchError::Absent {
                    url: masked(),
                    wait: self.absent_wait,
                }));
            }
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                let after = response
                    .headers()
                    .get(header::RETRY_AFTER)
                    .and_then(|value| value.to_str().ok());
                let after = after
                    .and_then(|text| text.trim().parse().ok())
                    .map(Duration::from_secs);
                return Err(Attempt::Refused { status, after });
            }
            status => {
                return Err(Attempt::Final(FetchError::Status {
                    url: masked(),
                    status,
                }));
            }
        }
        let length = response
            .headers()
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok());
        let Some(length) = length.and_then(|text| text.parse::<u64>().ok()) else {
            return Ok(());
        };
        if length > self.limit {
            return Err(Attempt::Final(FetchError::TooLarge {
                url: masked(),
                limit: self.limit,
            }));
        }
        match size {
            Some(size) if size != length => Err(Attempt::Final(FetchError::Size {
                url: masked(),
                expected: size,
                got: length,
            })),
            _ => Ok(()),
        }
    }

    async fn receive(
        &self,
        url: &Url,
        size: Option<u64>,
        mut checksum: Checksum,
        mut body: Incoming,
        to: &Path,
    ) -> Result<u64, Attempt> {
        let masked = || MaskedUrl::from(url);
        let failed = |source| Attempt::Final(FetchError::File { source });
        let mut file = tokio::fs::File::create(to).await.map_err(failed)?;
        let mut bytes: u64 = 0;
        loop {
            let frame = tokio::time::timeout(self.idle, body.frame())
                .await
                .map_err(|_| Attempt::Silent(self.idle))?;
            let Some(frame) = frame else { break };
            let Ok(chunk) = frame
                .map_err(|error| Attempt::Broken(Box::new(error)))?
                .into_data()
            else {
                continue;
            };
            bytes = bytes.saturating_add(chunk.len() as u64);
            if bytes > self.limit {
                return Err(Attempt::Final(FetchError::TooLarge {
                    url: masked(),
                    limit: self.limit,
                }));
            }
            checksum.update(&chunk);
            file.write_all(&chunk).await.map_err(failed)?;
        }
        file.flush().await.map_err(failed)?;
        if let Some(size) = size.filter(|size| *size != bytes) {
            return Err(Attempt::Final(FetchError::Size {
                url: masked(),
                expected: size,
                got: bytes,
            }));
        }
        checksum.finish().map_err(|computed| {
            Attempt::Final(FetchError::Digest {
                url: masked(),
                computed,
            })
        })?;
        Ok(bytes)
    }
}

/// A failed attempt that is followed by another.
#[derive(Debug)]
pub struct FailedAttempt {
    /// Its number; the first is 1.
    pub number: u32,
    /// Number of attempts before the download fails.
    pub limit: u32,
    /// Delay before the next attempt.
    pub delay: Duration,
    /// Why it failed.
    pub error: FetchError,
}

impl std::fmt::Display for FailedAttempt {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            number,
            limit,
            delay,
            error,
        } = self;
        let cause = chain(error);
        write!(
            formatter,
            "attempt {number} of {limit} failed, the next follows in {delay:?}: {cause}"
        )
    }
}

/// Why an attempt failed, which decides about a retry.
#[derive(Debug)]
enum Attempt {
    Final(FetchError),
    Refused {
        status: StatusCode,
        after: Option<Duration>,
    },
    Broken(Box<dyn std::error::Error + Send + Sync>),
    Silent(Duration),
}

impl Attempt {
    fn into_error(self, url: &Url) -> FetchError {
        let url = MaskedUrl::from(url);
        match self {
            Self::Final(error) => error,
            Self::Refused { status, .. } => FetchError::Status { url, status },
            Self::Broken(source) => FetchError::Broken { url, source },
            Self::Silent(limit) => FetchError::Silent { url, limit },
        }
    }
}

#[cfg(test)]
mod tests;
