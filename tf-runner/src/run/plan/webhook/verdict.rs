//! The verdict of a webhook's answer (pure).

use serde_json::Value;
use sluice_tf_core::bundle::Webhook;
use sluice_tf_core::cli::text::truncate;
use sluice_tf_core::redaction::Redactor;
use sluice_tf_core::template::{Delimiters, Functions, TemplateError, render};

use crate::run::lifecycle::error::WebhookError;

/// Maximum number of characters of the message of a rejection.
const MESSAGE_LIMIT: usize = 4096;

/// Renders the test expression, and returns `Ok` if it passes. The message of a service may quote the request: `secrets` are
/// redacted.
pub(super) fn check(
    host: &str,
    webhook: &Webhook,
    answer: &Value,
    secrets: &Redactor,
) -> Result<(), WebhookError> {
    let rendered = |field, text: &str| {
        let rendered: Result<String, TemplateError> =
            render(text, Delimiters::DollarCurly, Functions::BuiltIn, answer);
        rendered.map_err(|source| WebhookError::Template {
            host: host.to_owned(),
            field,
            source,
        })
    };
    let verdict = rendered("testExpression", &webhook.test_expression)?;
    match verdict.trim() {
        "true" | "yes" => Ok(()),
        "false" | "no" => {
            let message = rendered("errorMessageTemplate", &webhook.error_message_template)?;
            // Redacted before it is cut: half a value would not be recognised.
            let message = truncate(&secrets.redact(message.trim()), MESSAGE_LIMIT);
            Err(WebhookError::Rejected(if message.is_empty() {
                format!("webhook {host}: rejected the plan")
            } else {
                message
            }))
        }
        _ => Err(WebhookError::InvalidVerdict {
            host: host.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(test: &str, message: &str) -> Result<(), String> {
        let webhook = Webhook {
            url: "https://h".into(),
            payload: "SpecOnly".into(),
            test_expression: test.into(),
            error_message_template: message.into(),
        };
        let answer =
            json!({ "passed": true, "violated": false, "violations": [{ "description": "open to all" }] });
        check("h", &webhook, &answer, &secrets()).map_err(|error| error.to_string())
    }

    fn secrets() -> Redactor {
        let mut secrets = Redactor::default();
        secrets.add_text("quoted-of-the-plan");
        secrets
    }

    #[test]
    fn yes_and_true_accept_the_plan() {
        assert_eq!(verdict("${{ .passed }}", ""), Ok(()));
        assert_eq!(verdict(" yes\n", ""), Ok(()));
        assert_eq!(verdict("${{ not .violated }}", ""), Ok(()));
    }

    #[test]
    fn no_and_false_reject_the_plan_with_the_message() {
        let message = "Violation: ${{ (index .violations 0).description }}";
        assert_eq!(
            verdict("${{ .violated }}", message),
            Err("Violation: open to all".into())
        );
        assert_eq!(verdict("no", ""), Err("webhook h: rejected the plan".into()));
    }

    #[test]
    fn a_value_at_the_cut_of_a_message_is_removed_completely() {
        let text = |length| format!("{}quoted-of-the-plan of it", "x".repeat(length));
        assert_eq!(
            verdict("no", &text(3)),
            Err("xxx(sensitive) of it".into()),
            "wherever it stands"
        );
        let cut = verdict("no", &text(MESSAGE_LIMIT - 8)).unwrap_err();
        assert!(cut.ends_with("x(sensiti..."), "{}", &cut[MESSAGE_LIMIT - 20..]);
    }

    #[test]
    fn anything_else_is_an_error_that_quotes_nothing() {
        let error = verdict("${{ .violations }}", "").unwrap_err();
        assert_eq!(
            error,
            "webhook h: testExpression does not render true, yes, false or no"
        );
        assert!(
            verdict("${{ .violated ", "")
                .unwrap_err()
                .starts_with("webhook h: testExpression: ")
        );
        assert!(
            verdict("no", "${{ nope }}")
                .unwrap_err()
                .starts_with("webhook h: errorMessageTemplate: ")
        );
    }
}
