//! Scan of the native syntax.

use std::path::Path;

use hcl_edit::Decorated;
use hcl_edit::expr::{Expression, ForExpr, FuncCall, Traversal, TraversalOperator};
use hcl_edit::structure::{Attribute, Block, BlockLabel, Body, Structure};
use hcl_edit::template::{Element, HeredocTemplate, StringTemplate};
use hcl_edit::visit::{Visit, visit_attr, visit_block, visit_expr, visit_func_call};

use super::flow::SplitCall;
use super::path::{self, PathOrigin, Scope, is_module_path, is_path};
use super::{FILE_FUNCTIONS, Findings, PathReference, SPLITTERS, excerpt};
use crate::artifact_path;

/// Scans a file.
pub(super) fn scan(text: &str) -> Findings {
    let Ok(body) = text.parse::<Body>() else {
        return Findings::wide("does not parse");
    };
    let mut scanner = Scanner::default();
    scanner.visit_body(&body);
    scanner.findings
}

#[derive(Default)]
struct Scanner {
    findings: Findings,
    /// The enclosing calls of [`SPLITTERS`].
    enclosing: Vec<SplitCall>,
    /// The iteration variables.
    scope: Scope,
    /// The prefix of the names in the top-level block, inside of one.
    prefix: Option<String>,
    /// The name of the current definition; empty: it has none.
    definition: String,
    /// Number of enclosing provisioners and connections, whose values have no name.
    unnamed: usize,
    /// The next call is first in a template, before a slash.
    is_path_prefix: bool,
}

impl Scanner {
    fn block(&mut self, block: &Block) {
        if self.prefix.is_some() {
            let unnamed = usize::from(matches!(block.ident.as_str(), "provisioner" | "connection"));
            self.unnamed += unnamed;
            visit_block(self, block);
            self.unnamed -= unnamed;
            return;
        }
        let prefix = prefix(block);
        for structure in &block.body {
            self.definition = match (prefix.as_str(), structure) {
                ("" | "module", _) => prefix.clone(),
                (_, Structure::Attribute(attribute)) => format!("{prefix}.{}", attribute.key.as_str()),
                (_, Structure::Block(inner)) => format!("{prefix}.{}", field(inner)),
            };
            self.prefix = Some(prefix.clone());
            match structure.as_attribute() {
                Some(attribute) if block.ident.as_str() == "module" && attribute.key.as_str() == "source" => {
                    self.module_source(attribute);
                }
                Some(attribute) => visit_attr(self, attribute),
                None => self.visit_structure(structure),
            }
        }
        self.prefix = None;
        self.definition.clear();
    }

    fn widen(&mut self, why: impl FnOnce() -> String) {
        if self.findings.wide_reason.is_none() {
            self.findings.wide_reason = Some(why());
        }
    }

    /// Visits a literal text: any function that receives it may read a path outside of the directory.
    fn literal(&mut self, text: &str) {
        if text.contains("../") || text.contains("/..") || steps_up(text) {
            self.widen(|| format!("the text {:?} leaves the module directory", excerpt(text)));
        }
    }

    /// Visits `source` of a `module` block.
    fn module_source(&mut self, attribute: &Attribute) {
        match &attribute.value {
            Expression::String(text) => self.findings.add_source(text),
            _ => self.widen(|| "a module source is computed".to_owned()),
        }
    }

    /// Visits a template. `${path.module}` and `${path.root}` are harmless at the start before a slash.
    fn elements<'a>(&mut self, elements: impl Iterator<Item = &'a Element>) {
        let (mut elements, mut first) = (elements.peekable(), true);
        while let Some(element) = elements.next() {
            let next = elements.peek();
            let leads = first && matches!(next, Some(Element::Literal(text)) if text.starts_with('/'));
            first = false;
            match element {
                Element::Literal(text) => self.literal(text),
                Element::Interpolation(part)
                    if leads && self.enclosing.is_empty() && is_module_path(&part.expr) =>
                {
                    self.add_path();
                }
                Element::Interpolation(part) => {
                    self.is_path_prefix = leads && matches!(part.expr, Expression::FuncCall(_));
                    self.visit_expr(&part.expr);
                }
                Element::Directive(directive) => self.visit_directive(directive),
            }
        }
    }

    /// Records that the current definition contains the path of a module.
    fn add_path(&mut self) {
        if self.unnamed == 0 && !self.definition.is_empty() {
            self.findings.flow.add_path(&self.definition);
        }
    }

    /// Visits a reference to a name.
    fn visit_reference(&mut self, root: &str, operators: &[Decorated<TraversalOperator>]) {
        let members = operators.iter().filter_map(|operator| match operator.value() {
            TraversalOperator::GetAttr(name) => Some(name.as_str()),
            _ => None,
        });
        let members: Vec<_> = members.take(3).collect();
        let first = |count: usize| {
            let parts = std::iter::once(root).chain(members.iter().copied().take(count));
            parts.collect::<Vec<_>>().join(".")
        };
        let prefix = self.prefix.clone().unwrap_or_default();
        let name = match (self.scope.named(root), root) {
            (Some((_, Some(PathOrigin::Literal))), _) | (None, "path" | "count" | "terraform") => return,
            (Some(_), _) => self.definition.clone(),
            (None, "each") => match members.first().map(|member| self.scope.origin_of_each(member)) {
                Some(Some(PathOrigin::Literal)) => return,
                _ => format!("{prefix}.for_each"),
            },
            (None, "self") => prefix,
            (None, "local" | "var") => first(1),
            (None, "module") => root.to_owned(),
            (None, "data" | "ephemeral") => first(3),
            (None, _) => first(2),
        };
        for call in &mut self.enclosing {
            call.uses.insert(name.clone());
        }
        if !self.definition.is_empty() {
            self.findings.flow.add_use(&self.definition, &name);
        }
    }

    /// Visits the call of a splitting function.
    fn visit_split(&mut self, call: &FuncCall) {
        self.enclosing.push(SplitCall {
            function: call.name.name.as_str().to_owned(),
            definition: self.definition.clone(),
            ..SplitCall::default()
        });
        visit_func_call(self, call);
        if let Some(call) = self.enclosing.pop() {
            self.findings.flow.add_split_call(call);
        }
    }

    /// Visits the call of a file function with a known path.
    fn visit_read(&mut self, call: &FuncCall, path: PathReference) {
        let name = call.name.name.as_str();
        let computed = call.args.iter().next().filter(|_| path.computed.is_some());
        path::parts(computed).for_each(|part| self.visit_expr(part));
        self.findings.references.push(PathReference {
            is_template: name == "templatefile",
            ..path
        });
        // The pattern of a `fileset`, or the values of a template.
        let others = || call.args.iter().skip(1);
        self.findings.has_computed_pattern |=
            name == "fileset" && others().any(|pattern| !matches!(pattern, Expression::String(_)));
        others().for_each(|argument| self.visit_expr(argument));
    }
}

