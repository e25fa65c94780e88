//! Reads one configuration file for the local modules that it calls, and for anything that could read a file
//! elsewhere. It need not understand the language: whatever is not plainly harmless makes the closure wide.

use hcl_edit::{
    expr::{Expression, FuncCall, Traversal, TraversalOperator},
    structure::{Attribute, Block, Body},
    template::{Element, HeredocTemplate, StringTemplate},
    visit::{Visit, visit_attr, visit_block, visit_expr, visit_func_call},
};
use serde_json::Value;

/// Nested deeper than people write; the parser is recursive.
const DEEPEST: usize = 200;
/// Chained conditionals nest as well.
const CONDITIONALS: usize = 2000;
/// The parser's thread: enough for what the two bounds above let pass.
const STACK: usize = 64 << 20;

/// Functions that read the file system by their first argument.
const READERS: [&str; 14] = [
    "abspath",
    "file",
    "filebase64",
    "filebase64sha256",
    "filebase64sha512",
    "fileexists",
    "filemd5",
    "fileset",
    "filesha1",
    "filesha256",
    "filesha512",
    "pathexpand",
    "templatefile",
    "templatestring",
];

/// Functions that make a part of a text of it: of a path, perhaps one that leads further up.
const CUTTERS: [&str; 10] = [
    "dirname",
    "regex",
    "regexall",
    "replace",
    "split",
    "strrev",
    "substr",
    "trim",
    "trimprefix",
    "trimsuffix",
];

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Sources of local modules, as written.
    pub(super) modules: Vec<String>,
    /// Files and directories that functions read, by paths that can be read off.
    pub(super) named: Vec<Named>,
    /// Why more than the module directories may be read.
    pub(super) wide: Option<String>,
}

/// A path that a function reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// Relative to the directory of the module that names it; otherwise to the stack's.
    pub(super) of_module: bool,
    /// The path.
    pub(super) path: String,
    /// What is read is a template.
    pub(super) template: bool,
}

/// Whether a template could read files by itself.
pub(super) fn reads_files(template: &[u8]) -> bool {
    let text = String::from_utf8_lossy(template);
    let computes = text.contains("${") || text.contains("%{");
    computes && (text.contains("provider::") || READERS.iter().any(|name| text.contains(name)))
}

impl Findings {
    /// The source of a module. Only `./` and `../` are local; everything else is fetched by `init`, and what it fetches from
    /// the machine's own files may be a part of the artifact.
    fn source(&mut self, source: &str) {
        let own = source.starts_with('/') || source.contains("file:");
        if source.starts_with("./") || source.starts_with("../") {
            self.modules.push(source.to_owned());
        } else if own && self.wide.is_none() {
            let text = excerpt(source);
            self.wide = Some(format!("the module source {text:?} is a path of the machine"));
        }
    }

    /// Everything counts.
    pub(super) fn wide(why: impl Into<String>) -> Self {
        Self {
            wide: Some(why.into()),
            ..Self::default()
        }
    }
}

/// Scans a file; `json` for the JSON syntax.
pub(super) fn scan(bytes: &[u8], json: bool) -> Findings {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Findings::wide("is no UTF-8 text");
    };
    if json {
        return scan_json(text);
    }
    if is_too_nested(text) {
        return Findings::wide("is nested too deeply to be read for what it names");
    }
    let owned = text.to_owned();
    let parser = std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || scan_native(&owned));
    let scanned = parser.map(std::thread::JoinHandle::join);
    match scanned {
        Ok(Ok(findings)) => findings,
        Ok(Err(_)) | Err(_) => Findings::wide("could not be read for what it names"),
    }
}

/// An upper bound of the nesting, by brackets, signs and question marks, wherever they stand.
fn is_too_nested(text: &str) -> bool {
    let (mut depth, mut deepest, mut signs, mut longest) = (0_usize, 0, 0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        signs = if matches!(byte, b'!' | b'-') { signs + 1 } else { 0 };
        longest = longest.max(signs);
        deepest = deepest.max(depth);
    }
    let questions = text.bytes().filter(|byte| *byte == b'?').count();
    deepest > DEEPEST || longest > DEEPEST || questions > CONDITIONALS
}

