//! Searches the outputs of programs for secret values: logs, files, and objects of the API.

use std::collections::BTreeSet;
use std::path::Path;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, ResourceExt};
use serde_json::Value;

use crate::canary;

/// The kind of the names of files and folders.
pub const FILE_NAME: &str = "a file name";

/// A search for values, also in encoded form ([`canary`]). It also searches a public marker, whose presence in each kind of
/// output proves that the right data was searched.
#[derive(Debug)]
pub struct LeakSearch<'a> {
    /// The values to search for.
    pub values: Vec<&'a str>,
    marker: &'a str,
    found: Vec<String>,
    marked: BTreeSet<&'static str>,
}

impl<'a> LeakSearch<'a> {
    /// Creates a search for these values and this marker.
    #[must_use]
    pub const fn new(values: Vec<&'a str>, marker: &'a str) -> Self {
        Self {
            values,
            marker,
            found: Vec::new(),
            marked: BTreeSet::new(),
        }
    }

    /// Searches an output of this kind; `location` is shown if a value is found.
    pub fn search(&mut self, kind: &'static str, location: &str, bytes: &[u8]) {
        let all: Vec<_> = self.values.iter().copied().chain([self.marker]).collect();
        for text in canary::find(bytes, &all) {
            if text == self.marker {
                self.marked.insert(kind);
            } else {
                self.found.push(format!("{text} in {location}"));
            }
        }
    }

    /// Searches the names of all files and folders below `folder`, and the contents of the files for which `kind` is not `None`.
    ///
    /// # Errors
    /// When a folder cannot be read.
    pub fn search_files(
        &mut self,
        folder: &Path,
        kind: &impl Fn(&Path) -> Option<&'static str>,
    ) -> std::io::Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let (path, file_type) = (entry.path(), entry.file_type()?);
            let location = path.display().to_string();
            self.search(FILE_NAME, &location, path.as_os_str().as_encoded_bytes());
            if file_type.is_dir() {
                self.search_files(&path, kind)?;
            } else if let Some(kind) = kind(&path).filter(|_| file_type.is_file()) {
                // The file may have been removed since.
                let content = std::fs::read(&path).unwrap_or_default();
                self.search(kind, &location, &content);
            }
        }
        Ok(())
    }

    /// Searches the objects of these kinds (group, version, kind) in a namespace, except the data of Secrets and the specs of
    /// Terraform objects, in which the user writes values.
    ///
    /// # Errors
    /// When the API refuses a list.
    pub async fn search_objects(
        &mut self,
        client: &Client,
        namespace: &str,
        kinds: &[(&str, &str, &'static str)],
    ) -> Result<(), kube::Error> {
        for (group, version, kind) in kinds {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
            for object in api.list(&ListParams::default()).await?.items {
                let location = format!("{kind} {}", object.name_any());
                let mut value = serde_json::to_value(&object).unwrap_or_default();
                if let Some(data) = value["data"].as_object_mut().filter(|_| *kind == "Secret") {
                    data.values_mut().for_each(|value| *value = Value::Null);
                }
                if *kind == "Terraform" {
                    value["spec"] = Value::Null;
                }
                self.search(kind, &location, value.to_string().as_bytes());
            }
        }
        Ok(())
    }

    /// Panics if a value was found, or if the marker was not found in each of `kinds`.
    ///
    /// # Panics
    /// As above; the message begins with `step`.
    pub fn assert_clean(&self, step: &str, kinds: &[&'static str]) {
        assert!(self.found.is_empty(), "{step}: {:#?}", self.found);
        let unmarked: Vec<_> = kinds.iter().filter(|kind| !self.marked.contains(*kind)).collect();
        assert!(
            unmarked.is_empty(),
            "{step}: {} was not found in {unmarked:?}: the search did not cover it",
            self.marker
        );
    }
}
