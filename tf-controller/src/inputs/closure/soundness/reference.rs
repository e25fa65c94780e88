//! The reference evaluator: the result of a plan of a repository.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{MODULES, Module, Repository, Statement};

/// The result of a plan.
#[derive(Debug, PartialEq)]
pub(super) struct PlanResult {
    pub(super) outputs: Value,
    /// The output of commands by the file that they write.
    pub(super) commands: BTreeMap<String, String>,
}

impl Module {
    /// Returns the outputs and the called modules by name; an override file has precedence.
    fn effective(&self) -> (Vec<&Statement>, Vec<(usize, usize)>) {
        let mut statements: Vec<_> = self.statements.iter().collect();
        let mut calls: Vec<_> = self.calls.iter().map(|call| (*call, *call)).collect();
        if let Some(overridden) = &self.overridden {
            statements[0] = &overridden.statement;
            if let (Some(first), Some(target)) = (calls.first_mut(), overridden.call) {
                first.1 = target;
            }
        }
        (statements, calls)
    }
}

impl Repository {
    pub(super) fn plan_result(&self) -> PlanResult {
        let mut outputs = self.outputs(0);
        // The last automatically loaded file has precedence.
        let value = self
            .variables
            .range(..4)
            .next_back()
            .map_or(0, |(_, value)| *value);
        outputs.insert("v".to_owned(), value.into());
        let found = self.pattern.then(|| self.texts("stacks/t"));
        let names = found.into_iter().flatten().map(|(path, _)| path);
        let names: Vec<_> = names.map(|path| path.replace("stacks/", "../../")).collect();
        outputs.insert("p".to_owned(), names.join(",").into());
        let mut commands = BTreeMap::new();
        self.commands(0, &mut commands);
        PlanResult {
            outputs: outputs.into(),
            commands,
        }
    }

    fn outputs(&self, module: usize) -> Map<String, Value> {
        let (statements, calls) = self.modules[module].effective();
        let mut outputs = Map::new();
        for (number, statement) in statements.into_iter().enumerate() {
            outputs.insert(format!("o{number}"), self.value(statement));
        }
        for (name, target) in calls {
            outputs.insert(format!("m{name}"), self.outputs(target).into());
        }
        outputs
    }

    fn commands(&self, module: usize, commands: &mut BTreeMap<String, String>) {
        for (number, (_, path)) in self.modules[module].commands.iter().enumerate() {
            let printed = self.files.get(path).map_or("missing", String::as_str);
            commands.insert(super::writer::output_file(module, number), printed.to_owned());
        }
        for (_, target) in self.modules[module].effective().1 {
            self.commands(target, commands);
        }
    }

    fn value(&self, statement: &Statement) -> Value {
        let content = |path: &String| self.files.get(path).cloned();
        let missing = || "missing".to_owned();
        match statement {
            Statement::File(_, path) => content(path).unwrap_or_else(missing).into(),
            Statement::Exists(_, path) => self.files.contains_key(path).into(),
            Statement::Base64(_, path) => content(path)
                .map_or_else(missing, |text| base64(text.as_bytes()))
                .into(),
            Statement::Template(_, path) => content(path)
                .and_then(|text| self.rendered(&text))
                .unwrap_or_else(missing)
                .into(),
            Statement::Set(_, folder) => {
                let names: Vec<_> = self
                    .texts(folder)
                    .map(|(path, _)| path.rsplit('/').next().unwrap())
                    .collect();
                names.join(",").into()
            }
            Statement::Each(folder) => self
                .texts(folder)
                .map(|(_, text)| text.as_str())
                .collect::<Vec<_>>()
                .join(",")
                .into(),
            Statement::Own(number) => number.to_string().into(),
        }
    }

    fn texts(&self, folder: &str) -> impl Iterator<Item = (&String, &String)> {
        let inside = move |path: &str| {
            path.rsplit_once('/')
                .is_some_and(|(parent, name)| parent == folder && name.contains(".txt"))
        };
        self.files.iter().filter(move |(path, _)| inside(path))
    }

    fn rendered(&self, template: &str) -> Option<String> {
        let text = template.replace("${x}", "X");
        let Some((front, call)) = text.split_once("${file(\"../../") else {
            return Some(text);
        };
        Some(format!("{front}{}", self.files.get(call.split_once('"')?.0)?))
    }
}

fn base64(bytes: &[u8]) -> String {
    let text = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap();
    text.as_str().unwrap().to_owned()
}

#[test]
fn an_override_file_has_the_last_word() {
    let mut module = Module {
        form: super::Form::Native,
        statements: vec![Statement::Own(1), Statement::Own(2)],
        calls: vec![2, 3],
        commands: Vec::new(),
        overridden: None,
    };
    assert_eq!(module.effective().1, [(2, 2), (3, 3)]);
    module.overridden = Some(super::Override {
        form: super::Form::Json,
        statement: Statement::Own(3),
        call: Some(MODULES.len() - 2),
    });
    assert_eq!(module.effective().0, [&Statement::Own(3), &Statement::Own(2)]);
    assert_eq!(module.effective().1, [(2, 4), (3, 3)]);
}
