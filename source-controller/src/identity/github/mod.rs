//! GitHub Apps: an assertion signed with the App's key is exchanged for a token of one installation.

mod app;
mod assertion;

use http::{HeaderName, Method, StatusCode};
use jiff::Timestamp;
use url::Url;

pub use app::{App, AppError};

use super::answer::{self, Grant};
use super::call::{Call, Pool, below};
use super::error::TokenError;
use app::Installation;
use assertion::assertion;

/// User name beside which GitHub takes a token as password.
pub(super) const USERNAME: &str = "x-access-token";

/// A new token of the App's installation.
///
/// # Errors
/// The App's key is unusable, or GitHub refuses, does not answer, or answers something else.
pub(super) async fn token(app: &App, pool: &Pool, now: Timestamp) -> Result<Grant, TokenError> {
    let assertion = assertion(app, now)?;
    let ask = |method: Method, url: Url, what: &'static str| {
        let call = Call::new(method, url, what).bearer(&assertion);
        call.header(http::header::ACCEPT, "application/vnd.github+json")
            .header(HeaderName::from_static("x-github-api-version"), "2022-11-28")
    };
    let installation = match &app.installation {
        Installation::Id(id) => id.clone(),
        Installation::Owner(owner) => {
            const WHAT: &str = "look the installation of the GitHub App up";
            let of_organisation = below(&app.base, ["orgs", owner, "installation"]);
            let (answer, secrets) = ask(Method::GET, of_organisation, WHAT).send(pool).await?;
            let answer = match answer.status {
                status if status.is_success() => answer,
                StatusCode::NOT_FOUND => {
                    let of_user = below(&app.base, ["users", owner, "installation"]);
                    ask(Method::GET, of_user, WHAT).succeed(pool).await?
                }
                _ => return Err(answer.refused(&secrets)),
            };
            answer.read(answer::installation_id)?.to_string()
        }
    };
    let url = below(
        &app.base,
        ["app", "installations", &installation, "access_tokens"],
    );
    let answer = ask(Method::POST, url, "give a token of the GitHub App's installation")
        .succeed(pool)
        .await?;
    answer.read(answer::installation_token)
}
