//! `sluice record verify`: checks a signed record against public keys. Needs no API and no network.

use std::path::{Path, PathBuf};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_tf_core::record::{
    self, LIMIT, PublicKey, RecordedApproval, RecordedPlan, RunRecord, VerifiedRecord,
};

use super::error::READ_KEY;
use super::{RecordCommandError, read};

/// Arguments of `sluice record verify`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct VerifyArgs {
    /// The signed record.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Public key of a trusted signer in PEM. Of several, one must have signed.
    #[arg(long, value_name = "FILE", required = true)]
    key: Vec<PathBuf>,
    /// The format.
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value_t)]
    output: RecordFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum RecordFormat {
    /// A summary, one line for each value.
    #[default]
    Text,
    /// The signed in-toto statement, with all its fields.
    Json,
}

/// Returns what a valid record says.
pub(super) fn verify(args: &VerifyArgs) -> Result<Vec<u8>, RecordCommandError> {
    let keys: Result<Vec<_>, _> = args.key.iter().map(|path| public_key(path)).collect();
    let file = read(&args.file, LIMIT, "read the record")?;
    let verified = record::verify(&file, &keys?).map_err(|source| RecordCommandError::Refused {
        file: args.file.display().to_string(),
        source,
    })?;
    Ok(match args.output {
        RecordFormat::Text => summary(&verified).into_bytes(),
        RecordFormat::Json => verified.payload,
    })
}

fn public_key(path: &Path) -> Result<PublicKey, RecordCommandError> {
    // Longer keys are refused by their length.
    let text = read(path, LIMIT, READ_KEY)?;
    PublicKey::from_pem(&text).map_err(|source| RecordCommandError::Key {
        place: path.display().to_string(),
        source,
    })
}

/// Returns one line for each value that the record has.
fn summary(verified: &VerifiedRecord) -> String {
    let record = &verified.statement.predicate;
    let mut rows = vec![("signed by", verified.key_id.clone())];
    rows.extend(origin(record));
    rows.extend(outcome(record));
    let lines: Vec<String> = rows
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name:<12} {}", one_line(&value)))
        .collect();
    lines.join("\n")
}

