//! `sluice create`: a source or a stack, with the flags of `flux create source git` and `tfctl create`.

mod manifest;

use std::fmt::Debug;
use std::time::Duration;

use clap::ArgAction;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt as _};
pub(super) use manifest::{check_url, source_reference};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;

use crate::change::FIELD_MANAGER;
use crate::cluster::{Cluster, ConnectionArgs, describe};
use crate::command::Context;
use crate::output::{Console, printable, to_yaml};
use crate::wait::{self, Progress, Target, source_result, stack_result};
use crate::{CliError, ExitStatus};

/// Arguments of `sluice create`.
#[derive(clap::Args, Debug)]
pub struct CreateArgs {
    #[command(subcommand)]
    kind: CreatedKind,
}

#[derive(clap::Subcommand, Debug)]
enum CreatedKind {
    /// Create a source, or change it.
    Source(SourceArgs),
    /// Create a stack, and wait until it is ready. Exit code 3: its plan waits for an approval.
    #[command(alias = "stack")]
    Terraform(Box<TerraformArgs>),
}

#[derive(clap::Args, Debug)]
struct SourceArgs {
    #[command(subcommand)]
    kind: CreatedSource,
}

#[derive(clap::Subcommand, Debug)]
enum CreatedSource {
    /// Create a GitRepository, or change its spec, and wait for its artifact.
    Git(Box<GitArgs>),
}

#[derive(clap::Args, Debug)]
struct CreationArgs {
    /// Labels of the object.
    #[arg(long = "label", value_name = "KEY=VALUE", value_delimiter = ',')]
    labels: Vec<String>,
    /// Print the manifest, and create nothing.
    #[arg(long)]
    export: bool,
    /// Wait until the object is ready.
    #[arg(long, default_value = "true", value_parser = sluice_runtime::args::boolean, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    wait: bool,
    /// How long to wait.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = sluice_runtime::args::duration)]
    timeout: Duration,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(clap::Args, Debug)]
struct GitArgs {
    /// Name of the source.
    #[arg(value_name = "NAME")]
    name: String,
    /// Address of the repository: https, http or ssh.
    #[arg(long)]
    url: String,
    /// Branch to follow.
    #[arg(long)]
    branch: Option<String>,
    /// Tag to check out.
    #[arg(long)]
    tag: Option<String>,
    /// Range of versions; the tag with the highest one is checked out.
    #[arg(long, value_name = "RANGE")]
    tag_semver: Option<String>,
    /// Full name of a Git ref, for example refs/pull/420/head.
    #[arg(long, value_name = "REF")]
    ref_name: Option<String>,
    /// Commit to check out.
    #[arg(long)]
    commit: Option<String>,
    /// Secret with the credentials.
    #[arg(long, value_name = "SECRET")]
    secret_ref: Option<String>,
    /// Secret with the address and the credentials of a proxy.
    #[arg(long, value_name = "SECRET")]
    proxy_secret_ref: Option<String>,
    /// Provider of the credentials.
    #[arg(long, value_parser = ["generic", "aws", "azure", "github"])]
    provider: Option<String>,
    /// ServiceAccount that authenticates to the provider.
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// Patterns of files to leave out of the artifact, in the syntax of .gitignore.
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    ignore_paths: Vec<String>,
    /// Directories to check out.
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    sparse_checkout_paths: Vec<String>,
    /// Fetch submodules too.
    #[arg(long)]
    recurse_submodules: bool,
    /// Interval between two polls of the repository.
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    interval: String,
    #[command(flatten)]
    creation: CreationArgs,
}

#[derive(clap::Args, Debug)]
struct TerraformArgs {
    /// Name of the stack.
    #[arg(value_name = "NAME")]
    name: String,
    /// Source with the module, for example GitRepository/shop.
    #[arg(long, value_name = "KIND/NAME[.NAMESPACE]")]
    source: String,
    /// Directory of the module in the source.
    #[arg(long, default_value = "./")]
    path: String,
    /// Interval between two drift detections.
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    interval: String,
    /// Value of spec.approvePlan: empty (plans wait for an approval), auto, or disable.
    #[arg(long, value_name = "TEXT", default_value = "")]
    approve_plan: String,
    /// Workspace of terraform or tofu.
    #[arg(long, value_name = "NAME")]
    workspace: Option<String>,
    /// An input variable; may be repeated.
    #[arg(long = "var", value_name = "NAME=VALUE")]
    vars: Vec<String>,
    /// A file of variables, as a path from the root of the source; may be repeated.
    #[arg(long = "var-file", value_name = "PATH")]
    var_files: Vec<String>,
    /// Stacks that must be ready first.
    #[arg(long, value_name = "[NAMESPACE/]NAME", value_delimiter = ',')]
    depends_on: Vec<String>,
    /// ServiceAccount of the runs.
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// Secret to write the outputs to.
    #[arg(long, value_name = "SECRET")]
    outputs_secret: Option<String>,
    /// Destroy the resources when the object is deleted.
    #[arg(long)]
    destroy_resources_on_deletion: bool,
    #[command(flatten)]
    creation: CreationArgs,
}

impl CreateArgs {
    /// Returns the flags of the connection.
    pub(super) fn connection(&self) -> &ConnectionArgs {
        &self.creation().connection
    }

    fn creation(&self) -> &CreationArgs {
        match &self.kind {
            CreatedKind::Source(SourceArgs {
                kind: CreatedSource::Git(args),
            }) => &args.creation,
            CreatedKind::Terraform(args) => &args.creation,
        }
    }
}