/// The JSON syntax is looked at as text: its strings are templates of the same language. Only the modules that it calls are
/// told apart.
fn scan_json(text: &str) -> Findings {
    let Ok(document) = serde_json::from_str::<Value>(text) else {
        return Findings::wide("is no JSON");
    };
    // As it is meant, not as it is spelled: without escapes, and without the space that may stand before a bracket.
    let mut said = String::new();
    strings(&document, &mut said);
    said.retain(|c| !c.is_whitespace());
    let calls = |name: &&&str| said.contains(&format!("{name}("));
    if let Some(name) = READERS.iter().chain(&CUTTERS).find(calls) {
        return Findings::wide(format!("calls {name} in JSON syntax"));
    }
    if said.contains("path.") || said.contains("..") {
        return Findings::wide("names paths in JSON syntax");
    }
    let mut findings = Findings::default();
    if let Some(called) = document.get("module") {
        sources(called, &mut findings);
    }
    findings
}

/// All texts of a document, names of members too.
fn strings(value: &Value, all: &mut String) {
    match value {
        Value::String(text) => {
            all.push_str(text);
            all.push('\0');
        }
        Value::Array(elements) => elements.iter().for_each(|element| strings(element, all)),
        Value::Object(members) => {
            for (name, member) in members {
                all.push_str(name);
                all.push('\0');
                strings(member, all);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The sources of the modules that are called, in whichever of its forms the syntax has them.
fn sources(called: &Value, findings: &mut Findings) {
    match called {
        Value::Array(elements) => elements.iter().for_each(|element| sources(element, findings)),
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(source) if name == "source" => {
                        if source.contains("${") || source.contains("%{") {
                            *findings = Findings::wide("a module source is computed");
                        } else {
                            findings.source(source);
                        }
                    }
                    member => sources(member, findings),
                }
            }
        }
        _ => {}
    }
}

fn scan_native(text: &str) -> Findings {
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
}

impl Reading {
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
        let own = call.name.namespace.is_empty();
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
        match call.args.iter().next().and_then(path_of) {
            Some(path) => {
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

/// The path that an expression is, where it can be read off: a text, or one behind `path.module`, `path.root` or
/// `path.cwd`, or one of these alone.
fn path_of(expression: &Expression) -> Option<Named> {
    let named = |of_module: bool, path: &str| Named {
        of_module,
        path: path.to_owned(),
        template: false,
    };
    match expression {
        Expression::String(text) => (!text.starts_with(['/', '~'])).then(|| named(false, text)),
        Expression::StringTemplate(template) => {
            let mut elements = template.iter();
            let base = match elements.next() {
                Some(Element::Interpolation(part)) => {
                    path_of(&part.expr).filter(|base| base.path.is_empty())?
                }
                _ => return None,
            };
            let mut path = String::new();
            for element in elements {
                match element {
                    Element::Literal(text) => path.push_str(text),
                    _ => return None,
                }
            }
            // Behind the directory's name itself only a slash begins a path in it.
            (path.is_empty() || path.starts_with('/')).then(|| named(base.of_module, &path))
        }
        Expression::Traversal(traversal) if is_path(traversal) => {
            let [operator] = traversal.operators.as_slice() else {
                return None;
            };
            match operator.value() {
                TraversalOperator::GetAttr(name) if name.as_str() == "module" => Some(named(true, "")),
                TraversalOperator::GetAttr(name) if matches!(name.as_str(), "root" | "cwd") => {
                    Some(named(false, ""))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn is_module_path(expression: &Expression) -> bool {
    matches!(expression, Expression::Traversal(traversal) if is_path(traversal))
}

/// `path.module`, `path.root` or `path.cwd`: for a stack, all of them lie in its closure.
fn is_path(traversal: &Traversal) -> bool {
    let Expression::Variable(name) = &traversal.expr else {
        return false;
    };
    let [operator] = traversal.operators.as_slice() else {
        return name.as_str() == "path";
    };
    name.as_str() == "path" && matches!(operator.value(), TraversalOperator::GetAttr(_))
}

/// The beginning of what a file says, as a reason quotes it.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}
