//! `x-kubernetes-validations`: rules in the Common Expression Language.
//!
//! A rule is parsed when its schema is compiled. A syntax error or an unknown function is an error of the schema; a rule that
//! cannot be evaluated is an error of the field.

pub(super) mod evaluate;
mod library;
mod value;

use cel::Program;
use serde_json::Value;

use super::error::{CompileError, ErrorKind};

/// Maximum length of a rule, in bytes.
const MAX_RULE_LENGTH: usize = 16 << 10;

/// One compiled rule.
#[derive(Debug)]
pub(super) struct Rule {
    source: String,
    program: Program,
    message: Option<String>,
    message_program: Option<Program>,
    kind: ErrorKind,
    /// Path of its errors, relative to the node.
    field_path: String,
    uses_old_self: bool,
    optional_old_self: bool,
}

impl Rule {
    pub(super) fn compile(rule: &Value, path: &str) -> Result<Self, CompileError> {
        let text = |key: &str| {
            rule.get(key)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
        };
        let source = text("rule").unwrap_or_default().trim();
        let rule_error = |message: String| CompileError::Rule {
            path: path.to_owned(),
            rule: source.to_owned(),
            message,
        };
        if source.is_empty() {
            return Err(rule_error("rule is not specified".to_owned()));
        }
        let program = parse(source).map_err(rule_error)?;
        let message_program = text("messageExpression")
            .map(parse)
            .transpose()
            .map_err(rule_error)?;
        let kind = match text("reason") {
            None | Some("FieldValueInvalid") => ErrorKind::Invalid,
            Some("FieldValueForbidden") => ErrorKind::Forbidden,
            Some("FieldValueRequired") => ErrorKind::Required,
            Some("FieldValueDuplicate") => ErrorKind::Duplicate,
            Some(other) => return Err(rule_error(format!("unsupported reason {other:?}"))),
        };
        let field_path = normalize_path(text("fieldPath").unwrap_or_default()).map_err(rule_error)?;
        Ok(Self {
            uses_old_self: program.references().has_variable("oldSelf"),
            optional_old_self: rule
                .get("optionalOldSelf")
                .and_then(Value::as_bool)
                .unwrap_or_default(),
            source: source.to_owned(),
            program,
            message: text("message").map(|message| message.trim().to_owned()),
            message_program,
            kind,
            field_path,
        })
    }

    /// Returns the name of the rule in error messages.
    fn name(&self) -> &str {
        self.message.as_deref().unwrap_or(&self.source)
    }

    fn message_or_default(&self) -> String {
        self.message
            .clone()
            .unwrap_or_else(|| format!("failed rule: {}", self.source))
    }
}

fn parse(source: &str) -> Result<Program, String> {
    if source.len() > MAX_RULE_LENGTH {
        return Err(format!("longer than {MAX_RULE_LENGTH} bytes"));
    }
    let env = library::environment().map_err(ToString::to_string)?;
    let program = env.compile(source).map_err(|error| error.to_string())?;
    match program
        .references()
        .functions()
        .iter()
        .find(|name| !library::is_known(name))
    {
        Some(unknown) => Err(format!("undeclared reference to '{unknown}'")),
        None => Ok(program),
    }
}

/// Converts `.a.b['c.d']` to kube-apiserver's form `a.b.c.d`.
fn normalize_path(field_path: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = field_path;
    while !rest.is_empty() {
        let (name, remainder) = if let Some(quoted) = rest.strip_prefix("['") {
            quoted
                .split_once("']")
                .ok_or_else(|| format!("fieldPath {field_path:?} does not end"))?
        } else if let Some(named) = rest.strip_prefix('.') {
            named.split_at(named.find(['.', '[']).unwrap_or(named.len()))
        } else {
            return Err(format!(
                "fieldPath {field_path:?} must begin with a dot or a bracket"
            ));
        };
        if !out.is_empty() {
            out.push('.');
        }
        out.push_str(name);
        rest = remainder;
    }
    Ok(out)
}
