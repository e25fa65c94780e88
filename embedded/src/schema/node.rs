//! Compiled nodes of a structural schema: keywords checked, patterns and rules compiled.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::error::CompileError;
use super::format::Format;
use super::path;
use super::pattern::Pattern;
use super::rule::Rule;

/// Maximum nesting of objects and schemas. A JSON parser has the same limit; other values are rejected before any recursion.
pub(crate) const MAX_DEPTH: usize = 128;

/// The value of `additionalProperties`.
#[derive(Debug)]
pub(super) enum AdditionalProperties {
    /// The keyword is absent.
    Unspecified,
    /// `true`: anything.
    Allowed,
    /// `false`: nothing.
    Forbidden,
    /// A schema for every other key.
    Schema(Box<Node>),
}

/// `x-kubernetes-list-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListType {
    Atomic,
    Set,
    Map,
}

/// Constraints on numbers.
#[derive(Debug, Default)]
pub(super) struct NumberLimits {
    pub(super) minimum: Option<f64>,
    pub(super) maximum: Option<f64>,
    pub(super) exclusive_minimum: bool,
    pub(super) exclusive_maximum: bool,
    pub(super) multiple_of: Option<f64>,
}

/// Constraints on lengths and counts.
#[derive(Debug, Default)]
pub(super) struct SizeLimits {
    pub(super) min_length: Option<i64>,
    pub(super) max_length: Option<i64>,
    pub(super) min_items: Option<i64>,
    pub(super) max_items: Option<i64>,
    pub(super) min_properties: Option<i64>,
    pub(super) max_properties: Option<i64>,
    pub(super) unique_items: bool,
}

/// The `x-kubernetes-*` extensions.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a keyword of its own")]
pub(super) struct Extensions {
    pub(super) preserve_unknown: bool,
    pub(super) embedded_resource: bool,
    pub(super) int_or_string: bool,
    pub(super) list_type: Option<ListType>,
    pub(super) list_map_keys: Vec<String>,
    /// Whether `x-kubernetes-map-type` is `granular`, `atomic` or absent: maps of other types cannot be correlated.
    pub(super) is_correlatable_map: bool,
}

/// A compiled node.
#[derive(Debug)]
pub(super) struct Node {
    /// As in the schema; empty without a type.
    pub(super) type_name: String,
    /// Allowed types of values.
    pub(super) types: Vec<&'static str>,
    pub(super) nullable: bool,
    pub(super) format: Option<Format>,
    pub(super) properties: BTreeMap<String, Self>,
    pub(super) additional_properties: AdditionalProperties,
    pub(super) items: Option<Box<Self>>,
    pub(super) required: Vec<String>,
    pub(super) enumeration: Vec<Value>,
    pub(super) pattern: Option<Pattern>,
    pub(super) number_limits: NumberLimits,
    pub(super) size_limits: SizeLimits,
    pub(super) default: Option<Value>,
    pub(super) all_of: Vec<Self>,
    pub(super) any_of: Vec<Self>,
    pub(super) one_of: Vec<Self>,
    pub(super) not: Option<Box<Self>>,
    pub(super) extensions: Extensions,
    pub(super) rules: Vec<Rule>,
    /// Whether this node or a descendant has rules; other subtrees are skipped.
    pub(super) has_rules: bool,
    /// Like `has_rules`, but without the rules in `allOf`: kube-apiserver does not check those.
    pub(super) declares_rules: bool,
}

const TYPES: [&str; 6] = ["object", "array", "string", "integer", "number", "boolean"];

