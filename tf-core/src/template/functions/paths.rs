//! Lexical path functions. On Unix, `path` and `path/filepath` of Go agree.

use gotmpl::Value;

use super::text::one;
use super::{Args, Fault, Table};

/// Functions by name.
pub(super) const TABLE: Table = &[
    ("base", |args| one(args, base)),
    ("osBase", |args| one(args, base)),
    ("dir", |args| one(args, dir)),
    ("osDir", |args| one(args, dir)),
    ("clean", |args| one(args, clean)),
    ("osClean", |args| one(args, clean)),
    ("ext", |args| one(args, ext)),
    ("osExt", |args| one(args, ext)),
    ("isAbs", is_absolute),
    ("osIsAbs", is_absolute),
];

fn is_absolute(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(1)?;
    Ok(Value::Bool(args.text(0)?.starts_with('/')))
}

fn base(path: &str) -> String {
    let trimmed = path.trim_end_matches('/');
    match (path, trimmed.rsplit('/').next()) {
        ("", _) => ".".to_owned(),
        (_, Some(last)) if !last.is_empty() => last.to_owned(),
        _ => "/".to_owned(),
    }
}

fn dir(path: &str) -> String {
    clean(path.rfind('/').map_or("", |slash| &path[..=slash]))
}

fn ext(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rfind('.').map_or("", |dot| &name[dot..]).to_owned()
}

/// Returns the shortest equivalent path.
fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut components: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if components.last().is_some_and(|last| *last != "..") => {
                components.pop();
            }
            ".." if rooted => {}
            other => components.push(other),
        }
    }
    match (rooted, components.is_empty()) {
        (true, _) => format!("/{}", components.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => components.join("/"),
    }
}
