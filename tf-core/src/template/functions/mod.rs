//! The functions of templates: Go's own, and the text functions of sprig 3.3.0 under their names.
//!
//! A function is given what its place in a pipeline gives it and returns a value or a [`Fault`], whose text names types, never
//! values. [`map`] puts a count around each.

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

pub(super) use args::{Args, Fault};

use super::budget::Budget;
use super::error::TemplateError;
use gotmpl::{FuncMap, TemplateError as LibraryError, Value};
use std::sync::Arc;

/// Which functions a template may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Functions {
    /// Those of Go's `text/template`.
    BuiltIn,
    /// Those and sprig's.
    Text,
}

/// A function of a template.
type Function = fn(&Args<'_>) -> Result<Value, Fault>;
/// Names and functions.
type Table = &'static [(&'static str, Function)];

/// Name of the function that prints what an action gives. No template can call it.
pub(super) const PRINT: &str = "\u{1}print";
/// Name of the function that gives nil. No template can call it.
pub(super) const NOTHING: &str = "\u{1}nothing";
/// Begins the texts of our own faults on their way through the library.
pub(super) const OURS: &str = "\u{1}";

/// Go's functions that the library carries out: none makes anything larger than what it is given.
const LIBRARY: [&str; 13] = [
    "and", "call", "eq", "ge", "gt", "index", "le", "len", "lt", "ne", "not", "or", "slice",
];

/// Sprig's functions by group.
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

/// What sprig has and templates here do not, and why.
const REFUSED: [(&[&str], &str); 5] = [
    (
        &["now", "ago"],
        "an approval holds for what the template and its data say, and the time is neither; use timestamp() or \
         plantimestamp() in the module, or a variable",
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
        "an approval holds for what the template and its data say, and chance is neither; use a resource of the random \
         provider, which keeps its result",
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
/// When it is unknown or refused.
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

/// Every name that is known or refused.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    carried_out().chain(REFUSED.into_iter().flat_map(|(names, _)| names.iter().copied()))
}

/// Every name that is known.
#[cfg(test)]
pub(super) fn carried_out() -> impl Iterator<Item = &'static str> {
    let own = builtin::TABLE.iter().chain(GROUPS.into_iter().flatten());
    let own = own
        .map(|(name, _)| *name)
        .filter(|name| !name.starts_with('\u{1}'));
    LIBRARY.into_iter().chain(own)
}

/// Names a function that differs in case only, or that another set has.
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

/// The functions as the library takes them.
pub(super) fn map(set: Functions, budget: &Arc<Budget>) -> FuncMap {
    let mut map = FuncMap::new();
    let tables = match set {
        Functions::BuiltIn => &[][..],
        Functions::Text => &GROUPS[..],
    };
    for (name, function) in builtin::TABLE.iter().chain(tables.iter().copied().flatten()) {
        let budget = Arc::clone(budget);
        let counted = move |values: &[Value]| {
            counted(name, *function, values, &budget)
                .map_err(|fault| LibraryError::Exec(format!("{OURS}{}", fault.text())))
        };
        map.insert((*name).to_owned(), Arc::new(counted));
    }
    map
}

fn counted(
    name: &'static str,
    function: Function,
    values: &[Value],
    budget: &Budget,
) -> Result<Value, Fault> {
    for value in values {
        budget.value(value)?;
    }
    let made = function(&Args::new(values, budget)).map_err(|fault| {
        if fault.is_large() {
            budget.too_large();
        }
        fault.of(name)
    })?;
    budget.value(&made)?;
    Ok(made)
}
