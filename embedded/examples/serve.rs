//! Serves the definitions of YAML files until interrupted. The arguments are a state directory and the files:
//! `cargo run -p sluice-embedded --example serve -- STATE_DIR crd.yaml ...`, then `kubectl --kubeconfig STATE_DIR/kubeconfig`.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

use sluice_embedded::{ApiServer, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or("the first argument must be a directory")?);
    std::fs::create_dir_all(&dir)?;
    let mut crds = Vec::new();
    for path in arguments {
        crds.push(serde_yaml_ng::from_str(&std::fs::read_to_string(path)?)?);
    }
    let embedded = ApiServer::builder()
        .crds(crds)
        .store(Store::file(dir.join("objects.redb"))?)
        .build()?;
    let serving = embedded.serve(([127, 0, 0, 1], 0).into(), &dir).await?;
    writeln!(
        std::io::stdout(),
        "kubectl --kubeconfig {}",
        serving.kubeconfig_path.display()
    )?;
    tokio::signal::ctrl_c().await?;
    serving.stop().await;
    Ok(())
}