/// Returns the prefix of the names in a top-level block; empty if they cannot be referenced.
fn prefix(block: &Block) -> String {
    let labels = block.labels.iter().map(BlockLabel::as_str).collect::<Vec<_>>();
    match block.ident.as_str() {
        "locals" => "local".to_owned(),
        // The arguments of a call are the variables of the called module.
        "module" => "var".to_owned(),
        "output" => "module".to_owned(),
        "resource" => labels.join("."),
        kind @ ("data" | "ephemeral") => format!("{kind}.{}", labels.join(".")),
        _ => String::new(),
    }
}

/// Returns the field that a nested block defines.
fn field(block: &Block) -> &str {
    let label = block.labels.first().filter(|_| block.ident.as_str() == "dynamic");
    label.map_or(block.ident.as_str(), BlockLabel::as_str)
}

/// Whether a text contains `..` as a part of a path or a word of a command.
fn steps_up(text: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    text.match_indices("..").any(|(at, dots)| {
        let before = text[..at].chars().next_back();
        let after = text[at + dots.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Whether a path is below a directory, so that an appended text cannot leave that directory.
fn is_inside(path: &PathReference) -> bool {
    let is_below = |path: std::path::PathBuf| !path.as_os_str().is_empty();
    path.computed.is_some() || artifact_path::resolve_in(Path::new(""), &path.path).is_some_and(is_below)
}

impl Visit for Scanner {
    fn visit_block(&mut self, block: &Block) {
        let for_each = block
            .body
            .get_attribute("for_each")
            .map(|attribute| &attribute.value);
        let each = for_each.filter(|_| block.ident.as_str() != "dynamic");
        let outer = each.map(|each| self.scope.enter_each(each));
        self.block(block);
        if let Some(outer) = outer {
            self.scope.leave_each(outer);
        }
    }

    fn visit_for_expr(&mut self, expression: &ForExpr) {
        self.visit_expr(&expression.intro.collection_expr);
        self.scope.enter_for(&expression.intro);
        expression.key_expr.iter().for_each(|key| self.visit_expr(key));
        self.visit_expr(&expression.value_expr);
        expression
            .cond
            .iter()
            .for_each(|cond| self.visit_expr(&cond.expr));
        self.scope.leave_for(&expression.intro);
    }

    fn visit_expr(&mut self, expression: &Expression) {
        match expression {
            Expression::String(text) => self.literal(text),
            Expression::Variable(name) => self.visit_reference(name.as_str(), &[]),
            _ => visit_expr(self, expression),
        }
    }

    fn visit_string_template(&mut self, template: &StringTemplate) {
        self.elements(template.iter());
    }

    fn visit_heredoc_template(&mut self, heredoc: &HeredocTemplate) {
        self.elements(heredoc.template.iter());
    }

    /// Any other use of `path.module` has an unknown result.
    fn visit_traversal(&mut self, traversal: &Traversal) {
        if is_path(traversal) {
            self.widen(|| "path.* is used in a way that cannot be resolved statically".to_owned());
        }
        if let Expression::Variable(root) = &traversal.expr {
            self.visit_reference(root.as_str(), &traversal.operators);
        } else {
            self.visit_expr(&traversal.expr);
        }
        for operator in &traversal.operators {
            self.visit_traversal_operator(operator);
        }
    }

    fn visit_func_call(&mut self, call: &FuncCall) {
        let leads = std::mem::take(&mut self.is_path_prefix);
        let name = call.name.name.as_str();
        let is_builtin = path::is_builtin(call);
        if is_builtin && name == "dirname" {
            return self.widen(|| "dirname() may leave the module directory".to_owned());
        }
        if is_builtin && SPLITTERS.contains(&name) {
            return self.visit_split(call);
        }
        if !is_builtin || !FILE_FUNCTIONS.contains(&name) {
            return visit_func_call(self, call);
        }
        if name == "templatestring" {
            return self.widen(|| "templatestring() may read any file".to_owned());
        }
        let returns_path = matches!(name, "abspath" | "pathexpand");
        if returns_path && !self.enclosing.is_empty() {
            return self.widen(|| format!("the result of {name}() is split"));
        }
        match call.args.iter().next().and_then(|path| self.scope.path_of(path)) {
            Some(path) if returns_path && !leads && !is_inside(&path) => {
                self.widen(|| format!("the result of {name}() may be concatenated with any text"));
            }
            Some(path) => {
                if returns_path {
                    self.add_path();
                }
                self.visit_read(call, path);
            }
            None => self.widen(|| format!("{name}() is called with a path that is not static")),
        }
    }
}
