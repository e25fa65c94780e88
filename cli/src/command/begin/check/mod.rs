//! `sluice check`: whether a cluster is ready for Sluice, and after the installation, whether Sluice is healthy.

mod finding;
mod permissions;
mod sources;

use std::fmt::Debug;

use finding::{Finding, Outcome};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Request;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::client::Body;
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use sluice_runtime::clock::{Clock as _, SystemClock};

use super::components::{self, Component, is_absent, is_forbidden};
use super::version::CLIENT;
use super::{connect, report};
use crate::cluster::{Cluster, ConnectionArgs, list_name};
use crate::output::{Cell, Console, ReportFormat, Table, to_json, to_yaml};
use crate::{CliError, ExitStatus};

/// The Leases of leader election. With a label selector a controller has one of its own.
const LEASES: [&str; 3] = [
    "1953de50.contrib.fluxcd.io",
    "source-controller-leader-election",
    "repo-controller-leader-election",
];
/// Maximum number of objects of a kind that are checked.
const OBJECTS: u32 = 500;
/// Maximum number of concurrent requests.
const CONCURRENCY: usize = 8;

/// Arguments of `sluice check`.
#[derive(clap::Args, Debug)]
pub struct CheckArgs {
    /// Check before the installation: versions, permissions, and controllers that are there already.
    #[arg(long)]
    pre: bool,
    /// The format.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    output: ReportFormat,
    /// The API.
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
}

/// Prints what is found. Exit code 1: a check failed.
pub(super) async fn check(args: &CheckArgs, console: Console) -> Result<ExitStatus, CliError> {
    let context = connect(&args.connection, console).await?;
    let cluster = &context.cluster;
    let mut findings = check_server(cluster).await?;
    if args.pre {
        let namespace = args.connection.namespace.as_deref();
        findings.extend(permissions::findings(cluster, namespace).await?);
        findings.extend(check_before_install(cluster).await?);
    } else {
        findings.extend(check_installation(cluster).await?);
    }
    match args.output {
        ReportFormat::Json => console.data(&to_json(&report("CheckReport", &findings)?)?)?,
        ReportFormat::Yaml => console.data(&to_yaml(&report("CheckReport", &findings)?)?)?,
        ReportFormat::Table => console.table(&table(&findings))?,
    }
    if findings.iter().any(|finding| finding.result == Outcome::Failed) {
        return Ok(ExitStatus::Failed);
    }
    Ok(ExitStatus::Success)
}

fn table(findings: &[Finding]) -> Table {
    let mut table = Table::new(&["CHECK", "RESULT", "DETAIL", "NEXT"]);
    for finding in findings {
        table.push(vec![
            finding.check.as_str().into(),
            Cell::new(finding.result.as_str(), finding.result.tone()),
            finding.detail.as_str().into(),
            finding.next.as_str().into(),
        ]);
    }
    table
}

/// Checks the version of the API server and its clock. An API that does not answer is the error of the command.
async fn check_server(cluster: &Cluster) -> Result<Vec<Finding>, CliError> {
    let failed = |source| CliError::Api {
        action: "get",
        object: "version of the API server".to_owned(),
        source: Box::new(source),
    };
    let info = cluster.client().apiserver_version().await.map_err(failed)?;
    let request = Request::get("/version").body(Body::empty());
    let request = request.map_err(|error| CliError::Format(error.to_string()))?;
    let before = SystemClock.now();
    let response = cluster.client().send(request).await.map_err(failed)?;
    let after = SystemClock.now();
    let date = response.headers().get("date").and_then(|date| date.to_str().ok());
    let served = date.and_then(served_time);
    Ok(vec![
        finding::of_version(&info.major, &info.minor, &info.git_version),
        finding::of_clocks(before, served, after),
    ])
}

/// Parses the header `Date` (RFC 9110, section 6.6.1).
fn served_time(date: &str) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(date).ok()
}

/// Finds controllers that exist already.
async fn check_before_install(cluster: &Cluster) -> Result<Vec<Finding>, CliError> {
    let components = match components::read(cluster).await {
        Ok(components) => components,
        Err(error) => return unless_forbidden("controllers", error).map(|finding| vec![finding]),
    };
    Ok(existing(&components))
}

/// Says which overlay fits the controllers that exist.
fn existing(components: &[Component]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for component in components.iter().filter(|component| component.wanted.is_some()) {
        let advice = match component.name.as_str() {
            "tofu-controller" => "sluice migrate",
            "source-controller" => {
                "use the overlay with-flux, or replace-flux in place of this source-controller"
            }
            _ => "it is replaced if it is in the namespace of the installation",
        };
        let check = format!("deployment {}/{}", component.namespace, component.name);
        let finding = Finding::new(check, Outcome::Warning, component.image.clone());
        findings.push(finding.next(advice));
    }
    if findings.is_empty() {
        findings.push(Finding::new(
            "controllers",
            Outcome::Passed,
            "neither Flux nor tofu-controller nor Sluice is here",
        ));
    }
    findings
}

