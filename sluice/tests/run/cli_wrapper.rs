//! Wrapper scripts of the CLI.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::environment::TestEnvironment;

/// Returns a directory with a wrapper of the CLI that runs `before` first.
pub(crate) fn wrap_cli(env: &TestEnvironment, before: &str) -> PathBuf {
    let real = sluice_harness::cli::terraform().unwrap();
    let folder = env.dir.path().join("wrapped");
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join(real.file_name().unwrap());
    let text = format!("#!/bin/sh\n{before}\nexec {} \"$@\"\n", real.display());
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Returns a directory with a CLI that is called `terraform` and reports this version.
pub(crate) fn terraform_of_version(env: &TestEnvironment, version: &str) -> PathBuf {
    let real = sluice_harness::cli::terraform().unwrap();
    let folder = env.dir.path().join(format!("terraform-{version}"));
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("terraform");
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = version ]; then echo '{{\"terraform_version\":\"{version}\"}}'; exit; fi\nexec {} \"$@\"\n",
        real.display()
    );
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}
