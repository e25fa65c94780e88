//! `main.tf.tpl` of the module directory becomes its `main.tf`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use super::error::RunError;
use super::prepare::write_private;
use super::workdir::failed;
use crate::bundle::Bundle;
use crate::template::{self, Delimiters, Functions, TemplateError};

/// The template; upstream's name.
const TEMPLATE_FILE: &str = "main.tf.tpl";
/// What it becomes.
const MAIN_FILE: &str = "main.tf";

/// Renders the template, if the module has one, with the generated variables; `Values` is another name of `values`.
pub(super) fn render_main(module: &Path, bundle: &Bundle) -> Result<(), RunError> {
    let path = module.join(TEMPLATE_FILE);
    if !path.is_file() {
        return Ok(());
    }
    let text = read(&path)?;
    let rendered = template::render(&text, Delimiters::Curly, Functions::Text, &data(bundle))?;
    write_private(&module.join(MAIN_FILE), rendered.as_bytes())
}

/// The text of the template; what is too long is read far enough to be told so.
fn read(path: &Path) -> Result<String, RunError> {
    let limit = u64::try_from(template::TEXT_LIMIT).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes));
    read.map_err(|source| failed("read main.tf.tpl", source))?;
    String::from_utf8(bytes)
        .map_err(|_| RunError::from(TemplateError::Execution("it is no UTF-8 text".to_owned())))
}

fn data(bundle: &Bundle) -> Value {
    let mut data = serde_json::from_str(&bundle.variables).unwrap_or(Value::Null);
    if let Value::Object(members) = &mut data
        && let Some(values) = members.get("values").cloned()
    {
        members.insert("Values".to_owned(), values);
    }
    data
}
