//! The engine: syntax, function names and limits. [`super::vectors`] tests the functions.

use serde_json::json;

use super::*;

fn text(template: &str) -> Result<String, TemplateError> {
    let data = json!({"name": "web", "count": 3.0, "large": 1_500_000_000.0, "items": ["a", "b"], "on": true,
        "map": {"k": "v"}, "password": "hunter2"});
    render(template, Delimiters::Curly, Functions::Text, &data)
}

fn built_in(template: &str) -> Result<String, TemplateError> {
    let data = json!({"out": {"port": 8080.0, "host": "h", "list": [1.0, "x"], "no": null}});
    render(template, Delimiters::DollarCurly, Functions::BuiltIn, &data)
}

#[test]
fn placeholders_of_values_are_replaced_and_the_rest_stays() {
    assert_eq!(
        built_in(r#"{"a": "${{ .out.host }}:${{ .out.port }}", "b": "{{ .x }} ${x} ${{ .out.none }}"}"#)
            .unwrap(),
        r#"{"a": "h:8080", "b": "{{ .x }} ${x} <no value>"}"#
    );
    assert_eq!(
        built_in("${{ if eq .out.host `h` }}yes${{ end }} ${{ .out.list }} ${{ .out.no }}").unwrap(),
        "yes [1 x] <no value>"
    );
}

#[test]
fn numbers_of_the_data_are_floats_and_printed_as_go_prints_them() {
    assert_eq!(
        text("{{ .count }} {{ .large }} {{ printf `%v` .large }}").unwrap(),
        "3 1.5e+09 1.5e+09"
    );
}

#[test]
fn an_unknown_function_is_named_with_its_line() {
    assert_eq!(
        text("a\n{{ .name | frobnicate }}").unwrap_err().to_string(),
        "line 2: function \"frobnicate\" is not defined; docs/reference/templates.md has the table of functions"
    );
    let error = text("{{ if true }}{{ print (toupper .name) (TOJSON .) }}{{ end }}").unwrap_err();
    assert!(
        error.to_string().contains("\"toupper\" is not defined"),
        "{error}"
    );
    let error = text("{{ define `x` }}{{ Upper .name }}{{ end }}").unwrap_err();
    assert!(error.to_string().contains("(did you mean \"upper\"?)"), "{error}");
    let error = built_in("${{ upper .out.host }}").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("only main.tf.tpl has the functions of sprig"),
        "{error}"
    );
}

#[test]
fn functions_of_environment_network_keys_and_time_are_rejected_by_name() {
    for name in [
        "env",
        "expandenv",
        "getHostByName",
        "genPrivateKey",
        "bcrypt",
        "now",
        "uuidv4",
    ] {
        let error = text(&format!("{{{{ {name} `HOME` }}}}")).unwrap_err();
        assert!(
            matches!(&error, TemplateError::RefusedFunction { name: found, .. } if found == name),
            "{error}"
        );
    }
}