/// Creates an object, or prints its manifest.
pub(super) async fn create(args: &CreateArgs, console: Console) -> Result<ExitStatus, CliError> {
    let creation = args.creation();
    let cluster = Cluster::connect(&creation.connection).await;
    if creation.export {
        // Without a kubeconfig the manifest has a namespace only if a flag names one.
        let namespace = cluster.as_ref().ok().map(Cluster::namespace);
        let manifest = build(args, namespace.or(creation.connection.namespace.as_deref()))?;
        console.data(&format!("---\n{}", to_yaml(&manifest)?))?;
        return Ok(ExitStatus::Success);
    }
    let cluster = cluster?;
    let manifest = build(args, Some(cluster.namespace()))?;
    let context = Context { cluster, console };
    match &args.kind {
        CreatedKind::Source(SourceArgs {
            kind: CreatedSource::Git(args),
        }) => {
            let (objects, object) = prepare::<GitRepository>(&context, manifest)?;
            write_source(&context, &objects, &object).await?;
            wait_for::<GitRepository>(&context, &args.name, creation, |found| source_result(found, None))
                .await
        }
        CreatedKind::Terraform(args) => {
            let (objects, object) = prepare::<Terraform>(&context, manifest)?;
            let object_name = describe::<Terraform>(context.cluster.namespace(), &args.name);
            let created = objects.create(&post_params(), &object).await;
            created.map_err(failed("create", &object_name))?;
            context.console.note(&format!("{object_name} created"));
            wait_for::<Terraform>(&context, &args.name, creation, |found| stack_result(found, None)).await
        }
    }
}

fn build(args: &CreateArgs, namespace: Option<&str>) -> Result<Value, CliError> {
    match &args.kind {
        CreatedKind::Source(SourceArgs {
            kind: CreatedSource::Git(args),
        }) => manifest::git_repository(args, namespace),
        CreatedKind::Terraform(args) => manifest::terraform(args, namespace),
    }
}

/// Returns the objects of a kind, and the object of a manifest. Both are free of types, so that only the user's fields are sent.
fn prepare<K>(context: &Context, manifest: Value) -> Result<(Api<DynamicObject>, DynamicObject), CliError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    let object = serde_json::from_value(manifest).map_err(|error| CliError::Format(error.to_string()))?;
    let resource = ApiResource::erase::<K>(&());
    let cluster = &context.cluster;
    Ok((
        Api::namespaced_with(cluster.client(), cluster.namespace(), &resource),
        object,
    ))
}

/// Creates the source, or sets the spec of the one that exists, as `flux create source git` does. Its other labels stay.
async fn write_source(
    context: &Context,
    objects: &Api<DynamicObject>,
    object: &DynamicObject,
) -> Result<(), CliError> {
    let name = object.name_any();
    let described = describe::<GitRepository>(context.cluster.namespace(), &name);
    let found = objects.get_opt(&name).await.map_err(failed("get", &described))?;
    let done = match found {
        None => {
            let created = objects.create(&post_params(), object).await;
            created.map_err(failed("create", &described))?;
            "created"
        }
        Some(mut found) => {
            found.labels_mut().extend(object.labels().clone());
            found.data["spec"] = object.data["spec"].clone();
            let replaced = objects.replace(&name, &post_params(), &found).await;
            replaced.map_err(failed("update", &described))?;
            "configured"
        }
    };
    context.console.note(&format!("{described} {done}"));
    Ok(())
}

/// Waits until the object is ready, unless a flag forbids it.
async fn wait_for<K>(
    context: &Context,
    name: &str,
    creation: &CreationArgs,
    progress_of: fn(Option<&K>) -> Result<Progress<String>, CliError>,
) -> Result<ExitStatus, CliError>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    if !creation.wait {
        return Ok(ExitStatus::Success);
    }
    let namespace = context.cluster.namespace();
    let target = Target {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        timeout: creation.timeout,
        return_command: format!("sluice status -n {namespace}"),
    };
    let result = wait::until(&context.cluster, &target, progress_of).await?;
    let object = describe::<K>(namespace, name);
    context.console.note(&printable(&format!("{object}: {result}")));
    Ok(ExitStatus::Success)
}

fn post_params() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

fn failed(action: &'static str, object: &str) -> impl FnOnce(kube::Error) -> CliError {
    let object = object.to_owned();
    move |source| CliError::Api {
        action,
        object,
        source: Box::new(source),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program<T: clap::Args> {
        #[command(flatten)]
        args: T,
    }

    /// Parses the flags of the source `infra`.
    pub(super) fn git_args(flags: &[&str]) -> GitArgs {
        parse(["sluice", "infra"].iter().chain(flags))
    }

    /// Parses the flags of the stack `app`.
    pub(super) fn terraform_args(flags: &[&str]) -> TerraformArgs {
        parse(["sluice", "app"].iter().chain(flags))
    }

    fn parse<'a, T: clap::Args>(arguments: impl Iterator<Item = &'a &'a str>) -> T {
        Program::parse_from(arguments.copied()).args
    }

    #[test]
    fn waiting_can_be_switched_off_and_on() {
        let url = "--url=https://git.example/a";
        for (flag, waits) in [("--wait=false", false), ("--wait", true), ("--wait=true", true)] {
            assert_eq!(git_args(&[url, flag]).creation.wait, waits, "{flag}");
        }
        assert!(git_args(&[url]).creation.wait);
        assert_eq!(git_args(&[url]).creation.timeout, Duration::from_mins(5));
    }

    #[test]
    fn flags_that_are_required_are_asked_for() {
        for arguments in [
            ["sluice", "terraform", "app"].as_slice(),
            &["sluice", "source", "git", "infra"],
            &["sluice", "source", "git", "--url=https://git.example/a"],
        ] {
            let parsed = Program::<CreateArgs>::try_parse_from(arguments);
            assert!(parsed.is_err(), "{arguments:?}");
        }
    }
}