/// The rows about the run and what it was made from.
fn origin(record: &RunRecord) -> [(&'static str, String); 10] {
    let (run, stack, source) = (&record.run, &record.stack, &record.source);
    let destroys = if run.destroy { ", destroys" } else { "" };
    let signature = &source.commit_signature;
    let details: Vec<&str> = [signature.mode.as_str(), signature.message.as_str()]
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect();
    let separator = if details.is_empty() { "" } else { ": " };
    let status = signature.status.as_str();
    [
        ("run", format!("{}/{}", run.namespace, run.name)),
        (
            "action",
            format!(
                "{} ({}, attempt {}{destroys})",
                run.action, run.trigger, run.attempt
            ),
        ),
        (
            "stack",
            format!(
                "{}/{} (generation {})",
                run.namespace, stack.name, stack.generation
            ),
        ),
        (
            "source",
            format!("{} {}/{}", source.kind, source.namespace, source.name),
        ),
        ("repository", source.repository.clone()),
        ("revision", source.revision.clone()),
        ("signature", format!("{status}{separator}{}", details.join(", "))),
        ("artifact", source.artifact_digest.clone()),
        ("inputs", record.inputs.digest.clone()),
        ("bundle", record.inputs.bundle_digest.clone()),
    ]
}

/// The rows about the plan, its approval and the result.
fn outcome(record: &RunRecord) -> [(&'static str, String); 9] {
    let result = &record.result;
    let approvers: Vec<_> = record.approvals.iter().map(approval_text).collect();
    let apply = match (result.attempted_apply, result.applied) {
        (_, true) => "succeeded",
        (true, false) => "started, and did not succeed",
        (false, false) => "not started",
    };
    let state = result.state.as_ref().map(|state| {
        let (lineage, serial, resources) = (&state.lineage, state.serial, state.resources);
        let plural = if resources == 1 { "" } else { "s" };
        format!("lineage {lineage}, serial {serial}, {resources} resource{plural}")
    });
    let tool = result
        .tool
        .as_ref()
        .map(|tool| format!("{} {}", tool.name, tool.version));
    let plan = record.plan.as_ref();
    [
        ("plan", plan.map(plan_text).unwrap_or_default()),
        (
            "plan digest",
            plan.map(|plan| plan.digest.clone()).unwrap_or_default(),
        ),
        ("approved by", approvers.join(", ")),
        (
            "result",
            format!("{} {} {}", result.phase, result.reason, result.message),
        ),
        ("apply", apply.to_owned()),
        ("started", time(result.started_at.as_ref())),
        ("finished", time(result.finished_at.as_ref())),
        ("tool", tool.unwrap_or_default()),
        ("state", state.unwrap_or_default()),
    ]
}

/// Returns who approved. The name of the PlanApproval shows that the approver is a user. A field manager can contain such a text, and then it
/// is in quotation marks.
fn approval_text(approval: &RecordedApproval) -> String {
    match (&approval.approver, approval.plan_approval.as_str()) {
        (text, "") if text.contains(['(', '"']) => format!("{text:?}"),
        (text, "") => text.clone(),
        (user, name) => format!("{user} (PlanApproval {name})"),
    }
}

fn plan_text(plan: &RecordedPlan) -> String {
    if plan.id.is_empty() {
        return "no changes".to_owned();
    }
    let counts = plan.summary.map(|counts| format!(" ({})", counts.short()));
    format!("{}{}", plan.id, counts.unwrap_or_default())
}

fn time(time: Option<&Time>) -> String {
    time.map(|time| time.0.to_string()).unwrap_or_default()
}

/// Puts a text on one line, without control characters: messages have several lines, and come from repositories.
fn one_line(text: &str) -> String {
    let words: Vec<String> = text
        .split_whitespace()
        .map(|word| word.chars().filter(|c| !c.is_control()).collect())
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::Value;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        verify: VerifyArgs,
    }

    /// Verifies the record that OpenSSL signed, in the tests of tf-core, with these arguments.
    fn verified(arguments: &[&str]) -> Result<String, RecordCommandError> {
        let golden = |name: &str| {
            format!(
                "{}/../tf-core/src/record/tests/golden/{name}",
                env!("CARGO_MANIFEST_DIR")
            )
        };
        let mut all = vec!["verify".to_owned(), golden("ed25519.json")];
        for argument in arguments {
            let is_file = argument.contains('.');
            all.push(if is_file {
                golden(argument)
            } else {
                (*argument).to_owned()
            });
        }
        let Ok(Cli { verify: args }) = Cli::try_parse_from(all) else {
            panic!("the arguments do not parse");
        };
        verify(&args).map(|output| String::from_utf8(output).unwrap())
    }

    #[test]
    fn a_record_is_summarised_on_lines() {
        let text = verified(&["--key", "p256.pub", "--key", "ed25519.pub"]).unwrap();
        let digest = |digit: &str| digit.repeat(64);
        let expected = [
            "signed by    e3e48b43dc362586374e7b375767e9c5e46854ca9f7ae2c56b1637d9a78c9ec9",
            "run          team/net-0123456789-2",
            "action       Apply (Approval, attempt 1)",
            "stack        team/net (generation 4)",
            "source       GitRepository team/code",
            "repository   https://git.example.com/net",
            "revision     main@sha1:b8e362c206e3d0cbb7ed22ced771a0056455a2fb",
            "signature    Verified: HEAD, verified signature of - commit 'b8e362c206e3d0cbb7ed22ced771a0056455a2fb' with key 'ABCD'",
            &format!("artifact     sha256:{}", digest("a")),
            &format!("inputs       hmac-sha256:{}", digest("d")),
            &format!("bundle       sha256:{}", digest("c")),
            "plan         plan-main-b8e362c206-0123456789abcdef0123456789abcdef01234567 (+1 ~2 -0)",
            &format!("plan digest  sha256:{}", digest("b")),
            "approved by  kubectl-edit",
            "result       Succeeded TerraformAppliedSucceed Applied",
            "apply        succeeded",
            "started      2026-01-02T03:04:06Z",
            "finished     2026-01-02T03:05:00Z",
            "tool         tofu 1.10.5",
            "state        lineage l-1, serial 7, 3 resources",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn only_a_user_has_a_plan_approval() {
        let text = |approver: &str, plan_approval: &str| {
            approval_text(&RecordedApproval {
                approver: approver.to_owned(),
                plan_approval: plan_approval.to_owned(),
            })
        };
        assert_eq!(text("alice", "net-x7k2p"), "alice (PlanApproval net-x7k2p)");
        assert_eq!(text("alice", ""), "alice");
        // `kubectl patch --field-manager` sets any text.
        let forged = text("alice (PlanApproval net-x7k2p)", "");
        assert_eq!(forged, "\"alice (PlanApproval net-x7k2p)\"");
        let quoted = text("x\" alice (PlanApproval net-x7k2p)", "");
        assert_eq!(quoted, "\"x\\\" alice (PlanApproval net-x7k2p)\"");
    }

    #[test]
    fn the_statement_is_printed_as_it_was_signed() {
        let text = verified(&["--key", "ed25519.pub", "-o", "json"]).unwrap();
        let statement: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(statement["predicate"]["fieldOfALaterVersion"]["is"], "ignored");
    }

    #[test]
    fn a_refusal_names_the_file() {
        let refused = verified(&["--key", "p256.pub"]).unwrap_err().to_string();
        assert!(
            refused.contains("ed25519.json is refused: no given key has signed it"),
            "{refused}"
        );
        let unusable = verified(&["--key", "p256.pem"]).unwrap_err().to_string();
        assert!(
            unusable.contains("p256.pem cannot be used: it has a PEM block \"PRIVATE KEY\""),
            "{unusable}"
        );
        let missing = verified(&["--key", "missing.pub"]).unwrap_err();
        let (text, advice) = (missing.to_string(), missing.advice());
        assert!(text.starts_with("cannot read the key "), "{text}");
        assert!(
            text.contains("missing.pub: ") && advice.contains("-pubout"),
            "{text}: {advice}"
        );
    }

    #[test]
    fn texts_of_a_record_cannot_control_the_terminal() {
        assert_eq!(one_line("a\u{1b}[2J\n\tb\u{9b}c\r"), "a[2J bc");
    }
}