#[test]
fn the_docs_list_every_function() {
    let docs = include_str!("../../../docs/reference/templates.md");
    let missing: Vec<_> = functions::names()
        .filter(|name| !docs.contains(&format!("`{name}`")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/reference/templates.md does not list {missing:?}"
    );
}

#[test]
fn set_changes_its_variable_argument() {
    assert_eq!(
        text("{{ $m := dict `a` 1 }}{{ $_ := set $m `b` 2 }}{{ $_ := unset $m `a` }}{{ toJson $m }}")
            .unwrap(),
        r#"{"b":2}"#
    );
    assert_eq!(
        text("{{ $m := dict }}{{ range .items }}{{ $_ := set $m . true }}{{ end }}{{ keys $m | join `,` }}")
            .unwrap(),
        "a,b"
    );
    assert!(matches!(
        text("{{ $_ := set .map `b` 2 }}"),
        Err(TemplateError::LostChange { line: 1, .. })
    ));
}

#[test]
fn no_error_holds_a_value() {
    for template in [
        "{{ len .password.x }}",
        "{{ len .count }}{{ .password | int | until | first | len }}",
        "{{ range .password }}{{ end }}",
        "{{ index .password `a` }}",
        "{{ printf .count .password }}",
        "{{ eq .password .count }}",
        "{{ mustFromJson .password }}",
        "{{ .password | repeat -1 }}",
        "{{ template `x` .password }}",
        "{{ dig `a` `b` .password }}",
    ] {
        let error = text(template).unwrap_err();
        assert!(
            !format!("{error} {error:?}").contains("hunter2"),
            "{template}: {error}"
        );
    }
}

#[test]
fn excessive_templates_end_at_the_limit() {
    let doubling = |depth: usize, call: &str| {
        let twice = |next: usize| format!("{{{{template `t{next}`}}}}").repeat(2);
        let define = |index: usize, body: &str| format!("{{{{define `t{index}`}}}}{body}{{{{end}}}}");
        let mut text = define(depth, "");
        for index in 0..depth {
            text += &define(index, &twice(index + 1));
        }
        text + call
    };
    for template in [
        "{{ range 2000000 }}{{ end }}".to_owned(),
        "{{ range 1000 }}{{ range 1000 }}{{ range 1000 }}{{ end }}{{ end }}{{ end }}".to_owned(),
        "{{ $x := `aaaa` }}{{ range 60 }}{{ $x = print $x $x }}{{ end }}{{ len $x }}".to_owned(),
        "{{ $x := `a` }}{{ range 60 }}{{ $x = printf `%s%s` $x $x }}{{ end }}".to_owned(),
        "{{ $x := list `a` }}{{ range 60 }}{{ $x = list $x $x }}{{ end }}{{ $x }}".to_owned(),
        "{{ $x := list }}{{ range 100000 }}{{ $x = list $x }}{{ end }}".to_owned(),
        "{{ range 100000 }}{{ `0123456789012345678901234567890123456789012345678901234567890123456789` }}{{ end }}".to_owned(),
        "{{ define `r` }}{{ template `r` . }}{{ end }}{{ template `r` . }}".to_owned(),
        doubling(60, "{{ template `t0` }}"),
        "{{ range 100000 }}{{ regexMatch `(a{0,100}){0,20}b` (repeat 100000 `a`) }}{{ end }}".to_owned(),
        "{{ range 1000000 }}{{ regexMatch `x{100}|y` `` }}{{ end }}".to_owned(),
        "{{ $x := `$0$0$0$0` }}{{ range 60 }}{{ $x = regexReplaceAll `.+` $x $x }}{{ end }}".to_owned(),
    ] {
        let error = text(&template).unwrap_err();
        assert!(matches!(error, TemplateError::LimitExceeded(_)), "{template}: {error}");
    }
    for template in [
        "{{ repeat 1000000000 `x` }}",
        "{{ until 1000000000 }}",
        "{{ indent 1000000000 `x` }}",
        "{{ untilStep 0 9223372036854775807 1 }}",
        "{{ printf `%999999999d` 1 | repeat 100 }}",
        "{{ printf `%5.88888E` 1. }}",
        "{{ printf `%.*e` 65536 1. }}",
        "{{ printf `%d %%5 %+.65535g` 3 1. }}",
        "{{ regexFind `((a{1000}){1000}){1000}` `a` }}",
        "{{ regexFind (repeat 5000 `a`) `a` }}",
        "{{ regexReplaceAll `a` (repeat 1000000 `a`) (repeat 1000 `b`) }}",
        "{{ wrapWith 1 (repeat 1000 `-`) (repeat 100000 `a`) }}",
    ] {
        assert!(text(template).is_err(), "{template}");
    }
    assert!(matches!(
        text(&"x".repeat(TEXT_LIMIT + 1)),
        Err(TemplateError::TooLong { .. })
    ));
}

#[test]
fn an_empty_template_renders_nothing_and_spaces_are_preserved() {
    assert_eq!(text("").unwrap(), "");
    assert_eq!(text(" \n").unwrap(), " \n");
    assert_eq!(text(" {{- define `a` }}x{{ end -}} ").unwrap(), "");
    assert_eq!(
        text("{{ define `a` }}x{{ . }}{{ end }}[{{ template `a` .name }}]").unwrap(),
        "[xweb]"
    );
}

/// A panic in a function would be reported as its failure.
fn panicked(result: &Result<String, TemplateError>) -> bool {
    matches!(result, Err(TemplateError::Execution(text)) if text.starts_with("function ") && text.ends_with(" failed"))
}

/// Arguments of every kind, and the edges of each.
const ARGUMENTS: [&str; 26] = [
    "nil",
    "true",
    "0",
    "1",
    "-1",
    "7",
    "9223372036854775807",
    "-9223372036854775807",
    "1.5",
    "1e300",
    "``",
    "` a `",
    "`é漢🦀`",
    "`a-b_c D1`",
    "`[`",
    "`(a*)*b`",
    "`%s%v%d`",
    "`2006-01-02`",
    "`2024-02-29 12:00:00 +0000 UTC`",
    "`1h`",
    "`http://u:p@[::1]:1/%20?q#f`",
    "`1.2.3-a+b`",
    ".items",
    ".map",
    "(list 1 `a` nil)",
    "(dict `k` 1 `host` `h`)",
];

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 512, ..Default::default() })]
    #[test]
    fn no_text_breaks_it(template in "(\\{\\{|\\}\\}|\\$|[a-z.|()`\" :=0-9-]|if |range |end|print |dict |index ){0,30}") {
        proptest::prop_assert!(!panicked(&text(&template)));
        proptest::prop_assert!(!panicked(&built_in(&template)));
    }

    #[test]
    fn no_bytes_break_it(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)) {
        let template = String::from_utf8_lossy(&bytes);
        proptest::prop_assert!(!panicked(&text(&template)));
        let inside = format!("{{{{ {template} }}}}");
        proptest::prop_assert!(!panicked(&text(&inside)));
    }

    #[test]
    fn no_arguments_break_a_function(
        name in proptest::sample::select(functions::supported_names().collect::<Vec<_>>()),
        arguments in proptest::collection::vec(proptest::sample::select(ARGUMENTS.to_vec()), 0..5),
    ) {
        let result = text(&format!("{{{{ {name} {} }}}}", arguments.join(" ")));
        proptest::prop_assert!(!panicked(&result), "{name} {arguments:?}: {result:?}");
    }

    #[test]
    fn no_texts_break_a_function(
        name in proptest::sample::select(functions::supported_names().collect::<Vec<_>>()),
        texts in proptest::collection::vec("(\\PC|[a-zA-Z0-9\\[\\](){}*+?.|^$\\\\ /:@%#-]){0,12}", 1..4),
    ) {
        let quoted: Vec<_> = texts.iter().map(|text| format!("{text:?}")).collect();
        let result = text(&format!("{{{{ {name} {} }}}}", quoted.join(" ")));
        proptest::prop_assert!(!panicked(&result), "{name} {texts:?}: {result:?}");
    }
}
