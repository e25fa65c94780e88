//! `sluice version`: the version of this program, of the API server, and of the controllers.

use serde_json::json;

use super::components::{self, Component};
use super::connect;
use crate::cluster::ConnectionArgs;
use crate::output::{Console, REPORT_VERSION, ReportFormat, Table, to_json, to_yaml};
use crate::{CliError, ExitStatus};

/// The version of this program.
pub(super) const CLIENT: &str = env!("CARGO_PKG_VERSION");

/// Arguments of `sluice version`.
#[derive(clap::Args, Debug)]
pub struct VersionArgs {
    /// Print the version of this program only, without a request.
    #[arg(long)]
    client: bool,
    /// The format.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    output: ReportFormat,
    /// The API.
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
}

/// Prints the versions.
pub(super) async fn version(args: &VersionArgs, console: Console) -> Result<ExitStatus, CliError> {
    let mut server = None;
    let mut components = Vec::new();
    if !args.client {
        let context = connect(&args.connection, console).await?;
        let client = context.cluster.client();
        let (info, found) = tokio::join!(
            client.apiserver_version(),
            components::read_if_permitted(&context)
        );
        let info = info.map_err(|source| CliError::Api {
            action: "get",
            object: "version of the API server".to_owned(),
            source: Box::new(source),
        })?;
        server = Some(info.git_version);
        components = found?;
    }
    let report = json!({
        "apiVersion": REPORT_VERSION,
        "kind": "VersionReport",
        "client": CLIENT,
        "server": server,
        "components": components,
    });
    match args.output {
        ReportFormat::Json => console.data(&to_json(&report)?)?,
        ReportFormat::Yaml => console.data(&to_yaml(&report)?)?,
        ReportFormat::Table => console.table(&table(server.as_deref(), &components))?,
    }
    Ok(ExitStatus::Success)
}

fn table(server: Option<&str>, components: &[Component]) -> Table {
    let mut table = Table::new(&["COMPONENT", "VERSION", "NAMESPACE", "IMAGE"]);
    table.push(vec!["client".into(), CLIENT.into()]);
    if let Some(server) = server {
        table.push(vec!["API server".into(), server.into()]);
    }
    for component in components {
        table.push(vec![
            component.name.as_str().into(),
            component.version.as_str().into(),
            component.namespace.as_str().into(),
            component.image.as_str().into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_component_has_a_row() {
        let component = Component {
            name: "tf-controller".to_owned(),
            namespace: "sluice-system".to_owned(),
            image: "r/tf-controller:0.2.0".to_owned(),
            version: "0.2.0".to_owned(),
            available: Some(1),
            wanted: Some(1),
        };
        let text = table(Some("v1.34.1"), &[component]).render(&Console::plain());
        let rows: Vec<Vec<_>> = text
            .lines()
            .skip(1)
            .map(|line| {
                line.split("   ")
                    .map(str::trim)
                    .filter(|cell| !cell.is_empty())
                    .collect()
            })
            .collect();
        assert_eq!(rows[0][..2], ["client", CLIENT]);
        assert_eq!(rows[1][..2], ["API server", "v1.34.1"]);
        assert_eq!(
            rows[2],
            ["tf-controller", "0.2.0", "sluice-system", "r/tf-controller:0.2.0"]
        );
    }
}
