//! The command line for the server, identical to that of Git's own client.

/// Returns the command for a path of an address: `/srv/app.git`, or `/~ada/app.git` below a home directory. A shell may
/// parse it, so the path is quoted as Git quotes it.
#[must_use]
pub fn upload_pack(path: &str) -> String {
    let path = if path.starts_with("/~") { &path[1..] } else { path };
    let mut command = String::with_capacity(path.len() + 20);
    command.push_str("git-upload-pack '");
    for letter in path.chars() {
        // Git also quotes `!`, for csh.
        if matches!(letter, '\'' | '!') {
            command.push_str("'\\");
            command.push(letter);
            command.push('\'');
        } else {
            command.push(letter);
        }
    }
    command.push('\'');
    command
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_quoted_like_git() {
        for (path, command) in [
            ("/srv/app.git", "git-upload-pack '/srv/app.git'"),
            ("/~ada/app.git", "git-upload-pack '~ada/app.git'"),
            ("/~/app.git", "git-upload-pack '~/app.git'"),
            ("/it's!/x y", r"git-upload-pack '/it'\''s'\!'/x y'"),
            ("/", "git-upload-pack '/'"),
        ] {
            assert_eq!(upload_pack(path), command);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_shell_parses_any_path_as_one_word(path in "/[^\u{0}~][^\u{0}]{0,40}") {
            let script = format!("{} ", upload_pack(&path)).replacen("git-upload-pack", "printf %s", 1);
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            prop_assert_eq!(String::from_utf8_lossy(&output.stdout), path);
        }
    }
}
