//! Edits of one file of objects. A batch parses the file once, however many of its documents it changes.

use std::collections::HashMap;

use serde_json::Value;

use super::branch::check_size;
use super::kinds::Kinds;
use super::yaml;
use crate::store::state::Key;

/// Separator of a document that has none yet.
const SEPARATOR: &str = "---\n";

/// A file and its edits.
#[derive(Debug)]
pub(super) struct FileEdit {
    /// `None` for removed documents.
    documents: Vec<Option<Document>>,
    /// Number of the first document of each object.
    numbers: HashMap<Key, usize>,
    /// Whether a document differs from the one that was read.
    is_changed: bool,
}

/// Why a document is not written.
#[derive(Debug)]
pub(super) enum EditError {
    /// The document cannot be written, for this reason.
    Document(String),
    /// The file would be too large.
    FileSize(String),
}

/// One document of a file.
#[derive(Debug)]
struct Document {
    /// Line before the document; empty for the first one.
    separator: String,
    text: String,
    content: Value,
    /// `None` if it is not an object.
    key: Option<Key>,
}

impl FileEdit {
    /// Parses a file. The error is the reason.
    pub(super) fn parse(kinds: &Kinds, text: &str) -> Result<Self, String> {
        let (mut documents, mut numbers) = (Vec::new(), HashMap::new());
        let mut end = 0;
        for range in yaml::documents(text) {
            let content = yaml::parse(&text[range.clone()])?;
            let key = kinds.key(&content);
            if let Some(key) = &key {
                numbers.entry(key.clone()).or_insert(documents.len());
            }
            documents.push(Some(Document {
                separator: text[end..range.start].to_owned(),
                text: text[range.clone()].to_owned(),
                content,
                key,
            }));
            end = range.end;
        }
        Ok(Self {
            documents,
            numbers,
            is_changed: false,
        })
    }

    /// Returns the content of an object's document; `None` if it has none.
    pub(super) fn content(&self, key: &Key) -> Option<&Value> {
        let document = self.documents[*self.numbers.get(key)?].as_ref()?;
        Some(&document.content)
    }

    /// Changes the document of an object, or appends one. After an error the file is as before.
    pub(super) fn put(&mut self, key: &Key, content: Value) -> Result<(), EditError> {
        let size = self.size();
        let number = self.numbers.get(key).copied();
        if let Some(document) = number.and_then(|number| self.documents[number].as_mut()) {
            let text = yaml::edit(&document.text, &content).map_err(EditError::Document)?;
            let others = size - yaml::size_of_lines(&document.text);
            check_size(others + yaml::size_of_lines(&text)).map_err(EditError::FileSize)?;
            document.text = text;
            document.content = content;
        } else {
            self.append(key, content, size)?;
        }
        self.is_changed = true;
        Ok(())
    }

    /// Appends a document to a file of this size.
    fn append(&mut self, key: &Key, content: Value, size: usize) -> Result<(), EditError> {
        let mut document = Document {
            separator: SEPARATOR.to_owned(),
            text: yaml::write(&content).map_err(EditError::Document)?,
            content,
            key: Some(key.clone()),
        };
        check_size(size + SEPARATOR.len() + document.text.len()).map_err(EditError::FileSize)?;
        // A document without content is a comment on the next one.
        if let [Some(only)] = self.documents.as_slice()
            && yaml::is_blank(&only.text)
            && !yaml::needs_separator(&only.text)
        {
            let mut text = String::new();
            yaml::push_lines(&mut text, &only.text);
            text.push_str(&document.text);
            document.text = text;
            self.documents.clear();
        }
        self.numbers.insert(key.clone(), self.documents.len());
        self.documents.push(Some(document));
        Ok(())
    }

    /// Removes the document of an object, if it has one.
    pub(super) fn remove(&mut self, key: &Key) {
        if let Some(number) = self.numbers.remove(key) {
            self.is_changed = true;
            self.documents[number] = None;
        }
    }

    /// Whether a document differs from the one that was read.
    pub(super) const fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Returns the objects in the order of their documents.
    pub(super) fn keys(&self) -> Vec<Key> {
        let documents = self.documents.iter().flatten();
        documents.filter_map(|document| document.key.clone()).collect()
    }

    /// Returns the length of the text of the file.
    pub(super) fn size(&self) -> usize {
        let documents = self.documents.iter().flatten();
        let sizes = documents.enumerate().map(|(number, document)| {
            let separator = if number > 0 { &*document.separator } else { "" };
            yaml::size_of_lines(separator) + yaml::size_of_lines(&document.text)
        });
        sizes.sum()
    }

