//! Semantic versions and constraints, with the rules of Flux.

use std::sync::Arc;

use gotmpl::Value;
use sluice_runtime::semver::{Constraint, Version};

use super::{Args, Fault, Table};
use crate::template::value::string;

/// Functions by name.
pub(super) const TABLE: Table = &[("semver", semver), ("semverCompare", compare)];

fn version(args: &Args<'_>, index: usize) -> Result<Version, Fault> {
    Version::parse(args.text(index)?).ok_or_else(|| Fault::new("the text is not a version"))
}

/// Returns the parts of a version under the method names of the original.
fn semver(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(1)?;
    let (version, text) = (version(args, 0)?, args.text(0)?);
    let metadata = text.split_once('+').map_or("", |(_, metadata)| metadata);
    let parts = [
        ("Major", Value::Uint(version.major)),
        ("Minor", Value::Uint(version.minor)),
        ("Patch", Value::Uint(version.patch)),
        ("Prerelease", string(&version.pre)),
        ("Metadata", string(metadata)),
        ("Original", string(text)),
        ("String", string(version_text(&version, metadata))),
    ];
    let parts = parts.into_iter().map(|(name, part)| (Arc::from(name), part));
    Ok(Value::Map(Arc::new(parts.collect())))
}

fn version_text(version: &Version, metadata: &str) -> String {
    let mut text = format!("{}.{}.{}", version.major, version.minor, version.patch);
    for (sign, part) in [('-', version.pre.as_str()), ('+', metadata)] {
        if !part.is_empty() {
            text.push(sign);
            text.push_str(part);
        }
    }
    text
}

fn compare(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(2)?;
    let constraint: Result<Constraint, _> = args.text(0)?.parse();
    let constraint = constraint.map_err(|_| Fault::new("the constraint is invalid"))?;
    Ok(Value::Bool(constraint.admits(&version(args, 1)?)))
}
