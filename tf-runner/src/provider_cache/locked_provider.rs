//! Parses the providers of a dependency lock file (pure). It expects one setting per line, as the CLI writes them. A provider
//! in another form is not found, and is downloaded.

use std::path::PathBuf;

/// Maximum number of providers of one lock file.
const MAX_PROVIDERS: usize = 1000;
/// Maximum number of digests of one provider. It has one for each platform.
const MAX_HASHES: usize = 100;

/// One provider of a lock file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LockedProvider {
    /// Source address: host, namespace and type with slashes between them.
    pub(crate) source: String,
    pub(crate) version: String,
    /// Digests of unpacked packages, one for each platform: `h1:` and base64.
    pub(crate) hashes: Vec<String>,
}

impl LockedProvider {
    /// The path below the module directory where `init` installs the package for this platform; `None` for an invalid name.
    pub(crate) fn install_path(&self) -> Option<PathBuf> {
        let parts: Vec<&str> = self.source.split('/').collect();
        let is_valid = parts.len() == 3
            && parts
                .iter()
                .chain([&self.version.as_str()])
                .all(|part| is_name(part));
        is_valid.then(|| {
            let mut path = PathBuf::from(INSTALL_DIRECTORY);
            path.extend(parts);
            path.join(&self.version).join(platform())
        })
    }
}

/// The directory below the module where `init` installs providers.
pub(crate) const INSTALL_DIRECTORY: &str = ".terraform/providers";

fn is_name(part: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+:".contains(&byte);
    !part.starts_with('.') && (1..=128).contains(&part.len()) && part.bytes().all(is_allowed)
}

/// The CLI's name of this machine's platform.
pub(super) fn platform() -> String {
    let os = match std::env::consts::OS {
        "macos" => "darwin",
        os => os,
    };
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        architecture => architecture,
    };
    format!("{os}_{architecture}")
}

/// The providers that a lock file names.
pub(crate) fn parse(text: &str) -> Vec<LockedProvider> {
    let mut found: Vec<LockedProvider> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(source) = line.strip_prefix("provider ").and_then(quoted) {
            if found.len() >= MAX_PROVIDERS {
                break;
            }
            found.push(LockedProvider {
                source: source.to_owned(),
                ..LockedProvider::default()
            });
        } else if let Some(provider) = found.last_mut() {
            let version = line.strip_prefix("version").map(str::trim_start);
            if let Some(version) = version.and_then(|rest| rest.strip_prefix('=')).and_then(quoted) {
                version.clone_into(&mut provider.version);
            } else {
                let texts = line.split('"').skip(1).step_by(2);
                let hashes = texts.filter(|text| text.starts_with("h1:")).map(str::to_owned);
                let remaining = MAX_HASHES.saturating_sub(provider.hashes.len());
                provider.hashes.extend(hashes.take(remaining));
            }
        }
    }
    found
}

/// The first text in quotation marks.
fn quoted(text: &str) -> Option<&str> {
    text.split('"').nth(1)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Component;

    use proptest::prelude::*;

    use super::*;

    const LOCK: &str = r#"# This file is maintained automatically by "tofu init".
# Manual edits may be lost in future updates.

provider "registry.opentofu.org/hashicorp/random" {
  version     = "3.6.0"
  constraints = "~> 3.0"
  hashes = [
    "h1:I8MBeauYA8J8yheLJ8oSMWqB0kovn16dF/wKZ1QTdkk=",
    "h1:p6WG1IPHnqx1fnJVKNjv733FBaArIugqy58HRZnpPCk=",
    "zh:486a1c921eab5c51a480f2eb0ad85173f207c9b7bb215f3893e58bc38d3b7c75",
  ]
}

provider "sluice.test:8443/sluice/trial" {
  version = "1.0.0"
}
"#;

    #[test]
    fn providers_are_read_with_the_digests_of_unpacked_packages() {
        let [random, trial] = parse(LOCK).try_into().unwrap();
        assert_eq!((random.version.as_str(), random.hashes.len()), ("3.6.0", 2));
        let place = random.install_path().unwrap();
        let start = ".terraform/providers/registry.opentofu.org/hashicorp/random/3.6.0/";
        assert!(place.display().to_string().starts_with(start), "{place:?}");
        assert_eq!(trial.hashes, Vec::<String>::new());
        assert!(trial.install_path().is_some());
        assert_eq!(parse("hashes = [\"h1:x\"]\n"), []);
    }

    #[test]
    fn names_with_path_components_are_rejected() {
        for (source, version) in [
            ("../../etc", "1.0.0"),
            ("a/../b", "1.0.0"),
            ("a/b/c", "../1"),
            ("a/b/c", ""),
            ("a/b", "1.0.0"),
            ("a/b/c/d", "1.0.0"),
            ("/b/c", "1.0.0"),
        ] {
            let text = format!("provider \"{source}\" {{\n  version = \"{version}\"\n}}\n");
            assert_eq!(parse(&text)[0].install_path(), None, "{text}");
        }
    }

    #[test]
    fn a_huge_lock_file_has_a_limited_number_of_providers_and_digests() {
        let mut text = String::new();
        for number in 0..MAX_PROVIDERS + 10 {
            writeln!(text, "provider \"a/b/p{number}\" {{\n  version = \"1.0.0\"\n}}").unwrap();
        }
        assert_eq!(parse(&text).len(), MAX_PROVIDERS);
        let hashes = "\"h1:x\", ".repeat(MAX_HASHES + 10);
        let found = parse(&format!(
            "provider \"a/b/c\" {{\n  hashes = [{hashes}]\n{hashes}\n}}\n"
        ));
        assert_eq!(found[0].hashes.len(), MAX_HASHES);
    }

    proptest! {
        #[test]
        fn no_lock_file_names_a_path_outside_of_the_install_directory(
            words in proptest::collection::vec(
                prop_oneof![
                    Just("provider ".to_owned()), Just("version =".to_owned()), Just("\"".to_owned()), Just("\n".to_owned()),
                    Just("..".to_owned()), Just("/".to_owned()), Just("h1:".to_owned()), Just("{".to_owned()), "[a-z0-9.\\\\\0]{0,4}",
                ],
                0..80,
            )
        ) {
            for provider in parse(&words.concat()) {
                let Some(path) = provider.install_path() else { continue };
                prop_assert!(path.starts_with(INSTALL_DIRECTORY));
                prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_))));
                prop_assert_eq!(path.components().count(), 7);
            }
        }
    }
}
