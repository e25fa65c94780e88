use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A package with a program that has every bit, a library and a certificate.
fn package(folder: &Path, name: &str) -> Package {
    let files = folder.join(name);
    for (path, mode) in [
        (format!("usr/bin/{name}"), 0o6777),
        (format!("lib/x86_64-linux-gnu/{name}.so"), 0o666),
        (format!("usr/share/ca-certificates/mozilla/{name}.crt"), 0o644),
    ] {
        let file = files.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, format!("{name}\n\n")).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    }
    Package {
        name: name.to_owned(),
        version: "1".to_owned(),
        architecture: "all".to_owned(),
        digest: "0".repeat(64),
        control: format!("Package: {name}\nVersion: 1\n"),
        files,
    }
}

/// A script that answers as a CLI of this version. Another process writes it: a program cannot start while a child of another test
/// has it open for writing.
fn cli(file: &Path, version: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let script =
        format!("#!/bin/sh\necho warning\necho '{{\"terraform_version\": \"{version}\"}}'\necho more\n");
    let mut write = Command::new("sh");
    write.args(["-c", r#"printf '%s' "$1" > "$0" && chmod 755 "$0""#]);
    run(write.arg(file).arg(script)).unwrap();
}

fn layers(folder: &Path) -> Layers {
    let program = folder.join("sluice");
    cli(&program, "-");
    let clis = [true, false].map(|is_default| CliProgram {
        name: "tofu".to_owned(),
        version: "1.12.6".to_owned(),
        path: program.clone(),
        is_default,
    });
    let layers = [
        contents::base(&[package(folder, "libc6"), package(folder, "ca")]),
        contents::program(&program),
        contents::tools(&[package(folder, "busybox"), package(folder, "git")]),
        contents::cli(&clis),
    ];
    let [base, program, tools, cli] = ["base", "program", "tools", "cli"].map(|name| folder.join(name));
    let [of_base, of_program, of_tools, of_cli] = layers.map(Result::unwrap);
    Layers {
        base: of_base.write(&base).unwrap(),
        program: of_program.write(&program.with_extension("tar")).unwrap(),
        tools: of_tools.write(&tools).unwrap(),
        cli: of_cli.write(&cli).unwrap(),
    }
}

fn options(output: &Path) -> Options<'_> {
    Options {
        program: output,
        clis: &[],
        registry: "sluice.invalid",
        tag: "0.1.0",
        lock: None,
        cache: output,
        output,
        created: Timestamp::UNIX_EPOCH,
        controller_limit: None,
    }
}

/// The configuration of an archive, and mode, owner and link target of each entry of its layers.
fn read_back(archive: &Path) -> (Value, BTreeMap<String, (u32, u64, String)>) {
    let mut blobs = BTreeMap::new();
    for entry in tar::Archive::new(File::open(archive).unwrap()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut contents = Vec::new();
        entry.read_to_end(&mut contents).unwrap();
        blobs.insert(entry.path().unwrap().display().to_string(), contents);
    }
    let docker: Value = serde_json::from_slice(&blobs["manifest.json"]).unwrap();
    let configuration = serde_json::from_slice(&blobs[docker[0]["Config"].as_str().unwrap()]).unwrap();
    let mut entries = BTreeMap::new();
    for layer in docker[0]["Layers"].as_array().unwrap() {
        let blob = blobs[layer.as_str().unwrap()].as_slice();
        for entry in tar::Archive::new(blob).entries().unwrap() {
            let entry = entry.unwrap();
            let target = entry
                .link_name()
                .unwrap()
                .map(|target| target.display().to_string());
            let header = entry.header();
            let values = (
                header.mode().unwrap(),
                header.uid().unwrap(),
                target.unwrap_or_default(),
            );
            entries.insert(format!("/{}", entry.path().unwrap().display()), values);
        }
    }
    (configuration, entries)
}

#[test]
fn images_have_a_numeric_user_an_entry_point_and_no_dangerous_modes() {
    let folder = tempfile::tempdir().unwrap();
    let layers = layers(folder.path());
    for (kind, user) in ImageKind::ALL
        .into_iter()
        .zip(["65534:65534", "65534:65534", "65532:65532"])
    {
        let image = write_image(&options(folder.path()), kind, &layers, "0.1.0").unwrap();
        let (configuration, entries) = read_back(&image.archive);
        assert_eq!(configuration["config"]["User"], user);
        let entrypoint = configuration["config"]["Entrypoint"][0].as_str().unwrap();
        assert_eq!(entrypoint, format!("/usr/local/bin/{}", kind.name()));
        assert_eq!(entries[entrypoint].2, "sluice");
        for (path, (mode, owner, target)) in &entries {
            let is_link = !target.is_empty();
            let is_free = path == "/tmp/";
            assert!(is_link || is_free || mode & !0o755 == 0, "{path} {mode:o}");
            assert_eq!(*owner, if path == "/home/runner/" { 65532 } else { 0 }, "{path}");
        }
        assert_eq!(entries["/tmp/"].0, 0o1777);
        assert_eq!(entries["/bin"].2, "usr/bin");
        for path in [
            "/etc/passwd",
            "/etc/group",
            "/etc/ssl/certs/ca-certificates.crt",
            "/usr/lib/x86_64-linux-gnu/libc6.so",
        ] {
            assert!(entries.contains_key(path), "{path}");
        }
        let of_runs = [
            "/usr/bin/git",
            "/usr/bin/sh",
            "/usr/local/bin/tofu",
            "/opt/tools/tofu/1.12.6/tofu",
        ];
        for path in of_runs {
            assert_eq!(entries.contains_key(path), kind == ImageKind::TfRunner, "{path}");
        }
        if kind == ImageKind::TfRunner {
            let target = "../../../opt/tools/tofu/1.12.6/tofu";
            assert_eq!(entries["/usr/local/bin/tofu"].2, target);
        }
    }
}

#[test]
fn both_controllers_have_the_same_layers_and_other_entry_points() {
    let folder = tempfile::tempdir().unwrap();
    let layers = layers(folder.path());
    let configuration = |kind| {
        let image = write_image(&options(folder.path()), kind, &layers, "0.1.0").unwrap();
        read_back(&image.archive).0
    };
    let [source, terraform] = [ImageKind::SourceController, ImageKind::TfController].map(configuration);
    assert_eq!(source["rootfs"], terraform["rootfs"]);
    assert_ne!(source["config"]["Entrypoint"], terraform["config"]["Entrypoint"]);
}

#[test]
fn equal_files_in_two_folders_give_equal_archives() {
    let [one, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()].map(|folder| {
        let layers = layers(folder.path());
        let image = write_image(&options(folder.path()), ImageKind::TfRunner, &layers, "0.1.0").unwrap();
        fs::read(image.archive).unwrap()
    });
    assert!(one == other);
}

#[test]
fn a_controller_beyond_its_limit_is_an_error_and_the_image_of_runs_has_no_limit() {
    let folder = tempfile::tempdir().unwrap();
    let layers = layers(folder.path());
    let limited = Options {
        controller_limit: Some(1000),
        ..options(folder.path())
    };
    let error = write_image(&limited, ImageKind::TfController, &layers, "0.1.0").unwrap_err();
    assert!(
        matches!(error, PackError::TooLarge { limit: 1000, .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains("sluice.invalid/tf-controller:0.1.0"),
        "{error}"
    );
    write_image(&limited, ImageKind::TfRunner, &layers, "0.1.0").unwrap();
}

#[test]
fn certificates_are_one_text_without_empty_lines() {
    let folder = tempfile::tempdir().unwrap();
    let layer = contents::base(&[package(folder.path(), "b"), package(folder.path(), "a")]).unwrap();
    let written = layer.write(&folder.path().join("base")).unwrap();
    let mut archive = tar::Archive::new(File::open(written.path).unwrap());
    let mut entries = archive.entries().unwrap().map(Result::unwrap);
    let mut bundle = entries
        .find(|entry| entry.path().unwrap().ends_with("ca-certificates.crt"))
        .unwrap();
    let mut text = String::new();
    bundle.read_to_string(&mut text).unwrap();
    assert_eq!(text, "b\na\n");
}

#[test]
fn a_command_that_busybox_lacks_is_named() {
    assert_eq!(contents::missing_commands("[\n[[\nash\n").first(), Some(&"awk"));
}

#[test]
fn a_cli_is_known_by_its_name_and_reports_its_version() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tofu");
    cli(&file, "1.12.6");
    let program = cli_program(&file, true).unwrap();
    assert_eq!(
        (program.name.as_str(), program.version.as_str()),
        ("tofu", "1.12.6")
    );
    let other = folder.path().join("tofu-1.12.6");
    fs::rename(&file, &other).unwrap();
    for path in [&file, &other] {
        let error = cli_program(path, true).unwrap_err();
        assert!(matches!(error, PackError::Cli { .. }), "{error}");
    }
}

#[test]
fn installed_versions_must_be_the_ones_that_their_directories_name() {
    let folder = tempfile::tempdir().unwrap();
    assert!(installed_clis(folder.path()).is_err());
    cli(&folder.path().join("tofu/1.12.6/tofu"), "1.12.6");
    cli(&folder.path().join("terraform/1.9.8/terraform"), "1.9.8");
    let found = installed_clis(folder.path()).unwrap();
    let names: Vec<_> = found
        .iter()
        .map(|cli| (cli.name.as_str(), cli.version.as_str()))
        .collect();
    assert_eq!(names, [("terraform", "1.9.8"), ("tofu", "1.12.6")]);
    cli(&folder.path().join("tofu/1.13.0/tofu"), "1.12.6");
    let error = installed_clis(folder.path()).unwrap_err().to_string();
    assert!(error.contains("it reports version 1.12.6, not 1.13.0"), "{error}");
}

#[test]
fn the_containerfile_starts_containers_as_the_archives_do() {
    let text = include_str!("../../Containerfile");
    for kind in ImageKind::ALL {
        let config = kind.config("0.1.0");
        let stage = text.split("\nFROM ").find(|stage| {
            let head = stage.lines().next().unwrap_or_default();
            head.ends_with(&format!(" AS {}", kind.name()))
        });
        let lines: Vec<&str> = stage.unwrap().lines().collect();
        assert!(
            lines.contains(&format!("USER {0}:{0}", config.user).as_str()),
            "{lines:?}"
        );
        assert!(
            lines.contains(&format!("ENTRYPOINT [\"{}\"]", config.entrypoint).as_str()),
            "{lines:?}"
        );
        let variables: Vec<_> = config
            .environment
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert!(
            lines.contains(&format!("ENV {}", variables.join(" ")).as_str()),
            "{lines:?}"
        );
        let tree = format!(
            "COPY --from=build /images/trees/{}/ /",
            if kind == ImageKind::TfRunner {
                "tf-runner"
            } else {
                "controllers"
            }
        );
        assert!(lines.contains(&tree.as_str()), "{lines:?}");
    }
}

#[test]
fn the_containerfile_takes_the_locked_packages_and_has_the_sboms() {
    let text = include_str!("../../Containerfile");
    let snapshot = text.lines().find_map(|line| line.strip_prefix("ARG SNAPSHOT="));
    let (date, time) = snapshot.unwrap().split_once('T').unwrap();
    assert_eq!((date.len(), time.len()), (8, 7), "as 20261124T000000Z");
    // Before the packages are downloaded.
    let sources = text.find("/etc/apt/sources.list.d/debian.sources").unwrap();
    assert!(sources < text.find("RUN make images").unwrap());
    assert!(text.contains("FROM scratch AS sbom\nCOPY --from=build /src/target/images/*.spdx.json /\n"));
}
