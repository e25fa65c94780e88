//! `sluice suspend` and `sluice resume`.

use std::fmt::{Debug, Write as _};
use std::pin::pin;

use futures::stream::{self, Stream, StreamExt as _};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;

use super::reconcile::stack_target;
use super::{Context, with_flags};
use crate::change::merge;
use crate::cluster::{ConnectionArgs, describe};
use crate::object::{ObjectKind, ObjectsArgs, Words};
use crate::output::printable;
use crate::wait::{self, Target, WaitArgs, source_result, stack_result};
use crate::{CliError, ExitStatus};

/// Changes of objects at the same time.
const CONCURRENCY: usize = 8;

/// Arguments of `sluice suspend`.
#[derive(clap::Args, Debug)]
pub struct SuspendArgs {
    /// The objects.
    #[command(flatten)]
    pub objects: ObjectsArgs,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Arguments of `sluice resume`.
#[derive(clap::Args, Debug)]
pub struct ResumeArgs {
    /// The objects.
    #[command(flatten)]
    pub objects: ObjectsArgs,
    /// How long to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Suspends objects. A run in progress continues.
pub(super) async fn suspend(context: &Context, args: &SuspendArgs) -> Result<ExitStatus, CliError> {
    match args.objects.words()? {
        Words {
            kind: ObjectKind::Stack,
            name,
        } => suspend_all::<Terraform>(context, args, name.as_deref()).await,
        Words {
            kind: ObjectKind::Source,
            name,
        } => suspend_all::<GitRepository>(context, args, name.as_deref()).await,
    }
}

/// Resumes objects, and waits for their results if that is asked for.
pub(super) async fn resume(context: &Context, args: &ResumeArgs) -> Result<ExitStatus, CliError> {
    match args.objects.words()? {
        Words {
            kind: ObjectKind::Stack,
            name,
        } => resume_all::<Terraform>(context, args, name.as_deref()).await,
        Words {
            kind: ObjectKind::Source,
            name,
        } => resume_all::<GitRepository>(context, args, name.as_deref()).await,
    }
}

impl ObjectsArgs {
    /// Returns the command that resumes these objects, without the flags of the connection. Pure.
    fn resume_command(&self) -> String {
        let mut command = "sluice resume".to_owned();
        let flags = [("--all", self.all), ("-A", self.selection.all_namespaces)];
        let flags = flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| *flag);
        for word in self.object.iter().map(String::as_str).chain(flags) {
            let _ = write!(command, " {word}");
        }
        if let Some(labels) = &self.selection.selector {
            let _ = write!(command, " -l '{labels}'");
        }
        command
    }
}

/// A kind that can be suspended.
trait Suspendable:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
    /// The command that resumes an object, without the name.
    const RESUME: &'static str;
    /// Returns whether the object is suspended.
    fn is_suspended(&self) -> bool;
    /// Returns what a resumed object says when it is done.
    async fn result(&self, context: &Context, wait: WaitArgs) -> Result<String, CliError>;
}

impl Suspendable for Terraform {
    const RESUME: &'static str = "sluice resume";

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }

    async fn result(&self, context: &Context, wait: WaitArgs) -> Result<String, CliError> {
        let target = stack_target(self, wait.timeout);
        let progress_of = |found: Option<&Self>| stack_result(found, None);
        wait::until(&context.cluster, &target, progress_of).await
    }
}

impl Suspendable for GitRepository {
    const RESUME: &'static str = "sluice resume source";

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }

    async fn result(&self, context: &Context, wait: WaitArgs) -> Result<String, CliError> {
        let (namespace, name) = (self.namespace().unwrap_or_default(), self.name_any());
        let target = Target {
            return_command: format!("sluice get sources {name} -n {namespace}"),
            namespace,
            name,
            timeout: wait.timeout,
        };
        let progress_of = |found: Option<&Self>| source_result(found, None);
        wait::until(&context.cluster, &target, progress_of).await
    }
}

/// Reads the objects that the arguments name.
async fn read_objects<K: Suspendable>(
    context: &Context,
    args: &ObjectsArgs,
    name: Option<&str>,
) -> Result<Vec<K>, CliError> {
    let objects: Vec<K> = match name {
        Some(name) => vec![context.cluster.get(name).await?],
        None => context.cluster.list(&args.selection).await?,
    };
    if objects.is_empty() {
        context
            .console
            .note(&format!("There is no such {}.", K::kind(&())));
    }
    Ok(objects)
}

async fn suspend_all<K: Suspendable>(
    context: &Context,
    args: &SuspendArgs,
    name: Option<&str>,
) -> Result<ExitStatus, CliError> {
    let objects = read_objects::<K>(context, &args.objects, name).await?;
    let mut status = ExitStatus::Success;
    let mut suspended = Vec::new();
    let mut changes = pin!(changes(context, &objects, true));
    while let Some((object, changed)) = changes.next().await {
        match changed {
            Ok(Some(_)) => {
                suspended.push(object);
                note(context, object, " is suspended.");
            }
            Ok(None) => note(context, object, " is suspended already."),
            Err(error) => {
                context.report(&error);
                status = ExitStatus::Failed;
            }
        }
    }
    let commands = resume_commands(&args.objects, &objects, &suspended);
    let commands = commands
        .iter()
        .map(|command| printable(&with_flags(command, &args.connection)));
    note_resume(context, &commands.collect::<Vec<_>>());
    Ok(status)
}

