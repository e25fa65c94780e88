//! Paths that a module computes: when they may lead out of the directory of the stack.

use super::*;

#[test]
fn plain_paths_do_not_widen() {
    for text in [
        "locals { a = file(\"x.txt\") }",
        "locals { a = templatefile(\"${path.module}/x.tpl\", { b = 1 }) }",
        "locals { a = fileset(path.module, \"*.yaml\") }",
        "locals { a = \"${path.module}/scripts/run.sh\" }",
        "locals { a = \"${abspath(path.module)}/scripts/run.sh\" }",
        "locals { a = jsondecode(file(\"${path.module}/x.json\")) }",
        "locals { a = templatefile(\"${path.module}/x.tpl\", { b = \"${path.module}/y\" }) }",
        "locals { a = \"${local.service}-${var.i}\" }",
        "locals { a = \"${abspath(\"${path.module}/x\")}-y\" }",
        "locals { a = \"1..2, and so on...\" }",
        "output \"o\" {\n  value = <<-EOT\n    hello ${var.x}\n  EOT\n}",
    ] {
        assert_eq!(closure(&[("a/main.tf", text)], "a").wide, None, "{text}");
    }
}

#[test]
fn a_path_is_followed_through_names_to_its_parsing() {
    let wide = |files: &[(&str, &str)]| closure(files, "a").wide;
    let file = |text: &str| wide(&[("a/main.tf", text)]);
    let cut = "locals { y = replace(local.x, \"a\", \"b\") }";
    let path = "\"${path.module}/x\"";
    // By another name, of another file, through a module and back.
    assert!(
        file(&format!(
            "locals {{ w = {path} }}\nlocals {{ x = [local.w] }}\n{cut}"
        ))
        .is_some()
    );
    assert!(
        wide(&[
            ("a/main.tf", cut),
            ("a/x.tf", &format!("locals {{ x = {path} }}"))
        ])
        .is_some()
    );
    let call = format!("module \"m\" {{\n  source = \"./m\"\n  dir = {path}\n}}");
    let inner = "variable \"dir\" {}\nlocals { x = split(\"/\", var.dir) }";
    assert_eq!(
        wide(&[("a/main.tf", &call), ("a/m/main.tf", inner)]).unwrap(),
        "a/m/main.tf: split() may split the path of a module"
    );
    let output = format!("output \"o\" {{\n  value = {path}\n}}");
    let outer = "module \"m\" {\n  source = \"./m\"\n}\nlocals { x = substr(module.m.o, 0, 3) }";
    assert!(wide(&[("a/main.tf", outer), ("a/m/main.tf", &output)]).is_some());
    let each = format!(
        "resource \"x\" \"y\" {{\n  for_each = {{ a = [{path}] }}\n  z = trimsuffix(each.value[0], \"x\")\n}}"
    );
    assert!(file(&each).is_some());
    let block = format!(
        "resource \"x\" \"y\" {{\n  dynamic \"b\" {{\n    for_each = [{path}]\n    content {{\n      c = trim(b.value, \"x\")\n    }}\n  }}\n}}"
    );
    assert!(file(&block).is_some());
    let json = [
        (
            "a/main.tf",
            "locals { w = \"${path.module}/x\" }\nlocals { y = replace(local.x, \"a\", \"b\") }",
        ),
        ("a/x.tf.json", "{ \"locals\": { \"x\": \"${local.w}\" } }"),
    ];
    assert!(wide(&json).is_some(), "names are not followed through JSON");
    // No path is taken apart: another attribute, another name, a value only for a provisioner.
    for text in [
        format!(
            "resource \"x\" \"y\" {{\n  file = {path}\n  name = replace(var.name, \"_\", \"-\")\n}}\n{cut}"
        ),
        format!("resource \"x\" \"y\" {{\n  file = {path}\n}}\nlocals {{ x = x.y.arn }}\n{cut}"),
        format!(
            "resource \"x\" \"y\" {{\n  provisioner \"local-exec\" {{\n    command = {path}\n  }}\n}}\nlocals {{ x = x.y }}\n{cut}"
        ),
        "locals { z = { for f in fileset(\"x\", \"*\") : replace(f, \"a\", \"\") => \"${path.module}/x/${f}\" } }".to_owned(),
    ] {
        assert_eq!(file(&text), None, "{text}");
    }
}

