//! The scenario of the recording: the commands, their files, and the size of the terminal.

use sha2::{Digest as _, Sha256};

/// Columns of the terminal.
pub(crate) const COLUMNS: u16 = 100;
/// Rows of the terminal.
pub(crate) const ROWS: u16 = 28;
/// The end of each question of the program.
pub(crate) const QUESTION: &str = "[y/N] ";
/// The address that the recording shows in place of that of the Git server on loopback.
pub(crate) const ADDRESS: &str = "https://git.example.com/shop.git";
/// The directory that the recording shows in place of the temporary one.
pub(crate) const HOME: &str = "/home/ada";

/// The files of the first commit. The module needs no provider; an instance takes a moment, so that there is an apply to follow.
pub(crate) const FILES: [(&str, &str); 1] = [("stack/main.tf", MODULE)];

const MODULE: &str = r#"locals {
  servers = ["web-0", "web-1"]
}

resource "terraform_data" "server" {
  for_each = toset(local.servers)

  provisioner "local-exec" {
    command = "sleep 2"
  }
}

resource "terraform_data" "dns" {
  input = local.servers
}
"#;

/// The condition for the next command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Before {
    /// The command before has ended.
    Nothing,
    /// The newest commit is applied.
    Applied,
    /// The run of the apply exists.
    ApplyStarted,
}

/// One command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// A comment above the command; empty: none.
    pub(crate) remark: &'static str,
    /// The command line.
    pub(crate) command: &'static str,
    /// What is typed at the question of the command; empty: it does not ask.
    pub(crate) answer: &'static str,
    /// The expected exit code.
    pub(crate) code: i32,
    /// The condition under which it is typed.
    pub(crate) before: Before,
}

const fn step(command: &'static str) -> Step {
    Step {
        remark: "",
        command,
        answer: "",
        code: 0,
        before: Before::Nothing,
    }
}

/// The commands, in their order. Exit code 3: a plan waits for an approval.
pub(crate) const STEPS: [Step; 11] = [
    Step {
        remark: "A Git repository, and a stack of its module",
        ..step("sluice create source git shop --url https://git.example.com/shop.git --branch main")
    },
    Step {
        code: 3,
        ..step("sluice create terraform app --source GitRepository/shop --path ./stack")
    },
    Step {
        answer: "y",
        ..step("sluice approve app --wait")
    },
    step("sluice get"),
    Step {
        remark: "A push that replaces a server",
        ..step("sed -i s/web-1/web-2/ stack/main.tf && git commit -qam 'Replace web-1' && git push -q")
    },
    Step {
        code: 3,
        ..step("sluice reconcile app --with-source --wait")
    },
    step("sluice plan show app"),
    Step {
        answer: "y",
        ..step("sluice approve app")
    },
    Step {
        before: Before::ApplyStarted,
        ..step("sluice logs app -f")
    },
    Step {
        before: Before::Applied,
        remark: "What is there now, and what happened",
        ..step("sluice tree")
    },
    step("sluice history app"),
];

/// Returns the digest of the scenario. The image contains it, so that a test detects an image of an older scenario.
pub(crate) fn digest() -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update(text.as_bytes());
        hash.update(b"\0");
    };
    add(&format!("{COLUMNS}x{ROWS}"));
    for (path, content) in FILES {
        add(path);
        add(content);
    }
    for step in STEPS {
        add(step.remark);
        add(step.command);
        add(step.answer);
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const IMAGE: &str = "docs/images/recording.svg";

    fn file(path: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[test]
    fn every_command_fits_the_terminal() {
        for step in STEPS {
            assert!(step.command.len() + 2 < usize::from(COLUMNS), "{}", step.command);
        }
        assert!(STEPS[0].command.contains(ADDRESS));
    }

    #[test]
    fn the_readme_shows_an_image_of_this_scenario() {
        assert!(file("README.md").contains(&format!("]({IMAGE})")));
        let image = file(IMAGE);
        assert!(
            image.contains(&digest()),
            "{IMAGE} is of another scenario: run `make recording`, and commit it"
        );
        for text in [
            "<script",
            "<image",
            "href=\"http",
            "@import",
            "url(",
            "/tmp/",
            "127.0.0.1",
        ] {
            assert!(!image.contains(text), "{IMAGE} has {text}");
        }
    }
}
