//! Builds the manifest of a source or a stack from flags, and checks what the API or a controller would reject later. Pure.

use serde_json::{Map, Value, json};
use sluice_api::interval::Interval;
use sluice_api::terraform::is_label_value;
use sluice_runtime::client::is_account_name;
use sluice_runtime::semver::Constraint;

use super::{GitArgs, TerraformArgs};
use crate::CliError;

/// The kinds of source that a stack can have.
const SOURCE_KINDS: [&str; 3] = ["GitRepository", "OCIRepository", "Bucket"];

/// Builds a GitRepository. Without a namespace the manifest has none.
///
/// # Errors
/// A flag has no valid value, or no reference is named.
pub(super) fn git_repository(args: &GitArgs, namespace: Option<&str>) -> Result<Value, CliError> {
    check_name("NAME", &args.name)?;
    check_url(&args.url)?;
    check_interval(&args.interval)?;
    check_provider(args)?;
    if let Some(range) = &args.tag_semver {
        let parsed: Result<Constraint, _> = range.parse();
        parsed.map_err(|error| usage(format!("--tag-semver {range:?}: {error}")))?;
    }
    let mut reference = Fields::default();
    reference.text("branch", args.branch.as_deref());
    reference.text("commit", args.commit.as_deref());
    reference.text("name", args.ref_name.as_deref());
    reference.text("semver", args.tag_semver.as_deref());
    reference.text("tag", args.tag.as_deref());
    if reference.0.is_empty() {
        return Err(usage(
            "a Git ref is required: --branch, --tag, --commit, --ref-name or --tag-semver".to_owned(),
        ));
    }
    let mut spec = Fields::default();
    let ignored = args.ignore_paths.join("\n");
    spec.text("ignore", Some(ignored.as_str()).filter(|lines| !lines.is_empty()));
    spec.text("interval", Some(&args.interval));
    spec.text("provider", args.provider.as_deref());
    spec.reference("proxySecretRef", args.proxy_secret_ref.as_deref())?;
    spec.flag("recurseSubmodules", args.recurse_submodules);
    spec.set("ref", Value::Object(reference.0));
    spec.reference("secretRef", args.secret_ref.as_deref())?;
    spec.text("serviceAccountName", args.service_account.as_deref());
    spec.list("sparseCheckout", &args.sparse_checkout_paths);
    spec.text("url", Some(&args.url));
    Ok(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "GitRepository",
        "metadata": metadata(&args.name, namespace, &args.creation.labels)?,
        "spec": spec.0,
    }))
}

/// Builds a Terraform object. Without a namespace the manifest has none.
///
/// # Errors
/// A flag has no valid value.
pub(super) fn terraform(args: &TerraformArgs, namespace: Option<&str>) -> Result<Value, CliError> {
    check_name("NAME", &args.name)?;
    check_interval(&args.interval)?;
    check_path(&args.path)?;
    let mut spec = Fields::default();
    spec.text("approvePlan", Some(&args.approve_plan));
    let dependencies: Result<Vec<_>, _> = args.depends_on.iter().map(|name| dependency(name)).collect();
    spec.values("dependsOn", dependencies?);
    spec.flag("destroyResourcesOnDeletion", args.destroy_resources_on_deletion);
    spec.text("interval", Some(&args.interval));
    spec.text("path", Some(&args.path));
    spec.text("serviceAccountName", args.service_account.as_deref());
    spec.set("sourceRef", source_reference(&args.source)?);
    spec.list("tfVarsFiles", &args.var_files);
    let variables: Result<Vec<_>, _> = args.vars.iter().map(|text| variable(text)).collect();
    spec.values("vars", variables?);
    spec.text("workspace", args.workspace.as_deref());
    spec.reference("writeOutputsToSecret", args.outputs_secret.as_deref())?;
    Ok(json!({
        "apiVersion": "infra.contrib.fluxcd.io/v1alpha2",
        "kind": "Terraform",
        "metadata": metadata(&args.name, namespace, &args.creation.labels)?,
        "spec": spec.0,
    }))
}

/// The fields of an object. Fields without a value are left out, so that a manifest has only what the user said.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    fn text(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.set(name, Value::from(value));
        }
    }

    fn flag(&mut self, name: &str, value: bool) {
        if value {
            self.set(name, Value::from(true));
        }
    }

    fn list(&mut self, name: &str, values: &[String]) {
        self.values(name, values.iter().map(|value| json!(value)).collect());
    }

    fn values(&mut self, name: &str, values: Vec<Value>) {
        if !values.is_empty() {
            self.set(name, Value::Array(values));
        }
    }

    /// Sets a reference to a Secret: `{name: NAME}`.
    fn reference(&mut self, field: &str, name: Option<&str>) -> Result<(), CliError> {
        if let Some(name) = name {
            check_name(field, name)?;
            self.set(field, json!({ "name": name }));
        }
        Ok(())
    }
}

fn usage(text: String) -> CliError {
    CliError::Usage(text)
}

