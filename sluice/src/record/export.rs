//! `sluice record export`: reads a run with its source and its plan, and signs what they say.

use std::fmt::Debug;
use std::path::PathBuf;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::run::{RunSource, TerraformRun};
use sluice_api::source::GitRepository;
use sluice_api::terraform::{Terraform, label_value, run_sequence};
use sluice_cli::cluster::{Cluster, ConnectionArgs};
use sluice_tf_core::record::{RecordedObjects, SigningKey, record_of, sign};

use super::error::READ_KEY;
use super::{RecordCommandError, read};

/// Data key of the signing key in its Secret.
const DATA_KEY: &str = "key.pem";
/// The longest file of a key in bytes.
const KEY_LIMIT: usize = 64 * 1024;
/// Kind of sources whose commits may be verified.
const GIT_REPOSITORY: &str = "GitRepository";

/// Arguments of `sluice record export`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct ExportArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    name: String,
    /// Number of the run, at the end of its name. Default: the newest run that has ended.
    #[arg(long, value_name = "NUMBER")]
    run: Option<u64>,
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Where the signing key is.
#[derive(clap::Args, Clone, Debug)]
#[group(required = true, multiple = false)]
struct KeyArgs {
    /// File with the private key: Ed25519 or ECDSA P-256, PKCS#8 in PEM.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Secret with such a key in the data key key.pem. Default namespace: that of the stack.
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    key_secret: Option<String>,
}

/// The API, and the namespace of the stack.
struct Reader {
    client: Client,
    namespace: String,
}

/// Returns the signed record.
pub(super) async fn export(args: &ExportArgs) -> Result<Vec<u8>, RecordCommandError> {
    let cluster = Cluster::connect(&args.connection).await?;
    let reader = Reader {
        client: cluster.client(),
        namespace: cluster.namespace().to_owned(),
    };
    let key = reader.signing_key(&args.key).await?;
    let runs = reader.runs(&args.name).await?;
    let run = select(&runs, args.run).ok_or_else(|| RecordCommandError::NoRun {
        stack: describe::<Terraform>(&reader.namespace, &args.name),
        run: args.run.map_or_else(
            || "run that has ended".to_owned(),
            |number| format!("run {number}"),
        ),
    })?;
    let source = reader.source(&run.spec.source).await?;
    let objects = RecordedObjects {
        run,
        source: source.as_ref().map_err(Clone::clone),
        plan_run: run.spec.plan.as_ref().and_then(|plan| {
            let mut others = runs.iter();
            others.find(|other| other.name_any() == plan.run)
        }),
    };
    let name = describe::<TerraformRun>(&reader.namespace, &run.name_any());
    let record = record_of(&objects).map_err(|source| RecordCommandError::NotEnded {
        run: name.clone(),
        source,
    })?;
    let signed = sign(record, &key).map_err(|source| RecordCommandError::Sign {
        run: name.clone(),
        source,
    })?;
    eprintln!("{name} is recorded and signed with the key {}", key.public().id());
    Ok(signed.into_bytes())
}

