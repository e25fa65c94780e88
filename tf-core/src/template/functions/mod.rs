//! The functions of templates: the built-in ones of Go, and the text functions of sprig 3.3.0.
//!
//! A function receives its arguments and the value of the pipeline, and returns a value or a [`Fault`]. Faults name types, not values.
//! [`map`] wraps each function with a work count.

mod args;
mod builtin;
mod data;
mod dates;
mod encode;
mod lists;
mod maps;
mod math;
mod paths;
mod pattern;
mod search;
mod text;
mod urls;
mod versions;
mod words;

use std::sync::Arc;

pub(super) use args::{Args, Fault};
use gotmpl::{FuncMap, TemplateError as LibraryError, Value};

use super::TemplateError;
use super::limits::WorkMeter;

/// The functions that a template may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Functions {
    /// The built-in functions of `text/template`.
    BuiltIn,
    /// The built-in functions and those of sprig.
    Text,
}

/// A function of a template.
type Function = fn(&Args<'_>) -> Result<Value, Fault>;
/// Functions by name.
type Table = &'static [(&'static str, Function)];

/// Internal function that prints the value of an action.
pub(super) const PRINT: &str = "\u{1}print";
/// Internal function that returns nil.
pub(super) const NOTHING: &str = "\u{1}nothing";
/// Prefix of our faults in errors of the library.
pub(super) const OURS: &str = "\u{1}";

/// Functions that the library implements. Their results are not larger than their arguments.
const LIBRARY: [&str; 13] = [
    "and", "call", "eq", "ge", "gt", "index", "le", "len", "lt", "ne", "not", "or", "slice",
];

/// Functions of sprig by group.
const GROUPS: [Table; 12] = [
    text::TABLE,
    words::TABLE,
    search::TABLE,
    encode::TABLE,
    paths::TABLE,
    urls::TABLE,
    versions::TABLE,
    dates::TABLE,
    data::TABLE,
    lists::TABLE,
    maps::TABLE,
    math::TABLE,
];

/// Functions of sprig that are not supported, with the reason.
const REFUSED: [(&[&str], &str); 5] = [
    (
        &["now", "ago"],
        "the current time would change each plan; use timestamp() or plantimestamp() in the module, or a variable",
    ),
    (
        &[
            "randAlpha",
            "randAlphaNum",
            "randAscii",
            "randBytes",
            "randInt",
            "randNumeric",
            "shuffle",
            "uuidv4",
        ],
        "random values would change each plan; use a resource of the random provider, which stores its result",
    ),
    (
        &["env", "expandenv"],
        "a template does not read the environment of the controller or of the run; use vars or values",
    ),
    (
        &["getHostByName"],
        "a template does not ask the network; use a data source of the module",
    ),
    (
        &[
            "bcrypt",
            "htpasswd",
            "derivePassword",
            "genPrivateKey",
            "buildCustomCert",
            "genCA",
            "genCAWithKey",
            "genSelfSignedCert",
            "genSelfSignedCertWithKey",
            "genSignedCert",
            "genSignedCertWithKey",
            "encryptAES",
            "decryptAES",
        ],
        "keys and passwords made by a template would be others at each plan and lie in main.tf in the clear; use a resource \
         of the tls or random provider",
    ),
];

/// Whether a template may call a function.
///
/// # Errors
/// It is unknown or refused.
pub(super) fn check(name: &str, set: Functions, line: usize) -> Result<(), TemplateError> {
    let name = name.to_owned();
    if is_known(&name, set) {
        return Ok(());
    }
    if let Some((_, why)) = REFUSED.iter().find(|(names, _)| names.contains(&name.as_str())) {
        return Err(TemplateError::RefusedFunction { name, line, why });
    }
    let hint = hint(&name, set);
    Err(TemplateError::UnknownFunction { name, line, hint })
}

fn is_known(name: &str, set: Functions) -> bool {
    let in_table = |table: Table| table.iter().any(|(known, _)| *known == name);
    LIBRARY.contains(&name)
        || in_table(builtin::TABLE)
        || set == Functions::Text && GROUPS.into_iter().any(in_table)
}

/// Returns all known and refused names.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    supported_names().chain(REFUSED.into_iter().flat_map(|(names, _)| names.iter().copied()))
}

/// Returns all known names.
#[cfg(test)]
pub(super) fn supported_names() -> impl Iterator<Item = &'static str> {
    let own = builtin::TABLE.iter().chain(GROUPS.into_iter().flatten());
    let own = own
        .map(|(name, _)| *name)
        .filter(|name| !name.starts_with('\u{1}'));
    LIBRARY.into_iter().chain(own)
}

/// Suggests a function that differs in case only, or that the other set has.
fn hint(name: &str, set: Functions) -> String {
    let mut known = GROUPS.into_iter().flatten().map(|(known, _)| *known);
    if set == Functions::BuiltIn && known.clone().any(|known| known == name) {
        return " here: only main.tf.tpl has the functions of sprig".to_owned();
    }
    known
        .find(|known| known.eq_ignore_ascii_case(name))
        .filter(|_| set == Functions::Text)
        .map_or_else(String::new, |known| format!(" (did you mean {known:?}?)"))
}

/// Returns the functions for the library.
pub(super) fn map(set: Functions, meter: &Arc<WorkMeter>) -> FuncMap {
    let mut map = FuncMap::new();
    let tables = match set {
        Functions::BuiltIn => &[][..],
        Functions::Text => &GROUPS[..],
    };
    for (name, function) in builtin::TABLE.iter().chain(tables.iter().copied().flatten()) {
        let meter = Arc::clone(meter);
        let wrapped = move |values: &[Value]| {
            call(name, *function, values, &meter)
                .map_err(|fault| LibraryError::Exec(format!("{OURS}{}", fault.text())))
        };
        map.insert((*name).to_owned(), Arc::new(wrapped));
    }
    map
}

/// Calls a function and charges arguments and result.
fn call(name: &'static str, function: Function, values: &[Value], meter: &WorkMeter) -> Result<Value, Fault> {
    for value in values {
        meter.charge_value(value)?;
    }
    let result = function(&Args::new(values, meter)).map_err(|fault| {
        if fault.is_large() {
            meter.record_too_large();
        }
        fault.in_function(name)
    })?;
    meter.charge_value(&result)?;
    Ok(result)
}