fn metadata(name: &str, namespace: Option<&str>, labels: &[String]) -> Result<Value, CliError> {
    let mut metadata = Fields::default();
    let mut pairs = Fields::default();
    for label in labels {
        let pair = label.split_once('=').filter(|(_, value)| is_label_value(value));
        let Some((key, value)) = pair.filter(|(key, _)| !key.is_empty()) else {
            return Err(usage(format!("--label {label:?}: a label is KEY=VALUE")));
        };
        pairs.text(key, Some(value));
    }
    if !pairs.0.is_empty() {
        metadata.set("labels", Value::Object(pairs.0));
    }
    metadata.text("name", Some(name));
    metadata.text("namespace", namespace);
    Ok(Value::Object(metadata.0))
}

/// Checks the name of an object: a DNS subdomain of RFC 1123.
fn check_name(what: &str, name: &str) -> Result<(), CliError> {
    if is_account_name(name) {
        return Ok(());
    }
    Err(usage(format!(
        "{what} {name:?}: a name has lower-case letters, digits, - and ., and begins and ends with a letter or digit"
    )))
}

/// Checks the address of a repository, as the definition of the kind does.
///
/// # Errors
/// The scheme is another one, or there is no host.
pub(in crate::command::begin) fn check_url(url: &str) -> Result<(), CliError> {
    let host = ["https://", "http://", "ssh://"]
        .iter()
        .find_map(|scheme| url.strip_prefix(scheme));
    match host {
        Some(host) if !host.is_empty() && !host.starts_with('/') => Ok(()),
        Some(_) => Err(usage(format!("--url {url:?}: the host is missing"))),
        None => {
            let hint = url.split_once(':').filter(|(front, _)| front.contains('@'));
            let hint = hint.map(|(host, path)| format!("; write ssh://{host}/{path}"));
            Err(usage(format!(
                "--url {url:?}: the scheme is https, http or ssh{}",
                hint.unwrap_or_default()
            )))
        }
    }
}

fn check_interval(text: &str) -> Result<(), CliError> {
    let interval = Interval::parse(text).map_err(|error| usage(format!("--interval {text:?}: {error}")))?;
    if interval.to_duration().is_zero() {
        return Err(usage(format!("--interval {text:?}: it must be longer than 0s")));
    }
    Ok(())
}

/// As the definition of the kind and `flux create source git` have it.
fn check_provider(args: &GitArgs) -> Result<(), CliError> {
    match args.provider.as_deref() {
        Some("github") if args.secret_ref.is_none() => {
            Err(usage("--provider github needs --secret-ref".to_owned()))
        }
        Some("azure" | "aws") => Ok(()),
        _ if args.service_account.is_some() => Err(usage(
            "--service-account needs --provider azure or aws".to_owned(),
        )),
        _ => Ok(()),
    }
}

fn check_path(path: &str) -> Result<(), CliError> {
    if path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err(usage(format!(
            "--path {path:?}: it is relative to the root of the source and does not leave it"
        )));
    }
    Ok(())
}

/// Parses `KIND/NAME` or `KIND/NAME.NAMESPACE`, as flux does: the part behind the last dot is the namespace.
///
/// # Errors
/// The text has another form, or another kind.
pub(in crate::command::begin) fn source_reference(text: &str) -> Result<Value, CliError> {
    let malformed = || {
        usage(format!(
            "--source {text:?}: a source is KIND/NAME or KIND/NAME.NAMESPACE with the kind {}",
            SOURCE_KINDS.join(", ")
        ))
    };
    let (kind, name) = text.split_once('/').ok_or_else(malformed)?;
    let kind = SOURCE_KINDS
        .iter()
        .find(|known| known.eq_ignore_ascii_case(kind))
        .ok_or_else(malformed)?;
    let (name, namespace) = match name.rsplit_once('.') {
        Some((name, namespace)) => (name, Some(namespace)),
        None => (name, None),
    };
    check_name("--source", name)?;
    let mut reference = Fields::default();
    reference.text("kind", Some(kind));
    reference.text("name", Some(name));
    reference.text("namespace", namespace);
    Ok(Value::Object(reference.0))
}

/// Parses `NAME` or `NAMESPACE/NAME`.
fn dependency(text: &str) -> Result<Value, CliError> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    check_name("--depends-on", name)?;
    let mut dependency = Fields::default();
    dependency.text("name", Some(name));
    dependency.text("namespace", namespace);
    Ok(Value::Object(dependency.0))
}

/// Parses `NAME=VALUE`. The value is a text, as on the command line of the CLI.
fn variable(text: &str) -> Result<Value, CliError> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok(json!({ "name": name, "value": value })),
        _ => Err(usage(format!("--var {text:?}: a variable is NAME=VALUE"))),
    }
}

#[cfg(test)]
mod tests {
    use sluice_api::source::GitRepository;
    use sluice_api::terraform::Terraform;

