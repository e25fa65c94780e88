//! Paths of expressions: the whole path, or a directory that contains it.
//!
//! A computed path stays in its directory if all its parts are literals or names of found files, none is `..`, and none becomes `..`
//! by its neighbours. Values of variables are checked elsewhere.

use hcl_edit::Decorated;
use hcl_edit::expr::{Expression, ForIntro, FuncCall, ObjectKey, Traversal, TraversalOperator};
use hcl_edit::template::{Element, StringTemplate};

use super::PathReference;

/// Functions that return texts of their arguments, or parts of them, but do not concatenate: without `..` in the arguments, there is
/// none in the result.
const TEXT_PRESERVING: [&str; 22] = [
    "basename",
    "coalesce",
    "compact",
    "concat",
    "distinct",
    "element",
    "flatten",
    "keys",
    "lookup",
    "lower",
    "merge",
    "one",
    "sort",
    "tolist",
    "tomap",
    "toset",
    "tostring",
    "trimprefix",
    "trimspace",
    "trimsuffix",
    "upper",
    "values",
];

/// The origin of a computed part of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathOrigin {
    /// A literal, or the name of a found file.
    Literal,
    /// Variables of the module, or the workspace: they must not contain `..`.
    Variable,
}

/// The origins of the keys and values of a collection; `None` if unknown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Members {
    key: Option<PathOrigin>,
    value: Option<PathOrigin>,
}

/// The iteration variables of an expression: `each`, and those of `for`.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    each: Members,
    names: Vec<(String, Option<PathOrigin>)>,
}

impl Scope {
    /// Enters a block with this `for_each`. Returns the outer `each`.
    pub(super) fn enter_each(&mut self, collection: &Expression) -> Members {
        let members = self.members(collection);
        std::mem::replace(&mut self.each, members)
    }

    /// Leaves a block.
    pub(super) const fn leave_each(&mut self, outer: Members) {
        self.each = outer;
    }

    /// Enters the body of a `for`.
    pub(super) fn enter_for(&mut self, intro: &ForIntro) {
        let members = self.members(&intro.collection_expr);
        if let Some(key) = &intro.key_var {
            self.names.push((key.as_str().to_owned(), members.key));
        }
        self.names
            .push((intro.value_var.as_str().to_owned(), members.value));
    }

    /// Leaves the body of a `for`.
    pub(super) fn leave_for(&mut self, intro: &ForIntro) {
        let added = 1 + usize::from(intro.key_var.is_some());
        self.names.truncate(self.names.len().saturating_sub(added));
    }

    /// Returns the path of an expression, if it is known: a text, `path.module`, `path.root` or `path.cwd`, or a text after one of
    /// these. For a computed path, returns the directory that contains it.
    pub(super) fn path_of(&self, expression: &Expression) -> Option<PathReference> {
        match expression {
            Expression::String(text) => (!text.starts_with(['/', '~'])).then(|| reference(false, text)),
            Expression::StringTemplate(template) => self.path_of_template(template),
            Expression::Traversal(traversal) => directory(traversal),
            _ => None,
        }
    }

    fn path_of_template(&self, template: &StringTemplate) -> Option<PathReference> {
        let mut elements = template.iter().peekable();
        let base = match elements.peek()? {
            Element::Interpolation(part) => {
                let base = self.path_of(&part.expr).filter(|base| base.path.is_empty())?;
                elements.next();
                Some(base)
            }
            Element::Literal(text) if !text.starts_with(['/', '~']) => None,
            _ => return None,
        };
        let has_base = base.is_some();
        let mut path = base.unwrap_or_else(|| reference(false, ""));
        let (mut computed, mut before): (Option<PathOrigin>, &str) = (None, "");
        for element in elements {
            match element {
                Element::Literal(text) if computed.is_none() => {
                    path.path.push_str(text);
                    before = text.as_str();
                }
                Element::Literal(text) if is_safe_suffix(text) => before = text.as_str(),
                Element::Interpolation(part) if !before.is_empty() && !is_dots(before) => {
                    computed = computed.max(Some(self.origin(&part.expr)?));
                    before = "";
                }
                _ => return None,
            }
        }
        // A path in the base directory begins with a slash.
        if has_base && !path.path.is_empty() && !path.path.starts_with('/') {
            return None;
        }
        if computed.is_some() {
            let end = path.path.rfind('/').unwrap_or(0);
            path.path.truncate(end);
        }
        Some(PathReference { computed, ..path })
    }

    /// Returns the origin of the texts of a value, if none of their parts is `..`.
    fn origin(&self, expression: &Expression) -> Option<PathOrigin> {
        match expression {
            // Numbers and booleans are not paths.
            Expression::Null(_)
            | Expression::Bool(_)
            | Expression::Number(_)
            | Expression::UnaryOp(_)
            | Expression::BinaryOp(_) => Some(PathOrigin::Literal),
            Expression::String(text) => (!text.contains("..")).then_some(PathOrigin::Literal),
            Expression::Array(elements) => self.origins(elements.iter()),
            Expression::Object(members) => {
                let keys = members.iter().filter_map(|(key, _)| match key {
                    ObjectKey::Expression(key) => Some(key),
                    ObjectKey::Ident(_) => None,
                });
                self.origins(keys.chain(members.iter().map(|(_, value)| value.expr())))
            }
            Expression::Parenthesis(inner) => self.origin(inner.inner()),
            Expression::Conditional(both) => self.origins([&both.true_expr, &both.false_expr]),
            Expression::Variable(name) => self.named(name.as_str())?.1,
            Expression::Traversal(traversal) => self.origin_of(traversal),
            Expression::FuncCall(call) if !is_builtin(call) => None,
            Expression::FuncCall(call) if call.name.name.as_str() == "fileset" => {
                self.origin_of_fileset(call)
            }
            Expression::FuncCall(call) => TEXT_PRESERVING
                .contains(&call.name.name.as_str())
                .then(|| self.origins(call.args.iter()))?,
            Expression::ForExpr(each) => {
                let mut inner = self.clone();
                inner.enter_for(&each.intro);
                inner.origins(each.key_expr.iter().chain([&each.value_expr]))
            }
            Expression::StringTemplate(_) | Expression::HeredocTemplate(_) => None,
        }
    }

