//! `sluice outputs`: the outputs of a stack from its outputs Secret. Values are hidden until the user asks for them: the Secret does not
//! say which of them the module marks as sensitive.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use serde_json::{Map, Value};
use sluice_api::terraform::Terraform;

use super::Context;
use crate::cluster::ConnectionArgs;
use crate::output::{OutputFormat, Table, lines, to_json, to_yaml};
use crate::{CliError, ExitStatus, stack};

/// What is shown in place of a value.
const HIDDEN: &str = "(sensitive)";
/// The end of the key that has the type of an output whose value is JSON (docs/guides/outputs.md).
const TYPE_SUFFIX: &str = "__type";

/// Arguments of `sluice outputs`.
#[derive(clap::Args, Debug)]
pub struct OutputsArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// One output: its value alone, for scripts. Requires --show-sensitive.
    #[arg(value_name = "KEY", requires = "show_sensitive")]
    pub key: Option<String>,
    /// Print the values. The outputs Secret does not say which ones are sensitive.
    #[arg(long)]
    pub show_sensitive: bool,
    /// The format.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: OutputFormat,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Prints the outputs of a stack.
pub(super) async fn outputs(context: &Context, args: &OutputsArgs) -> Result<ExitStatus, CliError> {
    let stack: Terraform = context.cluster.get(&args.name).await?;
    let names = stack
        .status
        .as_ref()
        .map(|status| status.available_outputs.clone())
        .unwrap_or_default();
    let values = if args.show_sensitive {
        values_of(&read(context, &stack).await?)
    } else {
        names
            .into_iter()
            .map(|name| (name, Value::from(HIDDEN)))
            .collect()
    };
    let console = context.console;
    if let Some(key) = &args.key {
        let value = values.get(key).ok_or_else(|| unknown_output(&stack, key))?;
        console.data(&text(value))?;
        return Ok(ExitStatus::Success);
    }
    let object = || Value::Object(values.clone().into_iter().collect::<Map<_, _>>());
    match args.output {
        OutputFormat::Json => console.data(&to_json(&object())?)?,
        OutputFormat::Yaml => console.data(&to_yaml(&object())?)?,
        OutputFormat::Name => {
            console.data(&lines(values.keys()))?;
        }
        OutputFormat::Table | OutputFormat::Wide if values.is_empty() => {
            console.note("There are no outputs.");
        }
        OutputFormat::Table | OutputFormat::Wide => {
            let mut table = Table::new(&["NAME", "VALUE"]);
            for (name, value) in &values {
                table.push(vec![name.as_str().into(), text(value).into()]);
            }
            console.table(&table)?;
            if !args.show_sensitive {
                console.note("Values are hidden, because the outputs Secret does not say which are sensitive: --show-sensitive prints them.");
            }
        }
    }
    Ok(ExitStatus::Success)
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

fn unknown_output(stack: &Terraform, key: &str) -> CliError {
    CliError::Refused {
        object: format!("terraform {}", stack::full_name(stack)),
        cause: format!("its outputs Secret has no key {key}"),
        next_command: format!("sluice outputs {}", stack.name_any()),
    }
}

/// Returns the outputs in a Secret. A key with a type beside it is JSON, any other is text.
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
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_output_with_a_type_is_json() {
        let pairs = [
            ("host", "db.internal"),
            ("ports", "[5432,1.50]"),
            ("ports__type", "[\"list\",\"number\"]"),
            ("odd__type", "x"),
        ];
        let data = pairs.map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec())));
        let secret = Secret {
            data: Some(data.into()),
            ..Secret::default()
        };
        let values = values_of(&secret);
        assert_eq!(values.keys().collect::<Vec<_>>(), ["host", "odd__type", "ports"]);
        assert_eq!(values["host"], json!("db.internal"));
        assert_eq!(values["ports"][0], json!(5432));
        assert_eq!(text(&values["host"]), "db.internal");
    }
}
