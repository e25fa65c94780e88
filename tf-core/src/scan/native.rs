//! The native syntax.

use super::{
    CUTTERS, Findings, Named, READERS, excerpt,
    flow::Cut,
    path::{self, Origin, Scope, is_module_path, is_path},
};
use crate::place;
use hcl_edit::{
    Decorated,
    expr::{Expression, ForExpr, FuncCall, Traversal, TraversalOperator},
    structure::{Attribute, Block, BlockLabel, Body, Structure},
    template::{Element, HeredocTemplate, StringTemplate},
    visit::{Visit, visit_attr, visit_block, visit_expr, visit_func_call},
};
use std::path::Path;

/// Reads a file in the native syntax.
pub(super) fn scan(text: &str) -> Findings {
    let Ok(body) = text.parse::<Body>() else {
        return Findings::wide("does not parse");
    };
    let mut reading = Reading::default();
    reading.visit_body(&body);
    reading.findings
}

#[derive(Default)]
struct Reading {
    findings: Findings,
    /// The calls of [`CUTTERS`] that stand around.
    open: Vec<Cut>,
    /// What stands for elements here.
    scope: Scope,
    /// What the names of the block at the top begin with, inside of one.
    prefix: Option<String>,
    /// The name by which what is read here can be referred to; empty: by none.
    definition: String,
    /// Provisioners and connections that stand around: nothing refers to what they hold.
    unnamed: usize,
    /// The call that comes next stands first in a text, with a slash behind it.
    leads: bool,
}

impl Reading {
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
        if self.findings.wide.is_none() {
            self.findings.wide = Some(why());
        }
    }

    /// A literal part of any text: a step out of the directory may be read by whoever gets the text.
    fn literal(&mut self, text: &str) {
        if text.contains("../") || text.contains("/..") || steps_up(text) {
            self.widen(|| format!("the text {:?} leads out of the module directory", excerpt(text)));
        }
    }

    /// `source` of a `module` block.
    fn module_source(&mut self, attribute: &Attribute) {
        match &attribute.value {
            Expression::String(text) => self.findings.source(text),
            _ => self.widen(|| "a module source is computed".to_owned()),
        }
    }

    /// The elements of a template: `${path.module}` and `${path.root}` are plain when they stand first and a slash follows.
    fn elements<'a>(&mut self, elements: impl Iterator<Item = &'a Element>) {
        let (mut elements, mut first) = (elements.peekable(), true);
        while let Some(element) = elements.next() {
            let next = elements.peek();
            let leads = first && matches!(next, Some(Element::Literal(text)) if text.starts_with('/'));
            first = false;
            match element {
                Element::Literal(text) => self.literal(text),
                Element::Interpolation(part)
                    if leads && self.open.is_empty() && is_module_path(&part.expr) =>
                {
                    self.holds_path();
                }
                Element::Interpolation(part) => {
                    self.leads = leads && matches!(part.expr, Expression::FuncCall(_));
                    self.visit_expr(&part.expr);
                }
                Element::Directive(directive) => self.visit_directive(directive),
            }
        }
    }

    /// What is read here holds a text with the path of a module.
    fn holds_path(&mut self) {
        if self.unnamed == 0 && !self.definition.is_empty() {
            self.findings.flow.holds_path(&self.definition);
        }
    }

    /// A name is referred to.
    fn refers(&mut self, root: &str, operators: &[Decorated<TraversalOperator>]) {
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
            (Some((_, Some(Origin::Written))), _) | (None, "path" | "count" | "terraform") => return,
            (Some(_), _) => self.definition.clone(),
            (None, "each") => match members.first().map(|member| self.scope.origin_of_each(member)) {
                Some(Some(Origin::Written)) => return,
                _ => format!("{prefix}.for_each"),
            },
            (None, "self") => prefix,
            (None, "local" | "var") => first(1),
            (None, "module") => root.to_owned(),
            (None, "data" | "ephemeral") => first(3),
            (None, _) => first(2),
        };
        for cut in &mut self.open {
            cut.uses.insert(name.clone());
        }
        if !self.definition.is_empty() {
            self.findings.flow.refers(&self.definition, &name);
        }
    }

    /// A call that takes texts apart.
    fn cut(&mut self, call: &FuncCall) {
        self.open.push(Cut {
            function: call.name.name.as_str().to_owned(),
            definition: self.definition.clone(),
            ..Cut::default()
        });
        visit_func_call(self, call);
        if let Some(cut) = self.open.pop() {
            self.findings.flow.cuts(cut);
        }
    }

    /// A call of a function that reads a path that can be read off.
    fn read(&mut self, call: &FuncCall, path: Named) {
        let name = call.name.name.as_str();
        let computed = call.args.iter().next().filter(|_| path.computed.is_some());
        path::parts(computed).for_each(|part| self.visit_expr(part));
        self.findings.named.push(Named {
            template: name == "templatefile",
            ..path
        });
        // The pattern of a fileset, the values of a template: looked at like any other text.
        let others = || call.args.iter().skip(1);
        self.findings.given |=
            name == "fileset" && others().any(|pattern| !matches!(pattern, Expression::String(_)));
        others().for_each(|argument| self.visit_expr(argument));
    }
}

