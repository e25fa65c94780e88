//! The functions of rules: CEL's standard library, its string and encoder extensions, and Kubernetes' list and regex libraries.

#![expect(
    clippy::needless_pass_by_value,
    reason = "the library's function type takes its arguments by value"
)]

use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

use cel::common::types::{CelBool, CelInt, CelString, DYN_TYPE, INT_TYPE, LIST_TYPE, STRING_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError, Value, extensions};

use crate::schema::pattern;

static ENVIRONMENT: LazyLock<Result<Arc<Env>, DeclarationError>> = LazyLock::new(|| build().map(Arc::new));

/// Returns the environment of all rules.
pub(super) fn environment() -> Result<&'static Arc<Env>, &'static DeclarationError> {
    ENVIRONMENT.as_ref()
}

fn build() -> Result<Env, DeclarationError> {
    let mut env = Env::stdlib();
    extensions::strings(&mut env)?;
    extensions::encoders(&mut env)?;
    env.add_member_overload("find", "string_find_string", STRING_TYPE, vec![STRING_TYPE], find)?;
    env.add_member_overload(
        "findAll",
        "string_find_all_string",
        STRING_TYPE,
        vec![STRING_TYPE],
        find_all,
    )?;
    env.add_member_overload(
        "findAll",
        "string_find_all_string_int",
        STRING_TYPE,
        vec![STRING_TYPE, INT_TYPE],
        find_all,
    )?;
    env.add_member_overload("isSorted", "list_is_sorted", LIST_TYPE, vec![], is_sorted)?;
    env.add_member_overload("min", "list_min", LIST_TYPE, vec![], min)?;
    env.add_member_overload("max", "list_max", LIST_TYPE, vec![], max)?;
    env.add_member_overload("sum", "list_sum", LIST_TYPE, vec![], sum)?;
    env.add_member_overload("indexOf", "list_index_of", LIST_TYPE, vec![DYN_TYPE], index_of)?;
    env.add_member_overload(
        "lastIndexOf",
        "list_last_index_of",
        LIST_TYPE,
        vec![DYN_TYPE],
        last_index_of,
    )?;
    Ok(env)
}

/// Functions that a rule may call; the parser handles operators and macros.
const FUNCTIONS: [&str; 66] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "string",
    "int",
    "uint",
    "double",
    "bool",
    "bytes",
    "dyn",
    "type",
    "duration",
    "timestamp",
    "getFullYear",
    "getMonth",
    "getDayOfYear",
    "getDayOfMonth",
    "getDate",
    "getDayOfWeek",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
    "has",
    "all",
    "exists",
    "exists_one",
    "existsOne",
    "map",
    "filter",
    "optional",
    "of",
    "none",
    "ofNonZeroValue",
    "optional.of",
    "optional.none",
    "optional.ofNonZeroValue",
    "hasValue",
    "value",
    "orValue",
    "or",
    "optMap",
    "optFlatMap",
    "charAt",
    "indexOf",
    "lastIndexOf",
    "join",
    "lowerAscii",
    "upperAscii",
    "trim",
    "replace",
    "split",
    "substring",
    "format",
    "reverse",
    "quote",
    "strings.quote",
    "encode",
    "decode",
    "find",
    "findAll",
    "isSorted",
    "min",
    "max",
];

/// Whether a rule may call this function.
pub(super) fn is_known(name: &str) -> bool {
    let is_operator = !name.starts_with(|c: char| c.is_ascii_alphabetic());
    is_operator || name == "sum" || FUNCTIONS.contains(&name)
}

fn failed(function: &str, message: impl ToString) -> ExecutionError {
    ExecutionError::function_error(function, message.to_string())
}

/// Returns one argument as a plain value.
fn argument(args: &[CowVal<'_, '_>], at: usize, function: &str) -> Result<Value, ExecutionError> {
    let value: &dyn Val = args
        .get(at)
        .ok_or_else(|| failed(function, "argument missing"))?
        .as_ref();
    Value::try_from(value)
}