impl Reader {
    /// Reads an object, if it exists.
    async fn get<K>(&self, namespace: &str, name: &str) -> Result<Option<K>, RecordCommandError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let found = api.get_opt(name).await;
        found.map_err(|source| RecordCommandError::Api {
            action: "get",
            object: describe::<K>(namespace, name),
            source: Box::new(source),
        })
    }

    /// Reads the key from its file or its Secret.
    async fn signing_key(&self, args: &KeyArgs) -> Result<SigningKey, RecordCommandError> {
        let (place, text) = match (&args.key, &args.key_secret) {
            (Some(path), _) => (path.display().to_string(), read(path, KEY_LIMIT, READ_KEY)?),
            (None, name) => self.key_of_secret(name.as_deref().unwrap_or_default()).await?,
        };
        SigningKey::from_pem(&text).map_err(|source| RecordCommandError::Key { place, source })
    }

    async fn key_of_secret(&self, name: &str) -> Result<(String, Vec<u8>), RecordCommandError> {
        let (namespace, name) = name.split_once('/').unwrap_or((self.namespace.as_str(), name));
        let object = describe::<Secret>(namespace, name);
        let secret: Option<Secret> = self.get(namespace, name).await?;
        let Some(secret) = secret else {
            return Err(RecordCommandError::NotFound(object));
        };
        let value = secret.data.and_then(|mut data| data.remove(DATA_KEY));
        match value {
            Some(value) => Ok((object, value.0)),
            None => Err(RecordCommandError::NoDataKey {
                secret: object,
                key: DATA_KEY,
            }),
        }
    }

    /// Reads the runs of a stack. Those of an earlier object of the same name are left out.
    async fn runs(&self, stack: &str) -> Result<Vec<TerraformRun>, RecordCommandError> {
        let found: Option<Terraform> = self.get(&self.namespace, stack).await?;
        let Some(found) = found else {
            let object = describe::<Terraform>(&self.namespace, stack);
            return Err(RecordCommandError::NotFound(object));
        };
        let uid = found.uid().unwrap_or_default();
        let labels = format!("{TERRAFORM_LABEL}={}", label_value(stack));
        let api: Api<TerraformRun> = Api::namespaced(self.client.clone(), &self.namespace);
        let listed = api.list(&ListParams::default().labels(&labels)).await;
        let listed = listed.map_err(|source| RecordCommandError::Api {
            action: "list",
            object: format!("terraformruns of {stack} in {}", self.namespace),
            source: Box::new(source),
        })?;
        let mut runs = listed.items;
        runs.retain(|run| run.spec.terraform.uid == uid);
        Ok(runs)
    }

    /// Reads the source of a run. The inner error says why it is not known, which the record says too.
    async fn source(&self, used: &RunSource) -> Result<Result<GitRepository, String>, RecordCommandError> {
        if used.kind != GIT_REPOSITORY {
            return Ok(Err(format!("a source of the kind {} has no commit", used.kind)));
        }
        match self.get::<GitRepository>(&used.namespace, &used.name).await {
            Ok(found) => Ok(found.ok_or_else(|| "the source does not exist any more".to_owned())),
            Err(RecordCommandError::Api { source, .. }) if is_forbidden(&source) => Ok(Err(
                "the user who made the record had no right to read the source".to_owned(),
            )),
            Err(error) => Err(error),
        }
    }
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Returns the run with this number, or the newest one that has ended.
fn select(runs: &[TerraformRun], number: Option<u64>) -> Option<&TerraformRun> {
    let number_of = |run: &TerraformRun| run_sequence(&run.name_any());
    let has_ended = |run: &TerraformRun| run.status.as_ref().is_some_and(|status| status.phase.is_final());
    match number {
        Some(_) => runs.iter().find(|run| number_of(run) == number),
        None => runs
            .iter()
            .filter(|run| has_ended(run))
            .max_by_key(|run| number_of(run)),
    }
}

/// Returns kind, namespace and name for messages: `terraform default/app`.
fn describe<K: Resource<DynamicType = ()>>(namespace: &str, name: &str) -> String {
    format!("{} {namespace}/{name}", K::kind(&()).to_lowercase())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::*;

    fn run(number: u64, phase: &str) -> TerraformRun {
        serde_json::from_value(json!({
            "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "TerraformRun",
            "metadata": { "name": format!("app-0123456789-{number}"), "namespace": "default" },
            "spec": { "action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Revision",
                "source": { "kind": "GitRepository", "name": "code", "namespace": "default" },
                "terraform": { "generation": 1, "name": "app", "uid": "0123456789" } },
            "status": { "phase": phase },
        }))
        .unwrap()
    }

    #[test]
    fn the_newest_ended_run_is_recorded_or_the_named_one() {
        let runs = [run(9, "Succeeded"), run(11, "Applying"), run(10, "Failed")];
        let number = |number| select(&runs, number).map(kube::ResourceExt::name_any);
        assert_eq!(number(None).as_deref(), Some("app-0123456789-10"));
        assert_eq!(number(Some(9)).as_deref(), Some("app-0123456789-9"));
        assert_eq!(number(Some(11)).as_deref(), Some("app-0123456789-11"));
        assert_eq!(number(Some(12)), None);
        assert!(select(&[run(1, "Pending")], None).is_none());
    }

    #[test]
    fn exactly_one_key_is_needed() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            export: ExportArgs,
        }
        let parses = |arguments: &[&str]| {
            let arguments = ["export", "app"].iter().chain(arguments).copied();
            Cli::try_parse_from(arguments).map(|cli| cli.export.key)
        };
        assert!(parses(&["--key", "a"]).unwrap().key.is_some());
        let secret = parses(&["--key-secret", "a/b"]).unwrap();
        assert_eq!(secret.key_secret.as_deref(), Some("a/b"));
        assert!(parses(&[]).is_err());
        assert!(parses(&["--key", "a", "--key-secret", "b"]).is_err());
    }

    #[test]
    fn an_error_names_the_object_and_the_cause() {
        let status = kube::core::Status {
            code: 403,
            message: "terraforms is forbidden".to_owned(),
            ..kube::core::Status::default()
        };
        let error = kube::Error::Api(Box::new(status));
        assert!(is_forbidden(&error));
        let error = RecordCommandError::Api {
            action: "get",
            object: describe::<Terraform>("default", "app"),
            source: Box::new(error),
        };
        assert_eq!(
            error.to_string(),
            "cannot get terraform default/app: terraforms is forbidden"
        );
    }
}
