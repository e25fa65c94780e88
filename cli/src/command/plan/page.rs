//! A plan as one HTML page without scripts and without anything to load, to attach it to a ticket or to send it.

use std::fmt::Write as _;

use sluice_api::run::TerraformRun;
use sluice_api::terraform::Terraform;

use crate::{run, stack};

/// Style of the page. Colours differ in lightness too, and each change has its sign.
const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1d2733;background:#fff}\
    h1{font-size:1.3rem}dt{float:left;width:7rem;color:#5b6876}dd{margin:0 0 0 7rem;overflow-wrap:anywhere}\
    li{font-family:ui-monospace,monospace;list-style:none;overflow-wrap:anywhere}ul{padding:0}\
    .delete,.replace{color:#a4161a;font-weight:600}.create{color:#1b6e3c}.update,.forget{color:#7a5200}\
    pre{background:#f4f6f8;padding:1rem;overflow:auto;font-size:13px}.held{border-left:4px solid #7a5200;padding-left:1rem}";

/// Formats the page.
#[must_use]
pub(super) fn page(stack: &Terraform, run: &TerraformRun) -> String {
    let status = run.status.clone().unwrap_or_default();
    let title = escape(&format!("Plan of {}", stack::full_name(stack)));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>\n<dl>\n"
    );
    let destroys = if run.spec.destroy {
        "yes: the whole stack"
    } else {
        ""
    };
    for (label, value) in [
        ("Plan", status.plan_id.as_str()),
        ("Run", run.metadata.name.as_deref().unwrap_or_default()),
        ("Revision", run.spec.source.revision.as_str()),
        ("Changes", status.changes.as_str()),
        ("Destroys", destroys),
    ] {
        if !value.is_empty() {
            let _ = writeln!(page, "<dt>{label}</dt><dd>{}</dd>", escape(value));
        }
    }
    page.push_str("</dl>\n");
    for held in [&status.auto_apply_hold, &status.state_mismatch] {
        if !held.is_empty() {
            let _ = writeln!(page, "<p class=\"held\">Held: {}</p>", escape(held));
        }
    }
    let list = run::changes(&status);
    page.push_str("<ul>\n");
    for change in &list.entries {
        let (sign, _) = run::sign(&change.action);
        let (action, address) = (escape(&change.action), escape(&change.address));
        let _ = writeln!(page, "<li class=\"{action}\">{sign} {address} ({action})</li>");
    }
    if list.omitted != 0 {
        let _ = writeln!(page, "<li>and {} more</li>", list.omitted);
    }
    let _ = writeln!(page, "</ul>\n<pre>{}</pre>\n</html>", escape(&status.human_plan));
    page
}

/// Escapes a text for HTML content and quoted attributes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{run, stack};

    #[test]
    fn texts_of_the_module_are_no_markup() {
        let status = json!({"humanPlan": "</pre><script>alert(1)</script>", "changeEntries": [
            {"action": "x\" onmouseover=\"y", "address": "a[\"<b>\"]"}]});
        let page = page(&stack(&json!({})), &run(1, &status));
        assert!(
            !page.contains("<script") && !page.contains("\" onmouseover=\"y\"") && !page.contains("<b>"),
            "{page}"
        );
        assert!(page.contains("&lt;/pre&gt;&lt;script&gt;"), "{page}");
    }
}
