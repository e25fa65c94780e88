//! The statement of a run: an in-toto Statement v1 with a predicate of our own.
//!
//! Fields may be added to the predicate under the same type, so unknown fields are ignored, as in-toto requires.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use sluice_api::digest::Digest;
use sluice_api::revision::Revision;
use sluice_api::run::{ChangeSummary, Tool};

use super::error::{RecordError, SignError, excerpt};

/// The type of the predicate: the record of a run, version 1. An identifier; nothing is served there.
pub const PREDICATE_TYPE: &str = "https://infra.sluice.dev/run-record/v1";
/// The type of a statement.
const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
/// Kind of sources whose revisions are commits.
const GIT_REPOSITORY: &str = "GitRepository";

/// A statement about a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Statement {
    /// The version of the format.
    #[serde(rename = "_type")]
    pub statement_type: String,
    /// What the statement is about, by digest.
    pub subject: Vec<Subject>,
    /// The type of the predicate.
    pub predicate_type: String,
    /// The record.
    pub predicate: RunRecord,
}

/// Something that a statement is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// What it is: commit, artifact, plan or bundle.
    pub name: String,
    /// Its digests in hex, by algorithm.
    pub digest: BTreeMap<String, String>,
}

/// The fields that decide whether the rest can be read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    #[serde(rename = "_type")]
    statement_type: String,
    predicate_type: String,
}

impl Statement {
    /// Creates the statement of a record.
    ///
    /// # Errors
    /// The record has no digest.
    pub fn new(predicate: RunRecord) -> Result<Self, SignError> {
        let subject = subjects(&predicate);
        if subject.is_empty() {
            return Err(SignError::NoSubject);
        }
        Ok(Self {
            statement_type: STATEMENT_TYPE.to_owned(),
            subject,
            predicate_type: PREDICATE_TYPE.to_owned(),
            predicate,
        })
    }

    /// Parses the payload of an envelope, after its signature was verified.
    ///
    /// # Errors
    /// It is not JSON, has another type or another predicate, or lacks a field.
    pub fn parse(payload: &[u8]) -> Result<Self, RecordError> {
        let header: Header = serde_json::from_slice(payload)
            .map_err(|error| RecordError::Statement(excerpt(&error.to_string())))?;
        if header.statement_type != STATEMENT_TYPE {
            return Err(RecordError::StatementType(excerpt(&header.statement_type)));
        }
        if header.predicate_type != PREDICATE_TYPE {
            return Err(RecordError::PredicateType {
                found: excerpt(&header.predicate_type),
                known: PREDICATE_TYPE,
            });
        }
        let statement: Self = serde_json::from_slice(payload)
            .map_err(|error| RecordError::Record(excerpt(&error.to_string())))?;
        if statement.subject.is_empty() {
            return Err(RecordError::NoSubject);
        }
        Ok(statement)
    }
}

/// The record of a run. Empty texts and absent values are omitted: the run does not record them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    /// The run.
    pub run: RecordedRun,
    /// The Terraform object.
    pub stack: RecordedStack,
    /// The source, its artifact and its commit.
    pub source: RecordedSource,
    /// The inputs.
    pub inputs: RecordedInputs,
    /// The plan that the run made or applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<RecordedPlan>,
    /// Who approved the plan.
    #[serde(default)]
    pub approvals: Vec<RecordedApproval>,
    /// How the run ended.
    pub result: RecordedResult,
}

/// Which run it was, and why it was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRun {
    /// Namespace of the run and of its stack.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its action, as in the API.
    pub action: String,
    /// Its trigger, as in the API.
    pub trigger: String,
    /// Number of the attempt, from 1.
    pub attempt: i32,
    /// Whether it destroys.
    #[serde(default)]
    pub destroy: bool,
    /// When it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Time>,
}

/// The Terraform object of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedStack {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its generation when the run was created.
    pub generation: i64,
}

/// What the run was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedSource {
    /// Kind of the source.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Address of the repository without credentials, if the source still has the artifact of the run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub repository: String,
    /// Revision of the artifact.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// Digest of the artifact with its algorithm.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub artifact_digest: String,
    /// What is known about the signature of the commit.
    pub commit_signature: CommitSignature,
}

/// What source-controller said about the signature of the commit when the record was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitSignature {
    /// The result.
    pub status: SignatureStatus,
    /// What was verified: HEAD, Tag or `TagAndHEAD`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// The message of the condition, with commit and key; or why the result is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The result of the verification of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SignatureStatus {
    /// source-controller has verified the signature for this artifact.
    Verified,
    /// The source requests no verification.
    NotRequested,
    /// It is not known: the source has another artifact or another spec now, or is gone.
    Unknown,
}

impl SignatureStatus {
    /// Returns the value in the record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Verified => "Verified",
            Self::NotRequested => "NotRequested",
            Self::Unknown => "Unknown",
        }
    }
}

/// Digests of the inputs of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedInputs {
    /// Keyed digest of all inputs: equal for equal inputs of one stack.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Digest of the bundle that the runner got.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bundle_digest: String,
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedPlan {
    /// Its id, which approvals name. Empty: it has no changes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The run that made it.
    pub run: String,
    /// Digest of the stored plan.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Digest of its effect: 40 hex digits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub effect_digest: String,
    /// Its counts, if the run that made it still exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<ChangeSummary>,
}

/// An approval of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedApproval {
    /// The user of the PlanApproval. Without one, the text of `spec.approvedBy` of the run, which is not verified: a field manager, auto, force
    /// or deletion.
    pub approver: String,
    /// Name of the PlanApproval, from `status.approvals` of the run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub plan_approval: String,
}

/// How the run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedResult {
    /// Its last phase, as in the API.
    pub phase: String,
    /// The reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message, redacted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Whether the apply was started, so that resources may have changed.
    pub attempted_apply: bool,
    /// Whether the apply succeeded.
    pub applied: bool,
    /// When a runner claimed the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// The CLI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Tool>,
    /// The state that it left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<RecordedState>,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedState {
    /// Its identity.
    pub lineage: String,
    /// Its version, or a lower one.
    pub serial: i64,
    /// Number of managed resources.
    pub resources: i64,
}

/// Returns what a record is about: everything that it has a plain digest of. Other parties cannot compare a keyed digest.
fn subjects(record: &RunRecord) -> Vec<Subject> {
    let subject = |name: &str, algorithm: &str, hex: &str| Subject {
        name: name.to_owned(),
        digest: BTreeMap::from([(algorithm.to_owned(), hex.to_owned())]),
    };
    let source = &record.source;
    let revision = Revision::parse(&source.revision);
    // The name of the algorithm for commits in in-toto's DigestSet.
    let commit = revision.hash().filter(|_| source.kind == GIT_REPOSITORY);
    let mut all: Vec<_> = commit
        .map(|hash| subject("commit", "gitCommit", hash))
        .into_iter()
        .collect();
    let plan = record.plan.as_ref().map_or("", |plan| plan.digest.as_str());
    for (name, text) in [
        ("artifact", source.artifact_digest.as_str()),
        ("plan", plan),
        ("bundle", record.inputs.bundle_digest.as_str()),
    ] {
        if let Ok(digest) = text.parse::<Digest>() {
            all.push(subject(name, digest.algorithm().as_str(), digest.hex()));
        }
    }
    all
}