    /// Returns the text of the file; `None` if no document with content is left.
    pub(super) fn render(&self) -> Option<String> {
        let documents: Vec<&Document> = self.documents.iter().flatten().collect();
        if documents.iter().all(|document| yaml::is_blank(&document.text)) {
            return None;
        }
        let mut joined = String::new();
        for (number, document) in documents.into_iter().enumerate() {
            if number > 0 {
                yaml::push_lines(&mut joined, &document.separator);
            }
            yaml::push_lines(&mut joined, &document.text);
        }
        Some(joined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_map(name: &str, value: &str) -> String {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  one: {value} # first\n")
    }

    fn key(name: &str) -> Key {
        Key::new("configmaps", "default", name)
    }

    fn parse(text: &str) -> FileEdit {
        FileEdit::parse(&Kinds::new(&[]).unwrap(), text).unwrap()
    }

    #[test]
    fn the_other_documents_of_a_file_stay_as_they_are() {
        let (first, second) = (config_map("a", "red"), config_map("b", "green"));
        let text = format!("# one\n{first}--- # two\n{second}---\n# the end\n");
        let mut file = parse(&text);
        assert_eq!(file.keys(), [key("a"), key("b")]);
        let mut content = file.content(&key("b")).unwrap().clone();
        content["data"]["two"] = "blue".into();
        file.put(&key("b"), content).unwrap();
        let expected = text.replace("green # first\n", "green # first\n  two: blue\n");
        assert_eq!(file.render(), Some(expected));
        assert_eq!(file.size(), file.render().unwrap().len());
        file.remove(&key("a"));
        let rest = file.render().unwrap();
        assert_eq!(file.size(), rest.len());
        assert!(
            rest.starts_with("apiVersion: v1\n") && rest.ends_with("  two: blue\n---\n# the end\n"),
            "{rest}"
        );
        file.remove(&key("b"));
        assert_eq!(file.render(), None);
    }

    #[test]
    fn a_new_document_follows_the_others() {
        let mut file = parse("# mine\n");
        for name in ["a", "b"] {
            let text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n");
            file.put(&key(name), yaml::parse(&text).unwrap()).unwrap();
        }
        let text = file.render().unwrap();
        assert_eq!(file.size(), text.len());
        assert!(
            text.starts_with("# mine\n") && text.contains("name: a\n---\n"),
            "{text}"
        );
        assert_eq!(parse(&text).keys(), [key("a"), key("b")]);
        assert_eq!(parse("").render(), None);
    }

    #[test]
    fn a_file_keeps_its_version_of_yaml() {
        let text = format!("%YAML 1.2\n---\n{}", config_map("a", "red"));
        let mut file = parse(&text);
        assert_eq!(file.keys(), [key("a")]);
        let mut content = file.content(&key("a")).unwrap().clone();
        content["data"]["one"] = "blue".into();
        file.put(&key("a"), content.clone()).unwrap();
        let edited = file.render().unwrap();
        assert!(
            edited.starts_with("%YAML 1.2\n---\n") && edited.contains("blue"),
            "{edited}"
        );
        file.remove(&key("a"));
        assert_eq!(file.render(), None);
        let mut file = parse("%YAML 1.2\n");
        file.put(&key("a"), content).unwrap();
        let written = file.render().unwrap();
        assert!(written.starts_with("%YAML 1.2\n---\n"), "{written}");
        assert_eq!(parse(&written).keys(), [key("a")]);
    }

    #[test]
    fn a_document_that_makes_its_file_too_large_changes_nothing() {
        let text = config_map("a", "red");
        let text = format!("{text}# {}\n", "x".repeat((16 << 20) - text.len() - 3));
        let mut file = parse(&text);
        let content = file.content(&key("a")).unwrap().clone();
        let mut larger = content.clone();
        larger["data"]["one"] = "orange".into();
        for (name, content) in [("a", larger), ("b", content)] {
            let error = file.put(&key(name), content).unwrap_err();
            assert!(matches!(error, EditError::FileSize(_)), "{error:?}");
        }
        assert!(!file.is_changed());
        assert_eq!(file.render(), Some(text));
    }

    #[test]
    fn a_file_that_does_not_parse_is_not_edited() {
        FileEdit::parse(&Kinds::new(&[]).unwrap(), "a: [\n").unwrap_err();
    }
}
