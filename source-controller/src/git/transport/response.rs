//! Responses of Git servers: their status, and their bodies.

use std::time::Duration;

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use sluice_runtime::failure::chain;

use super::super::error::{FetchError, ServerMessage};
use super::super::protocol::sanitize_text;
use super::super::remote::Remote;

/// Maximum number of bytes that are read of an error page.
const MAX_ERROR_BODY_BYTES: usize = 4 * 1024;
/// Accepted range of `Retry-After`.
const RETRY_AFTER_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_hours(1);
/// Delay for 429 without `Retry-After`, and for an invalid `Retry-After`.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_mins(1);

/// Maps every status except 200 to an error. `is_trusted` is whether credentials were sent to the server, if there are any;
/// `server` is its address for the user, or its host.
pub(super) async fn status_error(
    remote: &Remote,
    server: &str,
    is_trusted: bool,
    response: Response<Incoming>,
) -> FetchError {
    let status = response.status();
    if let Some(wait) = retry_after(status, response.headers()) {
        return FetchError::Throttled {
            host: remote.address.host(),
            status: status.as_u16(),
            wait,
            until: None,
        };
    }
    let page = read_prefix(response.into_body(), MAX_ERROR_BODY_BYTES)
        .await
        .unwrap_or_default();
    let mut message = ServerMessage(sanitize_text(&page));
    let refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    if refused && !is_trusted && remote.has_credentials() {
        message = ServerMessage(format!(
            "the address redirects to '{server}', to which the credentials were not sent: to send them there, \
             write that address into spec.url"
        ));
    }
    let url = remote.address.to_string();
    match status {
        StatusCode::UNAUTHORIZED => FetchError::AuthenticationRequired { url, message },
        StatusCode::FORBIDDEN => FetchError::AuthorizationFailed { url, message },
        StatusCode::NOT_FOUND => FetchError::RepositoryNotFound { url, message },
        // Only a forwarding proxy returns this; a tunnel fails the connection.
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => FetchError::Status {
            url,
            status: status.as_u16(),
            message: ServerMessage(
                "the proxy requires a username and a password, or rejects the provided ones".to_owned(),
            ),
        },
        _ => FetchError::Status {
            url,
            status: status.as_u16(),
            message,
        },
    }
}

/// Returns the requested delay: always for 429, for 503 and 403 if `Retry-After` is set. A date is compared with the
/// server's own clock.
fn retry_after(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    match (status, after) {
        (StatusCode::TOO_MANY_REQUESTS, None) => return Some(DEFAULT_RETRY_AFTER),
        // GitHub uses 403 where others use 429.
        (
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::FORBIDDEN,
            Some(_),
        ) => {}
        _ => return None,
    }
    let after = after.unwrap_or_default().trim();
    let seconds = after.parse().ok().map(Duration::from_secs);
    let date = |text: &str| {
        jiff::fmt::rfc2822::DateTimeParser::new()
            .parse_timestamp(text)
            .ok()
    };
    let until = || {
        let now = date(headers.get(DATE)?.to_str().ok()?)?;
        Some(Duration::try_from(date(after)?.duration_since(now)).unwrap_or_default())
    };
    Some(
        seconds
            .or_else(until)
            .unwrap_or(DEFAULT_RETRY_AFTER)
            .clamp(*RETRY_AFTER_RANGE.start(), *RETRY_AFTER_RANGE.end()),
    )
}

/// Reads the first `limit` bytes of a body.
pub(super) async fn read_prefix(body: Incoming, limit: usize) -> Result<Vec<u8>, String> {
    let mut body = std::pin::pin!(Limited::new(body, limit));
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => return Ok(bytes),
            Err(error) => return Err(chain(error.as_ref())),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// Status, headers, expected delay in seconds.
    type Case<'a> = (u16, &'a [(http::header::HeaderName, &'a str)], Option<u64>);

    #[test]
    fn retry_after_is_respected() {
        let wait_seconds = |status: u16, pairs: &[(http::header::HeaderName, &str)]| {
            let headers = pairs
                .iter()
                .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
            retry_after(StatusCode::from_u16(status).unwrap(), &headers.collect()).map(|wait| wait.as_secs())
        };
        let now = (DATE, "Sun, 06 Nov 1994 08:49:37 GMT");
        let cases: &[Case<'_>] = &[
            (429, &[], Some(60)),
            (429, &[(RETRY_AFTER, "7")], Some(7)),
            (429, &[(RETRY_AFTER, "0")], Some(1)),
            (429, &[(RETRY_AFTER, "99999999999")], Some(3600)),
            (429, &[(RETRY_AFTER, "soon")], Some(60)),
            (503, &[(RETRY_AFTER, "30")], Some(30)),
            (503, &[], None),
            (500, &[(RETRY_AFTER, "30")], None),
            (
                429,
                &[now.clone(), (RETRY_AFTER, "Sun, 06 Nov 1994 08:51:37 GMT")],
                Some(120),
            ),
            (
                429,
                &[now, (RETRY_AFTER, "Sun, 06 Nov 1994 08:00:00 GMT")],
                Some(1),
            ),
            (429, &[(RETRY_AFTER, "Sun, 06 Nov 1994 08:51:37 GMT")], Some(60)),
        ];
        for (status, headers, expected) in cases {
            assert_eq!(wait_seconds(*status, headers), *expected, "{status} {headers:?}");
        }
    }
}