#[test]
fn a_computed_fileset_pattern_is_narrow_only_if_no_value_leads_up() {
    let module = (
        "a/main.tf",
        "variable \"p\" {}\nlocals { a = fileset(\"x\", var.p) }",
    );
    assert_eq!(closure(&[module], "a").wide, None);
    assert!(closure(&[module], "a").from_variables);
    let up = ("a/terraform.tfvars", "p = \"../../b/*\"");
    assert!(closure(&[module, up], "a").wide.is_some());
}

#[test]
fn computed_paths_that_cannot_lead_up_count_with_their_directory() {
    let each = |collection: &str, path: &str| {
        format!("resource \"x\" \"y\" {{\n  for_each = {collection}\n  text = file(\"{path}\")\n}}")
    };
    let texts = [
        each(
            "fileset(\"${path.module}/../b\", \"*.json\")",
            "${path.module}/../b/${each.value}",
        ),
        each("toset([\"one\", \"two\"])", "../b/${each.key}.json"),
        each(
            "{ one = { file = \"x\" } }",
            "${path.root}/../b/${each.value.file}-${each.key}.json",
        ),
        each(
            "{ for f in fileset(\"../b\", \"*\") : trimsuffix(f, \".json\") => f }",
            "../b/${each.value}",
        ),
        "locals { a = [for f in fileset(\"../b\", \"*\") : yamldecode(file(\"../b/${f}\"))] }".into(),
        "locals { a = templatefile(\"../b/${terraform.workspace}.json\", {}) }".into(),
        "locals { a = file(\"${path.module}/../b/${lower(var.name)}.json\") }".into(),
        "locals { a = file(\"../b/${var.x ? \"x\" : \"y\"}\") }".into(),
    ];
    for text in &texts {
        let files = [("a/main.tf", text.as_str()), ("b/one.json", "1")];
        assert_eq!(closure(&files, "a").wide, None, "{text}");
        assert!(
            counts(&files, "b/new.json") && counts(&files, "b/deep/x"),
            "{text}"
        );
        assert!(!counts(&files, "c/x"), "{text}");
    }
    let inside = "locals { a = [for f in fileset(path.module, \"*\") : file(\"${path.module}/${f}\")] }";
    assert!(!counts(&[("a/main.tf", inside)], "c/x"));
}

#[test]
fn computed_paths_that_may_lead_up_widen() {
    let wide = |text: &str| {
        closure(&[("a/main.tf", text), ("b/x", "${file(\"y\")}")], "a")
            .wide
            .is_some()
    };
    let of = |path: &str| wide(&format!("locals {{ a = file(\"{path}\") }}"));
    for path in [
        "${var.x}/y",
        "${path.module}${var.x}/y",
        "${path.module}/..${var.x}/y",
        "${path.module}/.${var.x}/y",
        "x/${var.x}${var.y}",
        "x/${var.x}.${var.y}",
        "x/${var.x}./y",
        "x/${var.x}/../../../y",
        "x/${local.x}",
        "x/${data.x.y.z}",
        "x/${jsondecode(file(\"x.json\"))}",
        "x/${replace(var.x, \"a\", \"\")}",
        "x/${join(\"\", var.x)}",
        "x/${each.key}",
        "x/${provider::a::b(\"c\")}",
        "x/${trimsuffix(\"../..\", \"x\")}",
        "x/${fileexists(var.x) ? \"x\" : \"y\"}",
        "%{ if true }x%{ endif }/${var.x}",
        "/etc/${var.x}",
        "~/${var.x}",
    ] {
        assert!(of(path), "{path}");
    }
    assert!(wide(
        "locals { a = [for f in fileset(\"x\", \"../*\") : file(\"x/${f}\")] }"
    ));
    assert!(wide("locals { a = [for f in local.x : file(\"x/${f}\")] }"));
    // The inner of two equal names hides the outer.
    assert!(wide(
        "locals { a = [for f in fileset(\"x\", \"*\") : [for f in local.x : file(\"x/${f}\")]] }"
    ));
    assert!(
        wide("locals { a = templatefile(\"../b/${var.x}\", {}) }"),
        "one of them reads files"
    );
    let called = [
        (
            "a/main.tf",
            "module \"m\" {\n  source = \"../m\"\n  x = local.x\n}",
        ),
        ("m/main.tf", "locals { a = file(\"${path.module}/${var.x}\") }"),
    ];
    assert!(
        closure(&called, "a").wide.is_some(),
        "the values of a module's variables are unknown"
    );
}
