//! A repository as files.

use super::{Base, FAR, FOLDERS, Form, MODULES, Module, Repository, Statement, VARIABLE_FILES};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Whether a module lies in another's directory.
pub(super) fn is_below(module: &str, target: &str) -> bool {
    target
        .strip_prefix(module)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// The file that a command prints to, in the stack's directory.
pub(super) fn made(module: usize, number: usize) -> String {
    format!("made-{module}-{number}")
}

/// `target` as seen from `base`: up to the top and down again.
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

fn place(base: Base, module: &str, target: &str) -> String {
    match base {
        Base::Here => relative(MODULES[0], target),
        Base::Module => format!("${{path.module}}/{}", relative(module, target)),
        Base::Root => format!("${{path.root}}/{}", relative(MODULES[0], target)),
    }
}

fn expression(statement: &Statement, module: &str) -> String {
    let at = |base: &Base, target: &str| place(*base, module, target);
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

    fn command(&mut self, name: &str, command: &str) {
        writeln!(
            self.native,
            "resource \"terraform_data\" \"{name}\" {{\n  provisioner \"local-exec\" {{\n    command = \"{command}\"\n  }}\n}}"
        )
        .unwrap();
        let provisioner = json!([{ "local-exec": { "command": command } }]);
        self.json["resource"]["terraform_data"][name]["provisioner"] = provisioner;
    }

    fn variable(&mut self) {
        self.native += "variable \"v\" {\n  default = 0\n}\n";
        self.json["variable"]["v"]["default"] = 0.into();
    }

    fn write(self, folder: &Path, name: &str) {
        match self.form {
            Form::Native => fs::write(folder.join(format!("{name}.tf")), self.native),
            Form::Json => fs::write(folder.join(format!("{name}.tf.json")), self.json.to_string()),
        }
        .unwrap();
    }
}

impl Repository {
    /// Writes it anew: what lay there goes.
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
    for (index, (base, path)) in module.commands.iter().enumerate() {
        let printed = place(*base, name, path);
        let to = made(number, index);
        main.command(
            &format!("c{index}"),
            &format!("(cat {printed} 2>/dev/null || printf missing) > {to}"),
        );
    }
    if number == 0 {
        main.variable();
        main.output("v", "var.v");
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