    fn origins<'a>(&self, all: impl IntoIterator<Item = &'a Expression>) -> Option<PathOrigin> {
        all.into_iter()
            .try_fold(PathOrigin::Literal, |origin, expression| {
                Some(origin.max(self.origin(expression)?))
            })
    }

    /// Returns the origin of `each.key` or `each.value`.
    pub(super) fn origin_of_each(&self, member: &str) -> Option<PathOrigin> {
        match member {
            "key" => self.each.key,
            "value" => self.each.value,
            _ => None,
        }
    }

    /// Returns the innermost variable of a `for` with this name, and its origin.
    pub(super) fn named(&self, name: &str) -> Option<&(String, Option<PathOrigin>)> {
        self.names.iter().rev().find(|(variable, _)| variable == name)
    }

    fn origin_of(&self, traversal: &Traversal) -> Option<PathOrigin> {
        let Expression::Variable(name) = &traversal.expr else {
            return None;
        };
        if let Some((_, origin)) = self.named(name.as_str()) {
            return *origin;
        }
        let first = traversal.operators.first().map(Decorated::value);
        let Some(TraversalOperator::GetAttr(first)) = first else {
            return None;
        };
        match (name.as_str(), first.as_str()) {
            ("var", _) | ("terraform", "workspace") => Some(PathOrigin::Variable),
            ("each", member) => self.origin_of_each(member),
            ("count", "index") => Some(PathOrigin::Literal),
            _ => None,
        }
    }

    /// Returns the origin of found files, which is that of the pattern.
    fn origin_of_fileset(&self, call: &FuncCall) -> Option<PathOrigin> {
        let mut arguments = call.args.iter();
        let (folder, pattern) = (arguments.next()?, arguments.next()?);
        self.path_of(folder)?;
        self.origin(pattern)
    }

    fn members(&self, collection: &Expression) -> Members {
        if let Expression::ForExpr(each) = collection {
            let mut inner = self.clone();
            inner.enter_for(&each.intro);
            let key = each.key_expr.as_ref();
            return Members {
                // Without a key, the result is a list.
                key: key.map_or(Some(PathOrigin::Literal), |key| inner.origin(key)),
                value: inner.origin(&each.value_expr),
            };
        }
        let all = self.origin(collection);
        Members { key: all, value: all }
    }
}

/// Returns the interpolations of a text, except for its base directory.
pub(super) fn parts(text: Option<&Expression>) -> impl Iterator<Item = &Expression> {
    let template = text.and_then(|text| match text {
        Expression::StringTemplate(template) => Some(template),
        _ => None,
    });
    let elements = template.into_iter().flat_map(|template| template.iter());
    elements.filter_map(|element| match element {
        Element::Interpolation(part) if !is_module_path(&part.expr) => Some(&part.expr),
        _ => None,
    })
}

/// Whether a literal after a computed part cannot form `..` with it.
fn is_safe_suffix(text: &str) -> bool {
    !text.contains("..") && text != "." && !text.starts_with("./")
}

/// Whether only dots follow the last slash, so that the next part could complete `..`.
fn is_dots(text: &str) -> bool {
    let last = text.rsplit('/').next().unwrap_or_default();
    !last.is_empty() && last.bytes().all(|byte| byte == b'.')
}

fn reference(of_module: bool, path: &str) -> PathReference {
    PathReference {
        of_module,
        path: path.to_owned(),
        is_template: false,
        computed: None,
    }
}

/// Returns the directory of `path.module`, `path.root` or `path.cwd`.
fn directory(traversal: &Traversal) -> Option<PathReference> {
    let [operator] = traversal.operators.as_slice() else {
        return None;
    };
    match operator.value() {
        _ if !is_path(traversal) => None,
        TraversalOperator::GetAttr(name) if name.as_str() == "module" => Some(reference(true, "")),
        TraversalOperator::GetAttr(name) if matches!(name.as_str(), "root" | "cwd") => {
            Some(reference(false, ""))
        }
        _ => None,
    }
}

/// Whether a function is built in: without namespace, or in `core`.
pub(super) fn is_builtin(call: &FuncCall) -> bool {
    let namespace = &call.name.namespace;
    namespace.iter().all(|part| part.as_str() == "core") && namespace.len() <= 1
}

pub(super) fn is_module_path(expression: &Expression) -> bool {
    matches!(expression, Expression::Traversal(traversal) if is_path(traversal))
}

/// Whether a traversal is `path.module`, `path.root` or `path.cwd`, which are all in the closure of a stack.
pub(super) fn is_path(traversal: &Traversal) -> bool {
    let Expression::Variable(name) = &traversal.expr else {
        return false;
    };
    let [operator] = traversal.operators.as_slice() else {
        return name.as_str() == "path";
    };
    name.as_str() == "path" && matches!(operator.value(), TraversalOperator::GetAttr(_))
}
