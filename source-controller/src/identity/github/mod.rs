//! GitHub Apps: exchanges an assertion signed with the App's key for an installation token.

mod app;
mod assertion;

use app::Installation;
pub use app::{App, AppError};
use assertion::assertion;
use http::{HeaderName, Method, StatusCode};
use jiff::Timestamp;
use url::Url;

use super::error::TokenError;
use super::request::{Pool, ProviderRequest, join_path};
use super::response::{self, AccessToken};

/// Username for a token as password.
pub(super) const USERNAME: &str = "x-access-token";

/// Requests a new installation token.
///
/// # Errors
/// The App's key is invalid, or GitHub refuses, does not respond, or sends an invalid response.
pub(super) async fn token(app: &App, pool: &Pool, now: Timestamp) -> Result<AccessToken, TokenError> {
    let assertion = assertion(app, now)?;
    let request = |method: Method, url: Url, what: &'static str| {
        ProviderRequest::new(method, url, what)
            .bearer(&assertion)
            .header(http::header::ACCEPT, "application/vnd.github+json")
            .header(HeaderName::from_static("x-github-api-version"), "2022-11-28")
    };
    let installation = match &app.installation {
        Installation::Id(id) => id.clone(),
        Installation::Owner(owner) => {
            const WHAT: &str = "look up the installation of the GitHub App";
            let of_organisation = join_path(&app.base, ["orgs", owner, "installation"]);
            let (response, secrets) = request(Method::GET, of_organisation, WHAT)
                .send_any_status(pool)
                .await?;
            let response = match response.status {
                status if status.is_success() => response,
                StatusCode::NOT_FOUND => {
                    let of_user = join_path(&app.base, ["users", owner, "installation"]);
                    request(Method::GET, of_user, WHAT).send(pool).await?
                }
                _ => return Err(response.to_error(&secrets)),
            };
            response.read(response::installation_id)?.to_string()
        }
    };
    let path = ["app", "installations", &installation, "access_tokens"];
    let what = "issue a token for the GitHub App's installation";
    let request = request(Method::POST, join_path(&app.base, path), what);
    let response = request.send(pool).await?;
    response.read(response::installation_token)
}
