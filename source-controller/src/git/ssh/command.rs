//! The command that a server is asked to run, as Git's own client words it.

/// The command for a repository's path as it stands in an address: `/srv/app.git`, or `/~ada/app.git` for one below a
/// home directory. A shell may read it, so the path is quoted as Git quotes it.
#[must_use]
pub fn upload_pack(path: &str) -> String {
    let path = if path.starts_with("/~") { &path[1..] } else { path };
    let mut command = String::with_capacity(path.len() + 20);
    command.push_str("git-upload-pack '");
    for letter in path.chars() {
        // Git quotes `!` as well, for the sake of csh.
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
    fn paths_are_worded_as_git_words_them() {
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
        fn a_shell_reads_one_word_whatever_the_path(path in "/[^\u{0}~][^\u{0}]{0,40}") {
            let script = format!("{} ", upload_pack(&path)).replacen("git-upload-pack", "printf %s", 1);
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            prop_assert_eq!(String::from_utf8_lossy(&output.stdout), path);
        }
    }
}
