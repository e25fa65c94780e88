//! `sluice outputs`: the outputs of a stack from its outputs Secret. A value is shown if the Secret says that it is not sensitive, or if the
//! user asks for all of them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};
use sluice_api::terraform::Terraform;
use sluice_api::terraform::outputs_secret::non_sensitive_keys;

use super::Context;
use crate::cluster::ConnectionArgs;
use crate::output::{Console, OutputFormat, Table, lines, printable, to_json, to_yaml};
use crate::{CliError, ExitStatus, stack};

/// What a table shows in place of a value.
const HIDDEN: &str = "(sensitive)";
/// The end of the key that has the type of an output whose value is JSON (docs/guides/outputs.md).
const TYPE_SUFFIX: &str = "__type";

/// Arguments of `sluice outputs`.
#[derive(clap::Args, Debug)]
pub struct OutputsArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// One output: its value alone, for scripts. A sensitive one requires --show-sensitive.
    #[arg(value_name = "KEY")]
    pub key: Option<String>,
    /// Print the sensitive values too.
    #[arg(long)]
    pub show_sensitive: bool,
    /// The format.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: OutputFormat,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// The outputs of a stack.
#[derive(Debug, PartialEq)]
struct Outputs {
    /// The values by their keys; `None`: hidden.
    values: BTreeMap<String, Option<Value>>,
    /// Why values are hidden; `None`: none is.
    note: Option<String>,
}

/// Prints the outputs of a stack.
pub(super) async fn outputs(context: &Context, args: &OutputsArgs) -> Result<ExitStatus, CliError> {
    let stack: Terraform = context.cluster.get(&args.name).await?;
    if let Some(key) = &args.key {
        let outputs = outputs_of(&read(context, &stack).await?, args.show_sensitive);
        let value = outputs
            .values
            .get(key)
            .ok_or_else(|| unknown_output(&stack, key))?;
        let value = value.as_ref().ok_or_else(|| hidden_output(&stack, key))?;
        context.console.data(&text(value))?;
        return Ok(ExitStatus::Success);
    }
    let outputs = if args.show_sensitive {
        outputs_of(&read(context, &stack).await?, true)
    } else {
        without_sensitive(context, &stack).await?
    };
    print(&outputs, args.output, context.console)?;
    Ok(ExitStatus::Success)
}

fn print(outputs: &Outputs, format: OutputFormat, console: Console) -> Result<(), CliError> {
    let values = &outputs.values;
    match format {
        OutputFormat::Json => console.data(&to_json(&document(values))?),
        OutputFormat::Yaml => console.data(&to_yaml(&document(values))?),
        OutputFormat::Name => console.data(&lines(values.keys())),
        OutputFormat::Table | OutputFormat::Wide if values.is_empty() => {
            console.note("There are no outputs.");
            Ok(())
        }
        OutputFormat::Table | OutputFormat::Wide => {
            let mut table = Table::new(&["NAME", "VALUE"]);
            for (name, value) in values {
                let value = value.as_ref().map_or_else(|| HIDDEN.to_owned(), text);
                table.push(vec![name.as_str().into(), value.into()]);
            }
            console.table(&table)?;
            if let Some(note) = &outputs.note {
                console.note(note);
            }
            Ok(())
        }
    }
}

/// Returns the outputs as one object. A hidden value is `{"hidden": true}`: a text could be mistaken for the value.
fn document(values: &BTreeMap<String, Option<Value>>) -> Value {
    let members = values.iter().map(|(key, value)| {
        let value = value.clone().unwrap_or_else(|| json!({ "hidden": true }));
        (key.clone(), value)
    });
    Value::Object(members.collect::<Map<_, _>>())
}

/// Returns the keys of an outputs Secret that `sluice outputs` accepts. They differ from the names of the outputs where
/// `spec.writeOutputsToSecret` gives other keys.
pub(super) fn keys(secret: &Secret) -> Vec<String> {
    values_of(secret).into_keys().collect()
}

async fn read(context: &Context, stack: &Terraform) -> Result<Secret, CliError> {
    let Some(target) = &stack.spec.write_outputs_to_secret else {
        return Err(CliError::Refused {
            object: format!("terraform {}", stack::full_name(stack)),
            cause: "its outputs are in no Secret: spec.writeOutputsToSecret is not set".to_owned(),
            next_command: String::new(),
        });
    };
    context.cluster.get(&target.name).await
}

/// Returns the outputs without sensitive values. Without a Secret that the user may read, they are the names that the status has.
async fn without_sensitive(context: &Context, stack: &Terraform) -> Result<Outputs, CliError> {
    let Some(target) = &stack.spec.write_outputs_to_secret else {
        let note =
            "Values are not shown: they are in no Secret, because spec.writeOutputsToSecret is not set.";
        return Ok(names_of(stack, note.to_owned()));
    };
    let name = printable(&target.name);
    match context.cluster.get::<Secret>(&target.name).await {
        Ok(secret) => Ok(outputs_of(&secret, false)),
        Err(CliError::NotFound { .. }) => {
            let note = format!("Values are not shown: their secret {name} does not exist.");
            Ok(names_of(stack, note))
        }
        // The role sluice-view reads no Secret.
        Err(error) if error.is_forbidden() => {
            let note = format!("Values are not shown: you may not read their secret {name}.");
            Ok(names_of(stack, note))
        }
        Err(error) => Err(error),
    }
}

