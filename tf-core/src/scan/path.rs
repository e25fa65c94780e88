//! Which paths can be read off an expression: the whole of it, or the directory below which it must lie.
//!
//! What is computed leads nowhere up where all of it is written down, or is the name of a file that was found: then no part
//! of it is `..`, and none becomes one by what stands around it. Values of variables are looked at elsewhere.

use super::Named;
use hcl_edit::{
    Decorated,
    expr::{Expression, ForIntro, FuncCall, ObjectKey, Traversal, TraversalOperator},
    template::{Element, StringTemplate},
};

/// Functions whose results are made of their arguments' texts, or of parts of these, and of nothing else. A text without `..`
/// has no part that is one; what puts texts together is not among them.
const HARMLESS: [&str; 22] = [
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

/// Where a text comes from that leads nowhere up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// It is written in the configuration, or the name of a file that was found.
    Written,
    /// Variables of the module or the workspace are part of it: it leads nowhere up if they do not.
    Given,
}

/// The keys and values of what is gone through; none for what may be anything.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Members {
    key: Option<Origin>,
    value: Option<Origin>,
}

/// What stands for elements where an expression is: `each`, and the variables of `for`.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    each: Members,
    names: Vec<(String, Option<Origin>)>,
}

impl Scope {
    /// Enters a block with this `for_each`; gives what has to be given back.
    pub(super) fn enter_each(&mut self, collection: &Expression) -> Members {
        let members = self.members(collection);
        std::mem::replace(&mut self.each, members)
    }

    /// Leaves it.
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

    /// Leaves it.
    pub(super) fn leave_for(&mut self, intro: &ForIntro) {
        let added = 1 + usize::from(intro.key_var.is_some());
        self.names.truncate(self.names.len().saturating_sub(added));
    }

    /// The path that an expression is, where it can be read off: a text, or one behind `path.module`, `path.root` or
    /// `path.cwd`, or one of these alone; or the directory below which a computed one lies.
    pub(super) fn path_of(&self, expression: &Expression) -> Option<Named> {
        match expression {
            Expression::String(text) => (!text.starts_with(['/', '~'])).then(|| named(false, text)),
            Expression::StringTemplate(template) => self.path_of_template(template),
            Expression::Traversal(traversal) => directory(traversal),
            _ => None,
        }
    }

    fn path_of_template(&self, template: &StringTemplate) -> Option<Named> {
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
        let behind = base.is_some();
        let mut path = base.unwrap_or_else(|| named(false, ""));
        let (mut computed, mut before): (Option<Origin>, &str) = (None, "");
        for element in elements {
            match element {
                Element::Literal(text) if computed.is_none() => {
                    path.path.push_str(text);
                    before = text.as_str();
                }
                Element::Literal(text) if joins(text) => before = text.as_str(),
                Element::Interpolation(part) if !before.is_empty() && !is_dots(before) => {
                    computed = computed.max(Some(self.origin(&part.expr)?));
                    before = "";
                }
                _ => return None,
            }
        }
        // Behind the directory's name itself only a slash begins a path in it.
        if behind && !path.path.is_empty() && !path.path.starts_with('/') {
            return None;
        }
        if computed.is_some() {
            let end = path.path.rfind('/').unwrap_or(0);
            path.path.truncate(end);
        }
        Some(Named { computed, ..path })
    }

    /// Where the texts in a value come from, if no part of them is `..`.
    fn origin(&self, expression: &Expression) -> Option<Origin> {
        match expression {
            // Numbers and truths have no part that is a path.
            Expression::Null(_)
            | Expression::Bool(_)
            | Expression::Number(_)
            | Expression::UnaryOp(_)
            | Expression::BinaryOp(_) => Some(Origin::Written),
            Expression::String(text) => (!text.contains("..")).then_some(Origin::Written),
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
            Expression::FuncCall(call) if call.name.name.as_str() == "fileset" => self.found(call),
            Expression::FuncCall(call) => HARMLESS
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

    fn origins<'a>(&self, all: impl IntoIterator<Item = &'a Expression>) -> Option<Origin> {
        all.into_iter().try_fold(Origin::Written, |origin, expression| {
            Some(origin.max(self.origin(expression)?))
        })
    }

    /// Where the member of `each` comes from.
    pub(super) fn origin_of_each(&self, member: &str) -> Option<Origin> {
        match member {
            "key" => self.each.key,
            "value" => self.each.value,
            _ => None,
        }
    }

    /// The innermost variable of a `for` with this name, and what it stands for.
    pub(super) fn named(&self, name: &str) -> Option<&(String, Option<Origin>)> {
        self.names.iter().rev().find(|(held, _)| held == name)
    }

    fn origin_of(&self, traversal: &Traversal) -> Option<Origin> {
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
            ("var", _) | ("terraform", "workspace") => Some(Origin::Given),
            ("each", member) => self.origin_of_each(member),
            ("count", "index") => Some(Origin::Written),
            _ => None,
        }
    }

    /// The names of files that are found below a directory: none of them leads up, unless the pattern does.
    fn found(&self, call: &FuncCall) -> Option<Origin> {
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
                // Without a key the elements are numbered.
                key: key.map_or(Some(Origin::Written), |key| inner.origin(key)),
                value: inner.origin(&each.value_expr),
            };
        }
        let all = self.origin(collection);
        Members { key: all, value: all }
    }
}

/// The interpolations of a text, but for the directory that it begins with.
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

/// Whether a literal behind something computed keeps that from leading up: neither by itself, nor by what stands before it.
fn joins(text: &str) -> bool {
    !text.contains("..") && text != "." && !text.starts_with("./")
}

/// Whether nothing but dots stands behind the last slash: what follows could make `..` of them.
fn is_dots(text: &str) -> bool {
    let last = text.rsplit('/').next().unwrap_or_default();
    !last.is_empty() && last.bytes().all(|byte| byte == b'.')
}

fn named(of_module: bool, path: &str) -> Named {
    Named {
        of_module,
        path: path.to_owned(),
        template: false,
        computed: None,
    }
}

/// The directory that `path.module`, `path.root` or `path.cwd` names.
fn directory(traversal: &Traversal) -> Option<Named> {
    let [operator] = traversal.operators.as_slice() else {
        return None;
    };
    match operator.value() {
        _ if !is_path(traversal) => None,
        TraversalOperator::GetAttr(name) if name.as_str() == "module" => Some(named(true, "")),
        TraversalOperator::GetAttr(name) if matches!(name.as_str(), "root" | "cwd") => Some(named(false, "")),
        _ => None,
    }
}

/// Whether the function is the language's own: by its name alone, or in the namespace `core`.
pub(super) fn is_builtin(call: &FuncCall) -> bool {
    let namespace = &call.name.namespace;
    namespace.iter().all(|part| part.as_str() == "core") && namespace.len() <= 1
}

pub(super) fn is_module_path(expression: &Expression) -> bool {
    matches!(expression, Expression::Traversal(traversal) if is_path(traversal))
}

/// `path.module`, `path.root` or `path.cwd`: for a stack, all of them lie in its closure.
pub(super) fn is_path(traversal: &Traversal) -> bool {
    let Expression::Variable(name) = &traversal.expr else {
        return false;
    };
    let [operator] = traversal.operators.as_slice() else {
        return name.as_str() == "path";
    };
    name.as_str() == "path" && matches!(operator.value(), TraversalOperator::GetAttr(_))
}
