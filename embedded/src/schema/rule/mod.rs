//! `x-kubernetes-validations`: rules in the Common Expression Language.
//!
//! A rule is parsed when its schema is compiled, and refused there if it does not parse or calls a function that is not
//! known here. A rule that cannot be evaluated is an error of the field, never a pass.

mod align;
mod evaluate;
mod library;
mod value;

use cel::Program;
use serde_json::Value;

use super::CompileError;
use super::error::ErrorKind;

pub(super) use evaluate::check;

/// The largest rule that is parsed.
const MAX_SOURCE: usize = 16 << 10;

/// One compiled rule.
#[derive(Debug)]
pub(super) struct Rule {
    source: String,
    program: Program,
    message: Option<String>,
    message_program: Option<Program>,
    kind: ErrorKind,
    /// Where below the node the error is shown.
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
        let refused = |message: String| CompileError::Rule {
            path: path.to_owned(),
            rule: source.to_owned(),
            message,
        };
        if source.is_empty() {
            return Err(refused("rule is not specified".to_owned()));
        }
        let program = parse(source).map_err(refused)?;
        let message_program = text("messageExpression")
            .map(parse)
            .transpose()
            .map_err(refused)?;
        let kind = match text("reason") {
            None | Some("FieldValueInvalid") => ErrorKind::Invalid,
            Some("FieldValueForbidden") => ErrorKind::Forbidden,
            Some("FieldValueRequired") => ErrorKind::Required,
            Some("FieldValueDuplicate") => ErrorKind::Duplicate,
            Some(other) => return Err(refused(format!("unsupported reason {other:?}"))),
        };
        let field_path = normalise(text("fieldPath").unwrap_or_default()).map_err(refused)?;
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

    /// How error texts name the rule.
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
    if source.len() > MAX_SOURCE {
        return Err(format!("longer than {MAX_SOURCE} bytes"));
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

/// `.a.b['c.d']` as the API server prints it: `a.b.c.d`.
fn normalise(field_path: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = field_path;
    while !rest.is_empty() {
        let (name, behind) = if let Some(quoted) = rest.strip_prefix("['") {
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
        rest = behind;
    }
    Ok(out)
}