impl Node {
    /// Compiles a schema and its descendants.
    pub(super) fn compile(schema: &Value, path: &str, depth: usize) -> Result<Self, CompileError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(CompileError::TooDeep { limit: MAX_DEPTH });
        };
        let keywords = Keywords {
            path,
            keywords: schema
                .as_object()
                .ok_or_else(|| keyword_error(path, "", "an object"))?,
        };
        let extensions = keywords.extensions()?;
        let type_name = keywords.string("type")?.unwrap_or_default();
        let types = types_of(&type_name, extensions.int_or_string)
            .ok_or_else(|| keyword_error(path, "type", "a JSON type"))?;
        let mut node = Self {
            types,
            nullable: keywords.flag("nullable")?,
            format: keywords
                .string("format")?
                .and_then(|name| Format::from_name(&name)),
            properties: keywords.children_by_name("properties", depth)?,
            additional_properties: keywords.additional_properties(depth)?,
            items: keywords.child("items", depth)?.map(Box::new),
            required: keywords.strings("required")?,
            enumeration: keywords.list("enum")?.to_vec(),
            pattern: keywords.pattern()?,
            number_limits: keywords.number_limits()?,
            size_limits: keywords.size_limits()?,
            default: keywords.typed("default", "", Some)?.cloned(),
            all_of: keywords.children("allOf", depth)?,
            any_of: keywords.children("anyOf", depth)?,
            one_of: keywords.children("oneOf", depth)?,
            not: keywords.child("not", depth)?.map(Box::new),
            rules: Vec::new(),
            has_rules: false,
            declares_rules: false,
            extensions,
            type_name,
        };
        for rule in keywords.list("x-kubernetes-validations")? {
            node.rules.push(Rule::compile(rule, path)?);
        }
        node.declares_rules = !node.rules.is_empty() || node.children().any(|child| child.declares_rules);
        node.has_rules =
            node.declares_rules || node.children().chain(&node.all_of).any(|child| child.has_rules);
        Ok(node)
    }

    fn children(&self) -> impl Iterator<Item = &Self> {
        self.properties
            .values()
            .chain(self.additional_schema())
            .chain(self.items.as_deref())
    }

    /// Returns the schema of keys that are not properties.
    pub(super) fn additional_schema(&self) -> Option<&Self> {
        match &self.additional_properties {
            AdditionalProperties::Schema(node) => Some(node),
            _ => None,
        }
    }

    /// Returns the schema of the field `name`; properties take precedence.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or_else(|| self.additional_schema())
    }

    /// Returns the fields or entries of a value that the schema declares, each with its schema and path.
    pub(super) fn entries<'a>(&'a self, value: &'a Value, at: &str) -> Vec<(&'a Value, &'a Self, String)> {
        match (value, &self.items) {
            (Value::Object(fields), _) => fields
                .iter()
                .filter_map(|(name, field)| match self.properties.get(name) {
                    Some(child) => Some((field, child, path::child(at, name))),
                    None => Some((field, self.additional_schema()?, path::key(at, name))),
                })
                .collect(),
            (Value::Array(entries), Some(child)) => {
                let numbered = entries.iter().enumerate();
                numbered
                    .map(|(i, entry)| (entry, &**child, path::index(at, i)))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether `type` allows values of this type.
    pub(super) fn allows_type(&self, type_name: &str) -> bool {
        self.types.contains(&type_name)
    }
}

fn types_of(name: &str, int_or_string: bool) -> Option<Vec<&'static str>> {
    if int_or_string {
        return Some(vec!["integer", "string"]);
    }
    if name.is_empty() {
        return Some(Vec::new());
    }
    TYPES
        .iter()
        .find(|supported| **supported == name)
        .map(|supported| vec![*supported])
}

fn keyword_error(path: &str, keyword: &str, expected: &'static str) -> CompileError {
    CompileError::Keyword {
        path: path.to_owned(),
        keyword: keyword.to_owned(),
        expected,
    }
}

/// Typed access to the keywords of one schema.
struct Keywords<'a> {
    path: &'a str,
    keywords: &'a Map<String, Value>,
}

