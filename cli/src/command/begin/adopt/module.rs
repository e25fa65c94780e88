//! What the files of one directory say about a module. The language is not evaluated.

use std::collections::BTreeSet;

use hcl_edit::structure::Body;

/// Depth limit, since the parser is recursive.
const DEPTH_LIMIT: usize = 100;
/// Limit of conditionals, which nest if they are chained.
const CONDITIONAL_LIMIT: usize = 1000;
/// Limit of `=` and `:`, since the parser compares each key of an object with all previous keys.
const KEY_LIMIT: usize = 20_000;

/// The facts about a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Module {
    /// The kind of the backend: the label of `backend`, or `cloud`.
    pub(super) backend: Option<String>,
    /// Whether a provider is configured.
    pub(super) has_provider: bool,
    /// The sources of local modules: `./…` and `../…`.
    pub(super) calls: Vec<String>,
    /// Variables without a default.
    pub(super) required_variables: BTreeSet<String>,
    /// Whether the configuration depends on the workspace.
    pub(super) reads_workspace: bool,
    /// The workspace that was selected here, if there is one.
    pub(super) workspace: Option<String>,
    /// Variable files that the CLI does not load by itself.
    pub(super) variable_files: Vec<String>,
    /// Names of files that could not be read, with the reason.
    pub(super) unread: Vec<String>,
}

impl Module {
    /// Adds the facts of a file in the native syntax.
    pub(super) fn add_file(&mut self, name: &str, text: &str) {
        if is_too_large_to_parse(text) {
            self.unread
                .push(format!("{name} is nested too deeply or has too many keys"));
            return;
        }
        match text.parse::<Body>() {
            Ok(body) => self.add_body(&body),
            Err(_) => self.unread.push(format!("{name} does not parse")),
        }
        self.reads_workspace |= text.contains("terraform.workspace");
    }

    fn add_body(&mut self, body: &Body) {
        for settings in body.get_blocks("terraform") {
            for backend in settings.body.get_blocks("backend") {
                let kind = backend.labels.first().map(|label| label.as_str().to_owned());
                self.backend = kind.or_else(|| self.backend.take());
            }
            if settings.body.has_blocks("cloud") {
                self.backend = Some("cloud".to_owned());
            }
        }
        self.has_provider |= body.has_blocks("provider");
        for call in body.get_blocks("module") {
            let source = call.body.get_attribute("source");
            let source = source
                .and_then(|source| source.value.as_str())
                .unwrap_or_default();
            if source.starts_with("./") || source.starts_with("../") {
                self.calls.push(source.to_owned());
            }
        }
        for variable in body.get_blocks("variable") {
            if !variable.body.has_attribute("default")
                && let Some(name) = variable.labels.first()
            {
                self.required_variables.insert(name.as_str().to_owned());
            }
        }
    }
}

/// Returns whether the parser could need too much stack or time. Counts characters even in strings and comments.
fn is_too_large_to_parse(text: &str) -> bool {
    let (mut depth, mut deepest, mut signs, mut longest) = (0_usize, 0, 0_usize, 0);
    let (mut questions, mut keys) = (0_usize, 0_usize);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'?' => questions += 1,
            b'=' | b':' => keys += 1,
            _ => {}
        }
        signs = if matches!(byte, b'!' | b'-') { signs + 1 } else { 0 };
        longest = longest.max(signs);
        deepest = deepest.max(depth);
    }
    // A line of hyphens is a common comment.
    deepest > DEPTH_LIMIT || longest > 2 * DEPTH_LIMIT || questions > CONDITIONAL_LIMIT || keys > KEY_LIMIT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(text: &str) -> Module {
        let mut module = Module::default();
        module.add_file("main.tf", text);
        module
    }

    #[test]
    fn a_backend_has_a_kind() {
        for (text, kind) in [
            ("terraform {\n  backend \"s3\" {}\n}\n", Some("s3")),
            (
                "terraform {\n  cloud {\n    organization = \"o\"\n  }\n}\n",
                Some("cloud"),
            ),
            ("terraform {\n  required_version = \">= 1.5\"\n}\n", None),
        ] {
            assert_eq!(module(text).backend.as_deref(), kind, "{text}");
        }
    }

    #[test]
    fn calls_variables_and_providers_are_found() {
        let found = module(
            "provider \"aws\" {\n  region = var.region\n}\n\
             variable \"region\" {}\nvariable \"size\" {\n  default = 1\n}\n\
             module \"net\" {\n  source = \"../net\"\n}\n\
             module \"vpc\" {\n  source  = \"terraform-aws-modules/vpc/aws\"\n  name = terraform.workspace\n}\n",
        );
        assert_eq!(
            found,
            Module {
                has_provider: true,
                calls: vec!["../net".to_owned()],
                required_variables: BTreeSet::from(["region".to_owned()]),
                reads_workspace: true,
                ..Module::default()
            }
        );
    }

    #[test]
    fn what_cannot_be_parsed_is_named() {
        assert_eq!(module("resource {").unread, ["main.tf does not parse"]);
        let deep = format!("a = {}{}\n", "[".repeat(200), "]".repeat(200));
        assert_eq!(module(&deep).unread.len(), 1);
    }
}
