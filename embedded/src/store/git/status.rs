//! Status files: splits an object into its status file in the journal and its file on the branch, and joins them.
//!
//! The path follows from the identity alone, `<plural and group>/<namespace>/<name>.yaml`, because it must not change with the storage
//! version. Only kinds with a status subresource have status files. For other kinds, `status` is a field like any other. Objects that are in
//! the journal alone have the same path ([`super::sharing`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use git2::{Error, Oid};
use serde_json::{Value, json};

use super::admit;
use super::branch::Branch;
use super::kinds::CLUSTER;
use super::yaml;
use crate::meta;
use crate::store::state::Key;

/// The reason for which a file that parses is not the object, if no other one is known.
pub(super) const NOT_READ: &str = "it is not read as this object";

/// Returns the path of a status file.
pub(super) fn path(key: &Key) -> String {
    let namespace = match key.namespace.as_str() {
        "" => CLUSTER,
        namespace => namespace,
    };
    format!("{}/{namespace}/{}.yaml", key.resource, key.name)
}

/// Returns the object of a status file; `None` for another file.
fn key(path: &str) -> Option<Key> {
    let mut parts = path.strip_suffix(".yaml")?.splitn(3, '/');
    let (resource, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
    let namespace = if namespace == CLUSTER { "" } else { namespace };
    Some(Key::new(resource, namespace, name))
}

/// Returns the objects whose status files differ between two commits of the journal.
pub(super) fn changed(branch: &Branch, old: Option<Oid>, new: Oid) -> Result<BTreeSet<Key>, Error> {
    let paths = branch.changed_files(old, new)?;
    Ok(paths.keys().filter_map(|path| key(path)).collect())
}

/// Returns the status file of an object; `None` if there is none, or it does not parse.
pub(super) fn read(branch: &Branch, journal: Option<Oid>, object: &Key) -> Result<Option<Value>, Error> {
    match journal {
        Some(journal) => Ok(parse(text(branch, journal, object)?)),
        None => Ok(None),
    }
}

/// Returns the text of the status file of an object; `None` if there is none that can be read.
pub(super) fn text(branch: &Branch, journal: Oid, object: &Key) -> Result<Option<String>, Error> {
    let text = branch.read(journal, &path(object))?;
    Ok(text.and_then(Result::ok))
}

/// Parses a status file; `None` if it is none.
pub(super) fn parse(text: Option<String>) -> Option<Value> {
    let content = text.map(|text| yaml::parse(&text));
    content.and_then(Result::ok).filter(Value::is_object)
}

/// Whether an object has a status file, which may not parse.
pub(super) fn exists(branch: &Branch, journal: Option<Oid>, object: &Key) -> Result<bool, Error> {
    match journal {
        Some(journal) => Ok(branch.read(journal, &path(object))?.is_some()),
        None => Ok(false),
    }
}

/// Returns why the status file of an object is not read, if it exists.
pub(super) fn problem(branch: &Branch, journal: Option<Oid>, object: &Key) -> Result<Option<String>, Error> {
    let text = match journal {
        Some(journal) => branch.read(journal, &path(object))?,
        None => None,
    };
    let parsed = text.map(|text| text.and_then(|text| yaml::parse(&text)));
    Ok(parsed.map(|parsed| parsed.err().unwrap_or_else(|| NOT_READ.to_owned())))
}

/// Returns the status file of an object that is in the journal alone: all of it.
pub(super) fn whole(object: &Arc<Value>) -> Value {
    admit::without_derived(&in_order_of_files(object.clone()))
}

/// Returns the document of an object with the status in its status file.
pub(super) fn join(mut document: Value, status: &Value) -> Value {
    let Some(fields) = document.as_object_mut() else {
        return document;
    };
    fields.insert("status".to_owned(), status["status"].clone());
    let own = managers(status, |_| true);
    if !own.is_empty() {
        let mut all = managers(&document, |manager| !is_of_status(manager));
        all.extend(own);
        meta::set(&mut document, "managedFields", all.into());
    }
    document
}

/// Splits the content of an object into that of its file and that of its status file, which it has only with a status.
pub(super) fn split(content: Value) -> (Value, Option<Value>) {
    let mut rest = content;
    let status = rest.as_object_mut().and_then(|fields| fields.remove("status"));
    let Some(status) = status else {
        return (rest, None);
    };
    let own = managers(&rest, is_of_status);
    let others = managers(&rest, |manager| !is_of_status(manager));
    let mut metadata = json!({"name": rest["metadata"]["name"]});
    if !rest["metadata"]["namespace"].is_null() {
        metadata["namespace"] = rest["metadata"]["namespace"].clone();
    }
    if !own.is_empty() {
        metadata["managedFields"] = own.into();
        let others = if others.is_empty() {
            Value::Null
        } else {
            others.into()
        };
        meta::set(&mut rest, "managedFields", others);
    }
    let file = json!({
        "apiVersion": rest["apiVersion"], "kind": rest["kind"], "metadata": metadata, "status": status,
    });
    (rest, Some(file))
}

/// Returns an object with its managers in the order in which they are read: those of the status are the last ones.
pub(super) fn in_order_of_files(object: Arc<Value>) -> Arc<Value> {
    let own = managers(&object, is_of_status);
    if own.is_empty() || object["status"].is_null() {
        return object;
    }
    let mut ordered = managers(&object, |manager| !is_of_status(manager));
    ordered.extend(own);
    let mut object = Value::clone(&object);
    meta::set(&mut object, "managedFields", ordered.into());
    Arc::new(object)
}

fn managers(object: &Value, is_wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let managers = object["metadata"]["managedFields"].as_array();
    let managers = managers.into_iter().flatten();
    managers.filter(|manager| is_wanted(manager)).cloned().collect()
}

fn is_of_status(manager: &Value) -> bool {
    manager["subresource"] == "status"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_its_object() {
        for (object, expected) in [
            (
                Key::new("terraforms.infra.contrib.fluxcd.io", "default", "a.b"),
                "terraforms.infra.contrib.fluxcd.io/default/a.b.yaml",
            ),
            (
                Key::new("widgets.example.dev", "", "a"),
                "widgets.example.dev/_cluster/a.yaml",
            ),
        ] {
            assert_eq!(path(&object), expected);
            assert_eq!(key(expected), Some(object));
        }
        assert_eq!(key("README.yaml"), None);
    }

    #[test]
    fn both_files_together_are_the_object() {
        let spec = json!({"manager": "a", "operation": "Apply"});
        let status = json!({"manager": "b", "operation": "Update", "subresource": "status"});
        let object = json!({
            "apiVersion": "a.example/v1", "kind": "A", "status": {"ready": true},
            "metadata": {"name": "x", "namespace": "y", "managedFields": [status, spec]},
        });
        let (file, status_file) = split(object.clone());
        assert_eq!(file["metadata"]["managedFields"], json!([spec]));
        assert_eq!(file["status"], Value::Null);
        let status_file = status_file.unwrap();
        assert_eq!(status_file["metadata"]["managedFields"], json!([status]));
        let joined = join(file, &status_file);
        assert_eq!(joined, *in_order_of_files(Arc::new(object)));
        let without = json!({"kind": "A", "metadata": {"name": "x"}});
        assert_eq!(split(without.clone()), (without, None));
    }
}