/// Returns the commands that resume what was suspended, without the flags of the connection: that of the selection, unless it would resume
/// more. Pure.
fn resume_commands<K: Suspendable>(args: &ObjectsArgs, selected: &[K], suspended: &[&K]) -> Vec<String> {
    if suspended.is_empty() {
        return Vec::new();
    }
    if !selected.iter().any(K::is_suspended) {
        return vec![args.resume_command()];
    }
    let command = |object: &&K| {
        let namespace = match object.namespace() {
            Some(namespace) if args.selection.all_namespaces => format!(" -n {namespace}"),
            _ => String::new(),
        };
        format!("{} {}{namespace}", K::RESUME, object.name_any())
    };
    suspended.iter().map(command).collect()
}

/// Says which commands resume what was suspended.
fn note_resume(context: &Context, commands: &[String]) {
    let console = context.console;
    match commands {
        [] => {}
        [command] => console.note(&format!("Nothing new starts before `{command}`.")),
        commands => {
            let lines = commands.join("\n  ");
            console.note(&format!("Nothing new starts before these commands:\n  {lines}"));
        }
    }
}

async fn resume_all<K: Suspendable>(
    context: &Context,
    args: &ResumeArgs,
    name: Option<&str>,
) -> Result<ExitStatus, CliError> {
    let objects = read_objects::<K>(context, &args.objects, name).await?;
    let mut resumed = Vec::new();
    let mut status = ExitStatus::Success;
    // All first: they reconcile at the same time.
    let mut changes = pin!(changes(context, &objects, false));
    while let Some((object, changed)) = changes.next().await {
        match changed {
            Ok(Some(current)) => {
                note(context, object, " is resumed.");
                resumed.push(current);
            }
            Ok(None) => note(context, object, " is not suspended."),
            Err(error) => {
                context.report(&error);
                status = ExitStatus::Failed;
            }
        }
    }
    if !args.wait.wait {
        return Ok(status);
    }
    for object in &resumed {
        match object.result(context, args.wait).await {
            Ok(text) => note(context, object, &format!(": {text}")),
            // The exit code of one object is that of the command.
            Err(error) if name.is_some() || matches!(error, CliError::Interrupted { .. }) => {
                return Err(error);
            }
            Err(error) => {
                context.report(&error);
                status = ExitStatus::Failed;
            }
        }
    }
    Ok(status)
}

/// Sets `spec.suspend` of each object, of a few at the same time. The results have the order of the objects.
fn changes<'a, K: Suspendable>(
    context: &'a Context,
    objects: &'a [K],
    value: bool,
) -> impl Stream<Item = (&'a K, Result<Option<K>, CliError>)> {
    stream::iter(objects)
        .map(move |object| async move { (object, set_suspended(context, object, value).await) })
        .buffered(CONCURRENCY)
}

/// Sets `spec.suspend`. Returns the changed object; `None`: it has that value already.
async fn set_suspended<K: Suspendable>(
    context: &Context,
    object: &K,
    value: bool,
) -> Result<Option<K>, CliError> {
    if object.is_suspended() == value {
        return Ok(None);
    }
    let namespace = object.namespace().unwrap_or_default();
    let patch = json!({ "spec": { "suspend": value } });
    let changed = merge(&context.cluster, &namespace, &object.name_any(), &patch).await?;
    Ok(Some(changed))
}

fn note<K: Suspendable>(context: &Context, object: &K, text: &str) {
    let object = describe::<K>(&object.namespace().unwrap_or_default(), &object.name_any());
    context.console.note(&printable(&format!("{object}{text}")));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::SelectionArgs;
    use crate::fixture;

    #[test]
    fn the_commands_resume_no_more_than_was_suspended() {
        let stack = |name: &str, is_suspended: bool| {
            fixture::stack(&json!({ "metadata": { "name": name }, "spec": { "suspend": is_suspended } }))
        };
        let args = |all_namespaces: bool| ObjectsArgs {
            object: Vec::new(),
            all: false,
            selection: SelectionArgs {
                all_namespaces,
                selector: Some("env=prod".to_owned()),
            },
        };
        let commands = |selected: &[Terraform], all_namespaces: bool| {
            let suspended: Vec<_> = selected.iter().filter(|stack| !stack.spec.suspend).collect();
            resume_commands(&args(all_namespaces), selected, &suspended)
        };
        let selected = [stack("app", false), stack("db", true), stack("net", false)];
        assert_eq!(
            commands(&selected, false),
            ["sluice resume app", "sluice resume net"]
        );
        assert_eq!(
            commands(&selected, true),
            ["sluice resume app -n team", "sluice resume net -n team"]
        );
        assert_eq!(commands(&selected[..1], true), ["sluice resume -A -l 'env=prod'"]);
        assert_eq!(commands(&selected[1..2], true), Vec::<String>::new());
    }
}