    use super::super::tests::{git_args, terraform_args};
    use super::*;

    #[test]
    fn a_source_has_only_what_the_user_said() {
        let args = git_args(&["--url=https://git.example/infra.git", "--branch=main"]);
        let manifest = git_repository(&args, Some("team")).unwrap();
        assert_eq!(
            manifest,
            json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
                "metadata": {"name": "infra", "namespace": "team"},
                "spec": {"interval": "1m", "ref": {"branch": "main"}, "url": "https://git.example/infra.git"}})
        );
        serde_json::from_value::<GitRepository>(manifest).unwrap();
    }

    #[test]
    fn all_flags_of_a_source_become_fields() {
        let args = git_args(&[
            "--url=ssh://git@git.example/infra.git",
            "--tag-semver=>=1.0.0 <2.0.0",
            "--secret-ref=key",
            "--proxy-secret-ref=proxy",
            "--provider=generic",
            "--ignore-paths=docs,*.md",
            "--sparse-checkout-paths=stacks,modules",
            "--recurse-submodules",
            "--interval=90s",
            "--label=team=net,env=prod",
        ]);
        let manifest = git_repository(&args, None).unwrap();
        assert_eq!(
            manifest["metadata"],
            json!({"labels": {"env": "prod", "team": "net"}, "name": "infra"})
        );
        assert_eq!(
            manifest["spec"],
            json!({"ignore": "docs\n*.md", "interval": "90s", "provider": "generic", "proxySecretRef": {"name": "proxy"},
                "recurseSubmodules": true, "ref": {"semver": ">=1.0.0 <2.0.0"}, "secretRef": {"name": "key"},
                "sparseCheckout": ["stacks", "modules"], "url": "ssh://git@git.example/infra.git"})
        );
        serde_json::from_value::<GitRepository>(manifest).unwrap();
    }

    #[test]
    fn a_wrong_flag_of_a_source_is_named() {
        let url = "--url=https://git.example/a";
        for (flags, part) in [
            (vec![url], "a Git ref is required"),
            (
                vec!["--url=git@git.example:a/b.git", "--branch=main"],
                "write ssh://git@git.example/a/b.git",
            ),
            (vec!["--url=https:///a", "--branch=main"], "the host is missing"),
            (vec![url, "--branch=main", "--interval=1"], "--interval \"1\""),
            (vec![url, "--branch=main", "--interval=0s"], "longer than 0s"),
            (vec![url, "--tag-semver=latest"], "--tag-semver \"latest\""),
            (
                vec![url, "--branch=main", "--provider=github"],
                "needs --secret-ref",
            ),
            (
                vec![url, "--branch=main", "--service-account=a"],
                "needs --provider",
            ),
            (vec![url, "--branch=main", "--secret-ref=A"], "secretRef \"A\""),
            (vec![url, "--branch=main", "--label=team"], "--label \"team\""),
        ] {
            let error = git_repository(&git_args(&flags), None).unwrap_err().to_string();
            assert!(error.contains(part), "{flags:?}: {error}");
        }
    }

    #[test]
    fn all_flags_of_a_stack_become_fields() {
        let args = terraform_args(&[
            "--source=gitrepository/infra.live.team",
            "--path=stacks/app",
            "--depends-on=net,other/db",
            "--var=region=eu=1",
            "--var-file=prod.tfvars",
            "--workspace=prod",
            "--service-account=runner",
            "--outputs-secret=app-outputs",
            "--destroy-resources-on-deletion",
            "--approve-plan=auto",
        ]);
        let manifest = terraform(&args, Some("team")).unwrap();
        assert_eq!(
            manifest["spec"],
            json!({"approvePlan": "auto", "dependsOn": [{"name": "net"}, {"name": "db", "namespace": "other"}],
                "destroyResourcesOnDeletion": true, "interval": "10m", "path": "stacks/app", "serviceAccountName": "runner",
                "sourceRef": {"kind": "GitRepository", "name": "infra.live", "namespace": "team"}, "tfVarsFiles": ["prod.tfvars"],
                "vars": [{"name": "region", "value": "eu=1"}], "workspace": "prod", "writeOutputsToSecret": {"name": "app-outputs"}})
        );
        serde_json::from_value::<Terraform>(manifest).unwrap();
    }

    #[test]
    fn a_wrong_flag_of_a_stack_is_named() {
        let source = "--source=GitRepository/infra";
        for (flags, part) in [
            (vec!["--source=infra"], "--source \"infra\""),
            (vec!["--source=HelmChart/infra"], "OCIRepository"),
            (vec![source, "--path=../secrets"], "--path"),
            (vec![source, "--path=/etc"], "--path"),
            (vec![source, "--var=region"], "--var \"region\""),
            (vec![source, "--depends-on=a/B"], "--depends-on \"B\""),
        ] {
            let error = terraform(&terraform_args(&flags), None).unwrap_err().to_string();
            assert!(error.contains(part), "{flags:?}: {error}");
        }
    }
}
