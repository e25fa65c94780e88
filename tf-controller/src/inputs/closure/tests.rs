//! Closures of small artifacts: which changes count.

mod computed_paths;

use proptest::prelude::*;

use super::*;

fn artifact(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

fn closure(files: &[(&str, &str)], module: &str) -> Closure {
    let folder = artifact(files);
    read(&Tree::read(folder.path()).unwrap(), module, &[]).unwrap()
}

/// Returns whether a change of `path` counts for the stack at `a`.
fn counts(files: &[(&str, &str)], path: &str) -> bool {
    let mut changed = files.to_vec();
    changed.push((path, "changed"));
    closure(files, "a").digest != closure(&changed, "a").digest
}

#[test]
fn the_closure_is_the_module_directory_and_its_local_modules() {
    let files = [
        (
            "a/main.tf",
            "module \"x\" {\n  source = \"../m\"\n}\nmodule \"r\" {\n  source = \"hashicorp/consul/aws\"\n}\n",
        ),
        ("m/main.tf", "module \"y\" {\n  source = \"./deep\"\n}\n"),
        (
            "m/deep/main.tf",
            "locals { a = file(\"${path.module}/x.txt\") }\n",
        ),
        ("b/main.tf", ""),
    ];
    assert_eq!(closure(&files, "./a").wide, None);
    assert!(counts(&files, "a/files/any.yaml"));
    assert!(counts(&files, "m/new.tf"));
    assert!(counts(&files, "m/deep/x.txt"));
    assert!(!counts(&files, "b/main.tf"));
    assert!(!counts(&files, "README.md"));
}

#[test]
fn reads_outside_the_module_widen_the_closure_with_a_reason() {
    let wide = [
        "locals { a = file(var.name) }",
        "locals { a = file(\"../../x\") }",
        "locals { a = file(\"/etc/passwd\") }",
        "locals { a = fileset(path.module, \"../*\") }",
        "locals { a = file(\"${path.module}x\") }",
        "locals { a = core::file(var.name) }",
        "locals { a = core::dirname(path.module) }",
        "locals { a = \"${var.x}/${path.module}/y\" }",
        "locals { a = join(\"/\", [path.module, \"x\"]) }",
        "module \"x\" {\n  source = var.source\n}",
        "module \"x\" {\n  source = \"../missing\"\n}",
        "module \"x\" {\n  source = \"../../../up\"\n}",
        "module \"x\" {\n  source = \"/b\"\n}",
        "module \"x\" {\n  source = \"git::file:///b\"\n}",
        "resource \"null_resource\" \"r\" {\n  provisioner \"local-exec\" {\n    command = \"cd ../b && ./run\"\n  }\n}",
        "locals { a = ",
        "locals { a = templatestring(var.t, {}) }",
        "data \"local_file\" \"x\" {\n  filename = \"${dirname(abspath(path.root))}/b/x\"\n}",
        "data \"local_file\" \"x\" {\n  filename = \"${dirname(\"${path.module}\")}/b/x\"\n}",
        "locals { here = \"${path.cwd}/x\" }\ndata \"local_file\" \"x\" {\n  filename = \"${dirname(dirname(local.here))}/b/x\"\n}",
        "data \"local_file\" \"x\" {\n  filename = replace(\"${path.cwd}/x\", \"/a/\", \"/b/\")\n}",
        "data \"local_file\" \"x\" {\n  filename = replace(abspath(\"x\"), \"/a/\", \"/b/\")\n}",
        "data \"local_file\" \"x\" {\n  filename = \"${path.module}-files/a\"\n}",
        "data \"local_file\" \"x\" {\n  filename = \"${path.cwd}-x\"\n}",
        "data \"local_file\" \"x\" {\n  filename = join(\"\", [\"${path.module}\", \"-x\"])\n}",
        "data \"local_file\" \"x\" {\n  filename = \"${abspath(path.module)}-x\"\n}",
        "locals { here = abspath(path.module) }\ndata \"local_file\" \"x\" {\n  filename = replace(local.here, \"/a\", \"/b\")\n}",
        "locals { here = \"${path.cwd}/x\" }\ndata \"local_file\" \"x\" {\n  filename = replace(local.here, \"/a/\", \"/b/\")\n}",
        "resource \"null_resource\" \"r\" {\n  provisioner \"local-exec\" {\n    command = \"cd .. && make\"\n  }\n}",
        "resource \"null_resource\" \"r\" {\n  provisioner \"local-exec\" {\n    command = \"make -C ..\"\n  }\n}",
    ];
    let reason = |text: &&str| {
        closure(&[("a/main.tf", text)], "a")
            .wide
            .unwrap_or_else(|| format!("NOT WIDE: {text}"))
    };
    let table = wide.iter().map(reason).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(table, @r#"
    a/main.tf: file() is called with a path that is not static
    a/main.tf: the path "../../x" leads out of the artifact
    a/main.tf: file() is called with a path that is not static
    a/main.tf: the text "../*" leaves the module directory
    a/main.tf: file() is called with a path that is not static
    a/main.tf: file() is called with a path that is not static
    a/main.tf: dirname() may leave the module directory
    a/main.tf: path.* is used in a way that cannot be resolved statically
    a/main.tf: path.* is used in a way that cannot be resolved statically
    a/main.tf: a module source is computed
    a/main.tf: module source "../missing" is not a directory of the artifact
    a/main.tf: module source "../../../up" is not a directory of the artifact
    a/main.tf: the module source "/b" is a path outside of the artifact
    a/main.tf: the module source "git::file:///b" is a path outside of the artifact
    a/main.tf: the text "cd ../b && ./run" leaves the module directory
    a/main.tf: does not parse
    a/main.tf: templatestring() may read any file
    a/main.tf: dirname() may leave the module directory
    a/main.tf: dirname() may leave the module directory
    a/main.tf: dirname() may leave the module directory
    a/main.tf: path.* is used in a way that cannot be resolved statically
    a/main.tf: the result of abspath() is split
    a/main.tf: path.* is used in a way that cannot be resolved statically
    a/main.tf: path.* is used in a way that cannot be resolved statically
    a/main.tf: path.* is used in a way that cannot be resolved statically
    a/main.tf: the result of abspath() may be concatenated with any text
    a/main.tf: the result of abspath() may be concatenated with any text
    a/main.tf: replace() may split the path of a module
    a/main.tf: the text "cd .. && make" leaves the module directory
    a/main.tf: the text "make -C .." leaves the module directory
    "#);
}

#[test]
fn files_named_in_expressions_are_inputs_in_any_directory() {
    let text = r#"
        locals {
          text = file("../b/one.txt")
          there = fileexists("${path.module}/../b/two.txt")
          set = fileset("${path.root}/../c", "*.yaml")
          tpl = templatefile("../d/x.tpl", { a = 1 })
        }
    "#;
    let files = [("a/main.tf", text), ("d/x.tpl", "hello ${a}"), ("b/one.txt", "1")];
    assert_eq!(closure(&files, "a").wide, None);
    for read in ["b/one.txt", "b/two.txt", "c/new.yaml", "c/deep/x"] {
        assert!(counts(&files, read), "{read}");
    }
    assert!(!counts(&files, "b/three.txt") && !counts(&files, "d/y.tpl"));
    // A template that reads files may read any file.
    let reading = [files[0], ("d/x.tpl", "${file(a)}")];
    assert!(closure(&reading, "a").wide.is_some());
    let namespaced = text.replace("templatefile", "core::templatefile");
    let reading = [("a/main.tf", namespaced.as_str()), reading[1]];
    assert!(closure(&reading, "a").wide.is_some(), "the same function");
    let tree = artifact(&[("a/main.tf", ""), ("env/x.tfvars", "a = 1")]);
    let tree = Tree::read(tree.path()).unwrap();
    let with = read(&tree, "a", &["env/x.tfvars".to_owned()]).unwrap();
    assert_ne!(
        with.digest,
        read(&tree, "a", &[]).unwrap().digest,
        "a variable file counts"
    );
}

#[test]
fn variable_files_are_inputs_if_paths_contain_variables() {
    let module = (
        "a/main.tf",
        "variable \"x\" {}\nlocals { a = file(\"${path.module}/${var.x}\") }",
    );
    let with = |name: &str, text: &str| closure(&[module, (name, text)], "a");
    assert!(with("a/x.txt", "..").from_variables);
    for name in [
        "terraform.tfvars",
        "terraform.tfvars.json",
        "b.auto.tfvars",
        "b.auto.tfvars.json",
    ] {
        let name = format!("a/{name}");
        assert_eq!(with(&name, "x = \"y.json\"").wide, None, "{name}");
        for text in ["x = \"../b\"", "x = \"\\u002e\\u002e/b\""] {
            assert!(with(&name, text).wide.is_some(), "{name} {text}");
        }
    }
    assert_eq!(
        with("a/deep/terraform.tfvars", "x = \"../b\"").wide,
        None,
        "not loaded automatically"
    );
    let tree = artifact(&[module, ("env/x.tfvars", "x = \"../b\"")]);
    let tree = Tree::read(tree.path()).unwrap();
    assert!(
        read(&tree, "a", &["env/x.tfvars".to_owned()])
            .unwrap()
            .wide
            .is_some()
    );
    let plain = artifact(&[("a/main.tf", ""), ("a/terraform.tfvars", "x = \"../b\"")]);
    assert_eq!(
        read(&Tree::read(plain.path()).unwrap(), "a", &[]).unwrap().wide,
        None
    );
}

#[test]
fn modules_that_json_calls_are_read_like_any_other() {
    let call = r#"{ "module": { "x": { "source": "./m" } } }"#;
    let plain = [("a/main.tf.json", call), ("a/m/main.tf", "locals { a = 1 }")];
    assert_eq!(closure(&plain, "a").wide, None);
    let reading = [
        ("a/main.tf.json", call),
        ("a/m/main.tf", "locals { a = file(\"${path.module}/../../b/x\") }"),
        ("b/x", "1"),
    ];
    assert_eq!(closure(&reading, "a").wide, None);
    assert!(counts(&reading, "b/x") && !counts(&reading, "b/y"));
    let wide = |text: &str| closure(&[("a/main.tf.json", text)], "a").wide.is_some();
    assert!(wide(r#"{ "module": { "x": { "source": "./missing" } } }"#));
    assert!(wide(r#"{ "module": [{ "x": { "source": "file:///b" } }] }"#));
    assert!(wide(r#"{ "locals": { "a": "\u002e\u002e/b/x" } }"#));
    assert!(wide(r#"{ "locals": { "a": "${file (\"/b/x\")}" } }"#));
    assert!(wide(r#"{ "locals": { "a": "${dirname (\"x\")}" } }"#));
    // The CLI reads both members.
    assert!(wide(
        r#"{ "module": { "x": { "source": "../b" } }, "module": {} }"#
    ));
}

#[test]
fn a_path_stays_in_the_artifact() {
    let dir = artifact(&[("main.tf", ""), ("a/main.tf", ""), ("b/c.tf", "# c")]);
    let tree = Tree::read(dir.path()).unwrap();
    let closure = |path| read(&tree, path, &[]).unwrap();
    let plain = closure("a");
    assert_eq!(plain.reads, ["a"]);
    for path in ["./a", "/a/", "../a", "b/../a", "none/../a", "../../../b/../a/."] {
        assert_eq!(closure(path), plain, "{path}");
    }
    assert_ne!(closure("a/../b").digest, plain.digest);
    assert_eq!(closure(".."), closure(""));
    for path in ["nope", "../nope", "a/main.tf"] {
        assert!(
            matches!(read(&tree, path, &[]), Err(ClosureError::NoModule(_))),
            "{path}"
        );
    }
}

#[test]
fn a_reason_quotes_a_bounded_excerpt() {
    let long = "x/".repeat(100_000);
    for text in [
        format!("module \"m\" {{\n  source = \"./{long}\"\n}}"),
        format!("locals {{ a = file(\"../../{long}\") }}"),
        format!("locals {{ a = file(\"${{path.module}}/../../{long}\") }}"),
        format!("locals {{ a = \"../{long}\" }}"),
        format!("module \"m\" {{\n  source = \"/{long}\"\n}}"),
    ] {
        let why = closure(&[("a/main.tf", &text)], "a").wide.unwrap();
        assert!(why.len() < 200, "{} bytes: {}", why.len(), &why[..200]);
    }
}

#[test]
fn an_object_with_very_many_keys_is_not_compared_with_itself() {
    let keys = |count: u32| {
        (0..count)
            .map(|key| format!("k{key}=1"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let wide = |count| {
        closure(
            &[(
                "a/main.tf",
                &format!("locals {{ x = {{\n{}\n}} }}\n", keys(count)),
            )],
            "a",
        )
        .wide
    };
    assert_eq!(wide(1000), None);
    assert!(wide(100_000).unwrap().contains("too many keys"));
}

#[test]
fn deep_nesting_is_survived() {
    for text in [
        "(".repeat(100_000),
        "!".repeat(100_000),
        "a ? b : ".repeat(50_000),
        "[".repeat(190),
    ] {
        let text = format!("locals {{ a = {text} }}");
        assert!(closure(&[("a/main.tf", &text)], "a").wide.is_some());
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), json: bool) {
        let _ = scan(&bytes, json);
    }

    #[test]
    fn no_text_panics(text in "[a-z{}()\\[\\]\"$%!?:=<~.,/\n -]{0,120}") {
        let _ = scan(text.as_bytes(), false);
    }
}