/// Returns the outputs that the status names, all hidden.
fn names_of(stack: &Terraform, note: String) -> Outputs {
    let status = stack.status.as_ref();
    let names = status.map(|status| status.available_outputs.iter().cloned());
    Outputs {
        values: names.into_iter().flatten().map(|name| (name, None)).collect(),
        note: Some(note),
    }
}

fn unknown_output(stack: &Terraform, key: &str) -> CliError {
    CliError::Refused {
        object: format!("terraform {}", stack::full_name(stack)),
        cause: format!("its outputs Secret has no key {key}"),
        next_command: format!("sluice outputs {}", stack.name_any()),
    }
}

fn hidden_output(stack: &Terraform, key: &str) -> CliError {
    CliError::Refused {
        object: format!("terraform {}", stack::full_name(stack)),
        cause: format!("the value of {key} is hidden: it is sensitive, or the outputs Secret does not say"),
        next_command: format!("sluice outputs {} {key} --show-sensitive", stack.name_any()),
    }
}

/// Returns the outputs in a Secret. Hides the values that are sensitive, or of which the Secret does not say it, unless all are shown.
fn outputs_of(secret: &Secret, show_sensitive: bool) -> Outputs {
    let known = non_sensitive_keys(secret);
    let note = if known.is_some() {
        "Sensitive values are hidden: --show-sensitive prints them."
    } else {
        "Values are hidden, because the outputs Secret does not say which are sensitive: --show-sensitive prints them. \
         After the next apply, or plan without changes, it does."
    };
    let shown = known.unwrap_or_default();
    let values: BTreeMap<_, _> = values_of(secret)
        .into_iter()
        .map(|(key, value)| {
            let value = (show_sensitive || shown.contains(&key)).then_some(value);
            (key, value)
        })
        .collect();
    let is_hiding = values.values().any(Option::is_none);
    Outputs {
        values,
        note: is_hiding.then(|| note.to_owned()),
    }
}

/// Returns the values in a Secret. A key with a type beside it is JSON, any other is text.
fn values_of(secret: &Secret) -> BTreeMap<String, Value> {
    let data = secret.data.clone().unwrap_or_default();
    let is_type = |key: &str| {
        key.strip_suffix(TYPE_SUFFIX)
            .is_some_and(|name| data.contains_key(name))
    };
    let value = |key: &str, bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let is_json = data.contains_key(&format!("{key}{TYPE_SUFFIX}"));
        let parsed = is_json.then(|| serde_json::from_str(&text).ok()).flatten();
        parsed.unwrap_or(Value::String(text))
    };
    let outputs = data.iter().filter(|(key, _)| !is_type(key));
    outputs
        .map(|(key, bytes)| (key.clone(), value(key, &bytes.0)))
        .collect()
}

/// Formats a value: a string as it is, anything else as JSON.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use k8s_openapi::ByteString;
    use sluice_api::terraform::outputs_secret::set_non_sensitive_keys;

    use super::*;
    use crate::fixture;

    fn secret(pairs: &[(&str, &str)]) -> Secret {
        let data = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        Secret {
            data: Some(data.collect()),
            ..Secret::default()
        }
    }

    #[test]
    fn an_output_with_a_type_is_json() {
        let values = values_of(&secret(&[
            ("host", "db.internal"),
            ("ports", "[5432,1.50]"),
            ("ports__type", "[\"list\",\"number\"]"),
            ("odd__type", "x"),
        ]));
        assert_eq!(values.keys().collect::<Vec<_>>(), ["host", "odd__type", "ports"]);
        assert_eq!(values["host"], json!("db.internal"));
        assert_eq!(values["ports"][0], json!(5432));
        assert_eq!(text(&values["host"]), "db.internal");
    }

    #[test]
    fn only_values_that_are_not_sensitive_are_shown() {
        let mut secret = secret(&[
            ("host", "db"),
            ("ports", "[5432]"),
            ("ports__type", "[\"list\",\"number\"]"),
            ("token", "hunter2"),
        ]);
        let values = |secret: &Secret, show: bool| document(&outputs_of(secret, show).values);
        let note = |secret: &Secret, show: bool| outputs_of(secret, show).note.unwrap_or_default();
        let hidden = json!({ "hidden": true });
        assert_eq!(
            values(&secret, false),
            json!({ "host": hidden, "ports": hidden, "token": hidden })
        );
        assert!(note(&secret, false).contains("does not say which are sensitive"));
        let keys = BTreeSet::from(["host".to_owned(), "ports".to_owned()]);
        set_non_sensitive_keys(&mut secret, &keys);
        assert_eq!(
            values(&secret, false),
            json!({ "host": "db", "ports": [5432], "token": hidden })
        );
        assert!(note(&secret, false).starts_with("Sensitive values are hidden"));
        assert_eq!(
            values(&secret, true),
            json!({ "host": "db", "ports": [5432], "token": "hunter2" })
        );
        assert_eq!(note(&secret, true), "");
        secret.data.as_mut().unwrap().remove("token");
        assert_eq!(note(&secret, false), "", "nothing is hidden");
    }

    #[test]
    fn without_a_secret_the_names_are_those_of_the_status() {
        let stack = fixture::stack(&json!({ "status": { "availableOutputs": ["host", "token"] } }));
        let outputs = names_of(&stack, "why".to_owned());
        assert_eq!(
            outputs,
            Outputs {
                values: [("host".to_owned(), None), ("token".to_owned(), None)].into(),
                note: Some("why".to_owned()),
            }
        );
    }
}