/// Checks an installation.
async fn check_installation(cluster: &Cluster) -> Result<Vec<Finding>, CliError> {
    let mut findings: Vec<Finding> = stream::iter(sluice_api::crds())
        .map(|required| check_definition(cluster, required))
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    match components::read(cluster).await {
        Ok(components) => {
            findings.extend(finding::of_components(&components, CLIENT));
            findings.extend(check_leases(cluster, &components).await?);
        }
        Err(error) => findings.push(unless_forbidden("controllers", error)?),
    }
    let (sources, artifacts, runs) = tokio::try_join!(
        check_objects(cluster, "Git hosts", sources::of_sources),
        check_objects(cluster, "artifacts", sources::of_artifacts),
        check_objects(cluster, "CLI of runs", finding::of_runs),
    )?;
    findings.extend([sources, artifacts, runs]);
    Ok(findings)
}

async fn check_definition(
    cluster: &Cluster,
    required: CustomResourceDefinition,
) -> Result<Finding, CliError> {
    let name = required.name_any();
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    match definitions.get_opt(&name).await {
        Ok(installed) => Ok(finding::of_definition(&required, installed.as_ref())),
        Err(source) => {
            let check = format!("definition of {}", required.spec.names.kind);
            unless_forbidden(&check, api_error("get", &name, source))
        }
    }
}

/// Checks the Leases in the namespaces of the controllers.
async fn check_leases(cluster: &Cluster, components: &[Component]) -> Result<Vec<Finding>, CliError> {
    let mut namespaces: Vec<&str> = components
        .iter()
        .filter(|component| component.wanted.is_some_and(|wanted| wanted > 0))
        .map(|component| component.namespace.as_str())
        .collect();
    namespaces.dedup();
    let mut findings = Vec::new();
    for namespace in namespaces {
        let leases: Api<Lease> = cluster.objects_in(namespace);
        for name in LEASES {
            match leases.get_opt(name).await {
                Ok(None) => {}
                Ok(Some(lease)) => findings.push(finding::of_lease(&lease, SystemClock.now())),
                Err(source) => {
                    let check = format!("lease {namespace}/{name}");
                    findings.push(unless_forbidden(&check, api_error("get", &check, source))?);
                }
            }
        }
    }
    Ok(findings)
}

/// Reads one page of the objects of a kind, and judges them. Of runs, the newest ones of each stack remain.
async fn check_objects<K>(
    cluster: &Cluster,
    check: &str,
    judge: fn(&[K]) -> Finding,
) -> Result<Finding, CliError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let objects: Api<K> = Api::all(cluster.client());
    match objects.list(&ListParams::default().limit(OBJECTS)).await {
        Ok(page) => Ok(judge(&page.items)),
        Err(source) if is_absent(&source) => Ok(judge(&[])),
        // The text of the error may quote a value.
        Err(kube::Error::SerdeError(_)) => {
            let detail = "an object does not fit the definition of this version";
            Ok(Finding::new(check, Outcome::Skipped, detail).next("sluice migrate"))
        }
        Err(source) => unless_forbidden(check, api_error("list", &list_name::<K>(), source)),
    }
}

fn api_error(action: &'static str, object: &str, source: kube::Error) -> CliError {
    CliError::Api {
        action,
        object: object.to_owned(),
        source: Box::new(source),
    }
}

/// Turns what the user may not read into a finding; any other error ends the command.
fn unless_forbidden(check: &str, error: CliError) -> Result<Finding, CliError> {
    if !matches!(&error, CliError::Api { source, .. } if is_forbidden(source)) {
        return Err(error);
    }
    Ok(Finding::new(check, Outcome::Skipped, error.to_string()).next(error.advice()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_server_is_a_date_of_http() {
        let expected = "1994-11-06T08:49:37Z".parse().unwrap();
        assert_eq!(served_time("Sun, 06 Nov 1994 08:49:37 GMT"), Some(expected));
        assert_eq!(served_time("now"), None);
    }

    #[test]
    fn controllers_that_exist_have_an_advice() {
        let component = |name: &str, wanted: Option<i32>| Component {
            name: name.to_owned(),
            namespace: "flux-system".to_owned(),
            image: "r/x:1".to_owned(),
            version: "1".to_owned(),
            available: wanted,
            wanted,
        };
        let found = existing(&[
            component("tofu-controller", Some(1)),
            component("tf-runner", None),
        ]);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].result, found[0].next.as_str()),
            (Outcome::Warning, "sluice migrate")
        );
        assert_eq!(existing(&[])[0].result, Outcome::Passed);
    }
}