/// What the names in a block at the top begin with; empty where nothing refers to them.
fn prefix(block: &Block) -> String {
    let labels = block.labels.iter().map(BlockLabel::as_str).collect::<Vec<_>>();
    match block.ident.as_str() {
        "locals" => "local".to_owned(),
        // The arguments of a call are the variables of what is called.
        "module" => "var".to_owned(),
        "output" => "module".to_owned(),
        "resource" => labels.join("."),
        kind @ ("data" | "ephemeral") => format!("{kind}.{}", labels.join(".")),
        _ => String::new(),
    }
}

/// The field that a block in a resource is a value of.
fn field(block: &Block) -> &str {
    let label = block.labels.first().filter(|_| block.ident.as_str() == "dynamic");
    label.map_or(block.ident.as_str(), BlockLabel::as_str)
}

/// Whether a part of a text is `..`: of a path, or a word of a command.
fn steps_up(text: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    text.match_indices("..").any(|(at, dots)| {
        let before = text[..at].chars().next_back();
        let after = text[at + dots.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Whether a path lies in a directory, so that a text that is put behind it does as well.
fn is_inside(path: &Named) -> bool {
    let lies = |path: std::path::PathBuf| !path.as_os_str().is_empty();
    path.computed.is_some() || place::inside(Path::new(""), &path.path).is_some_and(lies)
}

impl Visit for Reading {
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
            Expression::Variable(name) => self.refers(name.as_str(), &[]),
            _ => visit_expr(self, expression),
        }
    }

    fn visit_string_template(&mut self, template: &StringTemplate) {
        self.elements(template.iter());
    }

    fn visit_heredoc_template(&mut self, heredoc: &HeredocTemplate) {
        self.elements(heredoc.template.iter());
    }

    /// `path.module` in any other place: what becomes of it cannot be told by reading.
    fn visit_traversal(&mut self, traversal: &Traversal) {
        if is_path(traversal) {
            self.widen(|| "path.* is used in a way that cannot be resolved by reading".to_owned());
        }
        if let Expression::Variable(root) = &traversal.expr {
            self.refers(root.as_str(), &traversal.operators);
        } else {
            self.visit_expr(&traversal.expr);
        }
        for operator in &traversal.operators {
            self.visit_traversal_operator(operator);
        }
    }

    fn visit_func_call(&mut self, call: &FuncCall) {
        let leads = std::mem::take(&mut self.leads);
        let name = call.name.name.as_str();
        let own = path::is_builtin(call);
        if own && name == "dirname" {
            return self.widen(|| "dirname() may lead out of the module directory".to_owned());
        }
        if own && CUTTERS.contains(&name) {
            return self.cut(call);
        }
        if !own || !READERS.contains(&name) {
            return visit_func_call(self, call);
        }
        if name == "templatestring" {
            return self.widen(|| "templatestring() may read any file".to_owned());
        }
        let gives_path = matches!(name, "abspath" | "pathexpand");
        if gives_path && !self.open.is_empty() {
            return self.widen(|| format!("what {name}() gives is cut up"));
        }
        match call.args.iter().next().and_then(|path| self.scope.path_of(path)) {
            Some(path) if gives_path && !leads && !is_inside(&path) => {
                self.widen(|| format!("what {name}() gives may be put together with anything"));
            }
            Some(path) => {
                if gives_path {
                    self.holds_path();
                }
                self.read(call, path);
            }
            None => self.widen(|| format!("{name}() is called with a path that cannot be read off")),
        }
    }
}
