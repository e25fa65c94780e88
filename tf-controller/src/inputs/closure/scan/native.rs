//! The native syntax.

use super::{
    CUTTERS, Findings, Named, READERS, excerpt,
    path::{self, Scope, is_module_path, is_path},
};
use hcl_edit::{
    expr::{Expression, ForExpr, FuncCall, Traversal},
    structure::{Attribute, Block, Body},
    template::{Element, HeredocTemplate, StringTemplate},
    visit::{Visit, visit_attr, visit_block, visit_expr, visit_func_call},
};

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
    /// How many calls of [`CUTTERS`] stand around.
    cuts: usize,
    /// What stands for elements here.
    scope: Scope,
}

impl Reading {
    fn block(&mut self, block: &Block) {
        if block.ident.as_str() != "module" {
            return visit_block(self, block);
        }
        for structure in &block.body {
            match structure.as_attribute() {
                Some(attribute) if attribute.key.as_str() == "source" => self.module_source(attribute),
                Some(attribute) => visit_attr(self, attribute),
                None => self.visit_structure(structure),
            }
        }
    }

    fn widen(&mut self, why: impl FnOnce() -> String) {
        if self.findings.wide.is_none() {
            self.findings.wide = Some(why());
        }
    }

    /// A literal part of any text: a step out of the directory may be read by whoever gets the text.
    fn literal(&mut self, text: &str) {
        if text == ".." || text.contains("../") || text.contains("/..") {
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

    /// The elements of a template: `${path.module}` and `${path.root}` are plain when they stand first.
    fn elements<'a>(&mut self, elements: impl Iterator<Item = &'a Element>) {
        for (index, element) in elements.enumerate() {
            match element {
                Element::Literal(text) => self.literal(text),
                Element::Interpolation(part)
                    if index == 0 && self.cuts == 0 && is_module_path(&part.expr) => {}
                Element::Interpolation(part) => self.visit_expr(&part.expr),
                Element::Directive(directive) => self.visit_directive(directive),
            }
        }
    }
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
        hcl_edit::visit::visit_traversal(self, traversal);
    }

    fn visit_func_call(&mut self, call: &FuncCall) {
        let name = call.name.name.as_str();
        let own = path::is_builtin(call);
        if own && name == "dirname" {
            return self.widen(|| "dirname() may lead out of the module directory".to_owned());
        }
        let cuts = usize::from(own && CUTTERS.contains(&name));
        if !READERS.contains(&name) || !own {
            self.cuts += cuts;
            visit_func_call(self, call);
            self.cuts -= cuts;
            return;
        }
        if name == "templatestring" {
            return self.widen(|| "templatestring() may read any file".to_owned());
        }
        if self.cuts != 0 && matches!(name, "abspath" | "pathexpand") {
            return self.widen(|| format!("what {name}() gives is cut up"));
        }
        match call.args.iter().next().and_then(|path| self.scope.path_of(path)) {
            Some(path) => {
                let computed = call.args.iter().next().filter(|_| path.computed.is_some());
                path::parts(computed).for_each(|part| self.visit_expr(part));
                self.findings.named.push(Named {
                    template: name == "templatefile",
                    ..path
                });
                // The pattern of a fileset, the values of a template: looked at like any other text.
                call.args
                    .iter()
                    .skip(1)
                    .for_each(|argument| self.visit_expr(argument));
            }
            None => self.widen(|| format!("{name}() is called with a path that cannot be read off")),
        }
    }
}