impl<'a> Keywords<'a> {
    fn typed<T>(
        &self,
        keyword: &str,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, CompileError> {
        match self.keywords.get(keyword) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value)
                .map(Some)
                .ok_or_else(|| keyword_error(self.path, keyword, expected)),
        }
    }

    fn string(&self, keyword: &str) -> Result<Option<String>, CompileError> {
        self.typed(keyword, "a string", |value| value.as_str().map(str::to_owned))
    }

    fn flag(&self, keyword: &str) -> Result<bool, CompileError> {
        Ok(self
            .typed(keyword, "a boolean", Value::as_bool)?
            .unwrap_or_default())
    }

    fn count(&self, keyword: &str) -> Result<Option<i64>, CompileError> {
        self.typed(keyword, "an integer", Value::as_i64)
    }

    fn number(&self, keyword: &str) -> Result<Option<f64>, CompileError> {
        self.typed(keyword, "a number", Value::as_f64)
    }

    fn list(&self, keyword: &str) -> Result<&'a [Value], CompileError> {
        Ok(self
            .typed(keyword, "an array", |value| value.as_array().map(Vec::as_slice))?
            .unwrap_or_default())
    }

    fn strings(&self, keyword: &str) -> Result<Vec<String>, CompileError> {
        let list = self.list(keyword)?;
        let strings: Option<Vec<String>> = list.iter().map(|item| item.as_str().map(str::to_owned)).collect();
        strings.ok_or_else(|| keyword_error(self.path, keyword, "an array of strings"))
    }

    fn child(&self, keyword: &str, depth: usize) -> Result<Option<Node>, CompileError> {
        let child_path = format!("{}.{keyword}", self.path);
        self.keywords
            .get(keyword)
            .map(|schema| Node::compile(schema, &child_path, depth))
            .transpose()
    }

    fn children(&self, keyword: &str, depth: usize) -> Result<Vec<Node>, CompileError> {
        let numbered = self.list(keyword)?.iter().enumerate();
        numbered
            .map(|(i, schema)| Node::compile(schema, &format!("{}.{keyword}[{i}]", self.path), depth))
            .collect()
    }

    fn children_by_name(&self, keyword: &str, depth: usize) -> Result<BTreeMap<String, Node>, CompileError> {
        let Some(schemas) = self.typed(keyword, "an object", Value::as_object)? else {
            return Ok(BTreeMap::new());
        };
        let compiled = schemas.iter().map(|(name, schema)| {
            let child_path = format!("{}.{keyword}.{name}", self.path);
            Ok((name.clone(), Node::compile(schema, &child_path, depth)?))
        });
        compiled.collect()
    }

    fn additional_properties(&self, depth: usize) -> Result<AdditionalProperties, CompileError> {
        match self.keywords.get("additionalProperties") {
            None => Ok(AdditionalProperties::Unspecified),
            Some(Value::Bool(true)) => Ok(AdditionalProperties::Allowed),
            Some(Value::Bool(false)) => Ok(AdditionalProperties::Forbidden),
            Some(schema) => {
                let child_path = format!("{}.additionalProperties", self.path);
                let node = Node::compile(schema, &child_path, depth)?;
                Ok(AdditionalProperties::Schema(Box::new(node)))
            }
        }
    }

    fn pattern(&self) -> Result<Option<Pattern>, CompileError> {
        let Some(source) = self.string("pattern")?.filter(|source| !source.is_empty()) else {
            return Ok(None);
        };
        let compiled = Pattern::compile(&source);
        let compiled = compiled.map_err(|error| CompileError::Pattern {
            path: self.path.to_owned(),
            message: error.to_string(),
            pattern: source,
        });
        compiled.map(Some)
    }

    fn number_limits(&self) -> Result<NumberLimits, CompileError> {
        Ok(NumberLimits {
            minimum: self.number("minimum")?,
            maximum: self.number("maximum")?,
            exclusive_minimum: self.flag("exclusiveMinimum")?,
            exclusive_maximum: self.flag("exclusiveMaximum")?,
            multiple_of: self.number("multipleOf")?,
        })
    }

    fn size_limits(&self) -> Result<SizeLimits, CompileError> {
        Ok(SizeLimits {
            min_length: self.count("minLength")?,
            max_length: self.count("maxLength")?,
            min_items: self.count("minItems")?,
            max_items: self.count("maxItems")?,
            min_properties: self.count("minProperties")?,
            max_properties: self.count("maxProperties")?,
            unique_items: self.flag("uniqueItems")?,
        })
    }

    fn extensions(&self) -> Result<Extensions, CompileError> {
        let keyword = "x-kubernetes-list-type";
        let list_type = match self.string(keyword)?.as_deref() {
            None => None,
            Some("atomic") => Some(ListType::Atomic),
            Some("set") => Some(ListType::Set),
            Some("map") => Some(ListType::Map),
            Some(_) => return Err(keyword_error(self.path, keyword, "atomic, set or map")),
        };
        let map_type = self.string("x-kubernetes-map-type")?;
        Ok(Extensions {
            preserve_unknown: self.flag("x-kubernetes-preserve-unknown-fields")?,
            embedded_resource: self.flag("x-kubernetes-embedded-resource")?,
            int_or_string: self.flag("x-kubernetes-int-or-string")?,
            list_type,
            list_map_keys: self.strings("x-kubernetes-list-map-keys")?,
            is_correlatable_map: matches!(map_type.as_deref(), None | Some("granular" | "atomic")),
        })
    }
}