fn text(args: &[CowVal<'_, '_>], at: usize, function: &str) -> Result<String, ExecutionError> {
    match argument(args, at, function)? {
        Value::String(text) => Ok(text.to_string()),
        _ => Err(failed(function, "expected a string")),
    }
}

fn entries(args: &[CowVal<'_, '_>], function: &str) -> Result<Vec<Value>, ExecutionError> {
    match argument(args, 0, function)? {
        Value::List(entries) => Ok(entries.to_vec()),
        _ => Err(failed(function, "expected a list")),
    }
}

fn owned<'b, 'v>(value: Value) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let boxed: Box<dyn Val> = value.try_into()?;
    Ok(CowVal::Owned(boxed))
}

fn find<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let (subject, source) = (text(&args, 0, "find")?, text(&args, 1, "find")?);
    let regex = pattern::compile(&source).map_err(|error| failed("find", error))?;
    let found = regex.find(&subject).map_or("", |found| found.as_str());
    Ok(CowVal::owned(CelString::from(found.to_owned())))
}

fn find_all<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let (subject, source) = (text(&args, 0, "findAll")?, text(&args, 1, "findAll")?);
    let regex = pattern::compile(&source).map_err(|error| failed("findAll", error))?;
    let limit = match args.get(2).map(|_| argument(&args, 2, "findAll")).transpose()? {
        Some(Value::Int(limit)) => usize::try_from(limit).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    let found: Vec<Value> = regex
        .find_iter(&subject)
        .take(limit)
        .map(|found| found.as_str().into())
        .collect();
    owned(Value::List(found.into()))
}

fn compare(left: &Value, right: &Value, function: &str) -> Result<Ordering, ExecutionError> {
    left.partial_cmp(right)
        .ok_or_else(|| failed(function, "no such overload"))
}

fn is_sorted<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let entries = entries(&args, "isSorted")?;
    let mut sorted = true;
    for pair in entries.windows(2) {
        sorted &= compare(&pair[0], &pair[1], "isSorted")?.is_le();
    }
    Ok(CowVal::owned(CelBool::from(sorted)))
}

fn min_or_max(args: &[CowVal<'_, '_>], expected: Ordering, function: &str) -> Result<Value, ExecutionError> {
    let mut entries = entries(args, function)?.into_iter();
    let mut best = entries
        .next()
        .ok_or_else(|| failed(function, format!("{function} called on empty list")))?;
    for entry in entries {
        if compare(&entry, &best, function)? == expected {
            best = entry;
        }
    }
    Ok(best)
}

fn min<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    owned(min_or_max(&args, Ordering::Less, "min")?)
}

fn max<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    owned(min_or_max(&args, Ordering::Greater, "max")?)
}

fn sum<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let mut total = Value::Int(0);
    for (i, entry) in entries(&args, "sum")?.into_iter().enumerate() {
        total = match (total, entry) {
            (_, entry) if i == 0 => entry,
            (Value::Int(a), Value::Int(b)) => Value::Int(
                a.checked_add(b)
                    .ok_or_else(|| failed("sum", "integer overflow"))?,
            ),
            (Value::Float(a), Value::Float(b)) => Value::Float(a + b),
            _ => return Err(failed("sum", "no such overload")),
        };
    }
    owned(total)
}

fn position<'b, 'v>(args: &[CowVal<'b, 'v>], last: bool) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let expected = argument(args, 1, "indexOf")?;
    let entries = entries(args, "indexOf")?;
    let found = if last {
        entries.iter().rposition(|entry| *entry == expected)
    } else {
        entries.iter().position(|entry| *entry == expected)
    };
    Ok(CowVal::owned(CelInt::from(
        found.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1),
    )))
}

fn index_of<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    position(&args, false)
}

fn last_index_of<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    position(&args, true)
}
