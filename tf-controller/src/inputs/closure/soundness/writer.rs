//! Writes a repository to files.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{Base, FAR, FOLDERS, Form, MODULES, Module, PathForm, Repository, Statement, VARIABLE_FILES};

/// Returns whether a module is below another's directory.
pub(super) fn is_below(module: &str, target: &str) -> bool {
    target
        .strip_prefix(module)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Returns the file that a command writes, in the stack's directory.
pub(super) fn output_file(module: usize, number: usize) -> String {
    format!("made-{module}-{number}")
}

/// Returns the path of `target` relative to `base`, through the root.
fn relative(base: &str, target: &str) -> String {
    format!("{}{target}", "../".repeat(base.split('/').count()))
}

fn source(root: &Path, module: &str, target: usize) -> String {
    let name = MODULES[target];
    match name.strip_prefix(module) {
        _ if target == FAR => format!("file://{}/{name}", root.display()),
        Some(rest) if is_below(module, name) => format!(".{rest}"),
        _ => relative(module, name),
    }
}

fn path_from(base: Base, module: &str, target: &str) -> String {
    match base {
        Base::Here => relative(MODULES[0], target),
        Base::Module => format!("${{path.module}}/{}", relative(module, target)),
        Base::Root => format!("${{path.root}}/{}", relative(MODULES[0], target)),
    }
}

fn expression(statement: &Statement, module: &str) -> String {
    let at = |base: &Base, target: &str| path_from(*base, module, target);
    match statement {
        Statement::File(base, target) => format!("try(file(\"{}\"), \"missing\")", at(base, target)),
        Statement::Exists(base, target) => format!("fileexists(\"{}\")", at(base, target)),
        Statement::Base64(base, target) => {
            format!("try(core::filebase64(\"{}\"), \"missing\")", at(base, target))
        }
        Statement::Template(base, target) => {
            // The same function, by either of its names.
            let namespace = if *base == Base::Root { "core::" } else { "" };
            format!(
                "try({namespace}templatefile(\"{}\", {{ x = \"X\" }}), \"missing\")",
                at(base, target)
            )
        }
        Statement::Set(base, folder) => format!("join(\",\", fileset(\"{}\", \"*.txt\"))", at(base, folder)),
        Statement::Each(folder) => {
            let folder = relative(MODULES[0], folder);
            format!("join(\",\", [for f in fileset(\"{folder}\", \"*.txt\") : file(\"{folder}/${{f}}\")])")
        }
        Statement::Own(number) => format!("\"{number}\""),
    }
}

/// Configuration of one file, in either syntax.
struct File {
    form: Form,
    native: String,
    json: Value,
}

impl File {
    fn new(form: Form) -> Self {
        Self {
            form,
            native: String::new(),
            json: json!({}),
        }
    }

    fn output(&mut self, name: &str, value: &str) {
        writeln!(self.native, "output \"{name}\" {{\n  value = {value}\n}}").unwrap();
        self.json["output"][name]["value"] = format!("${{{value}}}").into();
    }

    fn call(&mut self, name: usize, source: &str) {
        writeln!(self.native, "module \"m{name}\" {{\n  source = \"{source}\"\n}}").unwrap();
        self.json["module"][format!("m{name}")]["source"] = source.into();
    }

    /// Adds a command with the expression of its variable `FILE`.
    fn command(&mut self, name: &str, command: &str, file: &str) {
        let environment = format!("environment = {{ FILE = {file} }}");
        writeln!(
            self.native,
            "resource \"terraform_data\" \"{name}\" {{\n  provisioner \"local-exec\" {{\n    command = \"{command}\"\n    {environment}\n  }}\n}}"
        )
        .unwrap();
        let environment = json!({ "FILE": format!("${{{file}}}") });
        let provisioner = json!([{ "local-exec": { "command": command, "environment": environment } }]);
        self.json["resource"]["terraform_data"][name]["provisioner"] = provisioner;
    }

    fn local(&mut self, name: &str, value: &str) {
        writeln!(self.native, "locals {{\n  {name} = {value}\n}}").unwrap();
        self.json["locals"][name] = format!("${{{value}}}").into();
    }

    fn variables(&mut self) {
        self.native += "variable \"v\" {\n  default = 0\n}\nvariable \"p\" {\n  default = \"*.none\"\n}\n";
        self.json["variable"]["v"]["default"] = 0.into();
        self.json["variable"]["p"]["default"] = "*.none".into();
    }

    /// Returns JSON with two members `module`: the syntax allows them, but a map cannot contain them.
    fn json(mut self) -> String {
        let calls = self.json.get_mut("module").and_then(Value::as_object_mut);
        let Some((calls, first)) = calls.filter(|calls| calls.len() > 1).and_then(|calls| {
            let first = calls.keys().next().cloned()?;
            Some((calls, first))
        }) else {
            return self.json.to_string();
        };
        let call = calls.remove(&first);
        let (rest, one) = (
            self.json.to_string(),
            json!({ "module": { first: call } }).to_string(),
        );
        format!("{},{}", &one[..one.len() - 1], &rest[1..])
    }

    fn write(self, folder: &Path, name: &str) {
        match self.form {
            Form::Native => fs::write(folder.join(format!("{name}.tf")), self.native),
            Form::Json => fs::write(folder.join(format!("{name}.tf.json")), self.json()),
        }
        .unwrap();
    }
}

impl Repository {
    /// Replaces the directory's content.
    pub(super) fn write(&self, root: &Path) {
        for entry in fs::read_dir(root).unwrap() {
            fs::remove_dir_all(entry.unwrap().path()).unwrap();
        }
        for folder in FOLDERS.iter().chain(&MODULES) {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for (path, text) in &self.files {
            fs::write(root.join(path), text).unwrap();
        }
        for (number, module) in self.modules.iter().enumerate() {
            write_module(root, number, module);
        }
        for (file, value) in &self.variables {
            let name = VARIABLE_FILES[*file];
            let text = if name.contains(".json") {
                format!("{{\"v\": {value}}}")
            } else {
                format!("v = {value}\n")
            };
            fs::write(root.join(MODULES[0]).join(name), text).unwrap();
        }
        if self.pattern {
            let file = root.join(MODULES[0]).join("p.auto.tfvars");
            fs::write(file, "p = \"../../t/*.txt\"\n").unwrap();
        }
    }
}

/// Returns the command that prints a file, and the expression of its variable `FILE`.
fn print_command(
    main: &mut File,
    way: PathForm,
    number: usize,
    index: usize,
    path: &str,
) -> (String, String) {
    let name = MODULES[number];
    let print = |what: &str| {
        format!(
            "(cat {what} 2>/dev/null || printf missing) > {}",
            output_file(number, index)
        )
    };
    // The module's path if the printed files are beside it.
    let (start, beside) = match name {
        "modules/m0" => ("path.module", name),
        _ => ("path.cwd", MODULES[0]),
    };
    let rest = path.strip_prefix(beside).unwrap_or(path);
    match way {
        PathForm::Literal(base) => (print(&self::path_from(base, name, path)), "\"\"".to_owned()),
        PathForm::Concatenated => (print("$FILE"), format!("\"${{{start}}}{rest}\"")),
        PathForm::Joined => (
            print("$FILE"),
            format!("join(\"\", [\"${{{start}}}\", \"{rest}\"])"),
        ),
        PathForm::Replaced => {
            let local = format!("here{index}");
            // In the far module, `path.module` is the copy that `init` makes.
            let (start, directory) = match number {
                FAR => ("path.cwd", MODULES[0]),
                _ => ("abspath(path.module)", name),
            };
            main.local(&local, &format!("\"${{{start}}}/x\""));
            let path = format!("replace(local.{local}, \"/{directory}/x\", \"/{path}\")");
            (print("$FILE"), path)
        }
        PathForm::Parent => {
            let below = path.strip_prefix("stacks/").unwrap_or(path);
            let to = output_file(number, index);
            let text = format!("cd .. && (cat {below} 2>/dev/null || printf missing) > s/{to}");
            (text, "\"\"".to_owned())
        }
    }
}

fn write_module(root: &Path, number: usize, module: &Module) {
    let name = MODULES[number];
    let mut main = File::new(module.form);
    for (index, statement) in module.statements.iter().enumerate() {
        main.output(&format!("o{index}"), &expression(statement, name));
    }
    for call in &module.calls {
        main.call(*call, &source(root, name, *call));
        main.output(&format!("m{call}"), &format!("module.m{call}"));
    }
    for (index, (way, path)) in module.commands.iter().enumerate() {
        let (command, file) = print_command(&mut main, *way, number, index, path);
        main.command(&format!("c{index}"), &command, &file);
    }
    if number == 0 {
        main.variables();
        main.output("v", "var.v");
        main.output("p", "join(\",\", fileset(\"conf\", var.p))");
    }
    main.write(&root.join(name), "main");
    if let Some(overridden) = &module.overridden {
        let mut file = File::new(overridden.form);
        file.output("o0", &expression(&overridden.statement, name));
        if let (Some(first), Some(target)) = (module.calls.first(), overridden.call) {
            file.call(*first, &source(root, name, target));
        }
        file.write(&root.join(name), "x_override");
    }
}
