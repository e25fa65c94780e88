use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::*;

fn install(tools: &Path, name: &str, version: &str) {
    let folder = tools.join(name).join(version);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name), "").unwrap();
    std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn chosen(tools: &Path, name: &str, constraint: &str) -> Result<String, String> {
    let constraint = constraint
        .parse::<VersionConstraint>()
        .map_err(|error| error.to_string())?;
    let installed = InstalledVersions::read(tools, name).map_err(|error| error.to_string())?;
    let version = installed
        .newest_matching(&constraint)
        .map_err(|error| error.to_string())?;
    let program = installed
        .find(&version.to_string())
        .map_err(|error| error.to_string())?;
    assert_eq!(
        program.path,
        tools.join(name).join(version.to_string()).join(name)
    );
    assert_eq!(program.name, name);
    Ok(version.to_string())
}

#[test]
fn the_newest_matching_installed_version_is_selected() {
    let dir = tempfile::tempdir().unwrap();
    let tools = dir.path();
    for version in ["1.8.3", "1.9.0", "1.10.1", "1.11.0-rc1"] {
        install(tools, "tofu", version);
    }
    install(tools, "terraform", "1.5.7");
    assert_eq!(chosen(tools, "tofu", ""), Ok("1.10.1".to_owned()));
    assert_eq!(chosen(tools, "tofu", "1.8.3"), Ok("1.8.3".to_owned()));
    assert_eq!(chosen(tools, "tofu", "< 1.10"), Ok("1.9.0".to_owned()));
    assert_eq!(chosen(tools, "tofu", "1.11.0-rc1"), Ok("1.11.0-rc1".to_owned()));
    assert_eq!(chosen(tools, "terraform", ""), Ok("1.5.7".to_owned()));
}

#[test]
fn an_error_about_a_missing_version_lists_installed_versions() {
    let dir = tempfile::tempdir().unwrap();
    let tools = dir.path();
    let directory = tools.join("tofu").display().to_string();
    assert_eq!(
        chosen(tools, "tofu", "~> 1.8"),
        Err(format!(
            "tofu ~> 1.8 is not installed: {directory} contains no version of it; a version is installed as \
             {directory}/<version>/tofu"
        ))
    );
    install(tools, "tofu", "1.9.0");
    install(tools, "tofu", "1.10.0");
    std::fs::create_dir_all(tools.join("tofu/1.8.3")).unwrap();
    assert_eq!(
        chosen(tools, "tofu", "1.8.3"),
        Err(format!(
            "tofu 1.8.3 is not installed: {directory} has 1.9.0, 1.10.0, and 1.8.3 without an executable file tofu in it; \
             a version is installed as {directory}/<version>/tofu"
        ))
    );
    let terraform = chosen(tools, "terraform", "").unwrap_err();
    assert!(
        terraform.starts_with("terraform is not installed: "),
        "{terraform}"
    );
    for minor in 0..100 {
        install(tools, "tofu", &format!("0.{minor}.0"));
    }
    let many = chosen(tools, "tofu", "3").unwrap_err();
    assert!(
        many.contains("82 older ones, 0.82.0, ") && many.contains("1.10.0;"),
        "{many}"
    );
}

#[test]
fn directories_without_a_version_name_are_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let tools = dir.path();
    for folder in ["latest", "v1.9.0", "1.9", "01.9.0", ".1.9.0.part", "1.9.0 "] {
        install(tools, "tofu", folder);
    }
    std::os::unix::fs::symlink("/nowhere", tools.join("tofu/1.7.0")).unwrap();
    assert!(chosen(tools, "tofu", "").is_err());
    // A link to a directory is a directory.
    install(&tools.join("store"), "tofu", "abc");
    std::os::unix::fs::symlink(tools.join("store/tofu/abc"), tools.join("tofu/1.8.0")).unwrap();
    assert_eq!(chosen(tools, "tofu", ""), Ok("1.8.0".to_owned()));
}

#[test]
fn a_directory_that_cannot_be_read_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("gone");
    let text = chosen(&missing, "tofu", "").unwrap_err();
    assert!(
        text.contains(&format!(
            "cannot read the directory of installed programs {}",
            missing.display()
        )),
        "{text}"
    );
    let file = dir.path().join("tofu");
    std::fs::write(&file, "").unwrap();
    let text = chosen(dir.path(), "tofu", "").unwrap_err();
    assert!(text.contains(&format!("programs {}: ", file.display())), "{text}");
}

#[test]
fn an_oversized_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("tofu");
    for index in 0..=ENTRY_LIMIT {
        std::fs::create_dir_all(directory.join(format!("x{index}"))).unwrap();
    }
    let text = chosen(dir.path(), "tofu", "").unwrap_err();
    assert!(
        text.starts_with(&format!("{} has more than 1000 entries", directory.display())),
        "{text}"
    );
}

#[test]
fn only_version_names_select_programs() {
    let dir = tempfile::tempdir().unwrap();
    install(dir.path(), "tofu", "1.8.3");
    install(dir.path(), "tofu", "other");
    let installed = InstalledVersions::read(dir.path(), "tofu").unwrap();
    assert!(installed.find("1.8.3").is_ok());
    for text in ["other", "", ".", "../tofu/1.8.3", "v1.8.3"] {
        assert!(installed.find(text).is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_folder_name_is_a_version_or_none(name in "(\\PC{0,70}|[0-9.v+a-z-]{0,70})") {
        if let Some(version) = parse_directory_name(&name) {
            prop_assert_eq!(version.to_string(), name.clone());
            prop_assert!(!name.contains('/') && !name.starts_with('.'));
        }
    }
}
