//! The text for people holds what the digest covers, no less and no more: it is read back and compared.

use super::*;

/// The document with nothing left of sensitive values but where they are.
fn masked(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| match (name.as_str(), member) {
                ("sensitive" | "hidden", Value::String(_)) => (name.clone(), json!(true)),
                _ => (name.clone(), masked(member)),
            })
            .collect(),
        Value::Array(elements) => elements.iter().map(masked).collect(),
        leaf => leaf.clone(),
    }
}

/// Reads the text back into a document.
fn read(text: &str) -> Value {
    let mut lines = text.lines();
    let form = lines.next().unwrap();
    let form = form
        .strip_prefix(text::TITLE)
        .unwrap()
        .trim_matches([' ', '(', ')', ':']);
    let mut document = json!({ "form": form, "resources": [], "outputs": [], "other": {} });
    let mut list = "resources";
    for line in lines {
        if let Some(line) = line.strip_prefix("    ") {
            let entry = document[list].as_array_mut().unwrap().last_mut().unwrap();
            read_inside(line, entry);
        } else if let Some(line) = line.strip_prefix("  ") {
            let (name, value_text) = line.split_once(": ").unwrap();
            document[name] = json!(if value_text == "none" { "" } else { value_text });
        } else if let Some(line) = line.strip_prefix("other ") {
            let (name, rest) = string(line);
            document["other"][name] = leaf(rest.strip_prefix(": ").unwrap()).0;
        } else {
            let (_, line) = line.split_once(' ').unwrap();
            let (name, actions) = line.rsplit_once(": ").unwrap();
            let actions: Vec<_> = actions.split(", ").filter(|action| !action.is_empty()).collect();
            let plain = |name: &str| {
                if name.starts_with('"') {
                    string(name).0
                } else {
                    name.to_owned()
                }
            };
            let entry = if let Some(name) = name.strip_prefix("output ") {
                list = "outputs";
                json!({ "name": plain(name), "actions": actions, "changes": [] })
            } else {
                json!({ "address": plain(name), "actions": actions, "changes": [] })
            };
            document[list].as_array_mut().unwrap().push(entry);
        }
    }
    document
}

fn read_inside(line: &str, entry: &mut Value) {
    let Some(detail) = line.strip_prefix("# ") else {
        let (path, rest) = path(line);
        let (before, rest) = leaf(rest.strip_prefix(": ").unwrap());
        let (after, rest) = leaf(rest.strip_prefix(" -> ").unwrap());
        assert_eq!(rest, "");
        let mut change = json!({ "path": path });
        for (name, leaf) in [("before", before), ("after", after)] {
            if !leaf.is_null() {
                change[name] = leaf;
            }
        }
        entry["changes"].as_array_mut().unwrap().push(change);
        return;
    };
    if detail == "its content is not compared" {
        entry.as_object_mut().unwrap().remove("changes");
        return;
    }
    let (mut path, rest) = path(detail);
    let name = path.remove(0).as_str().unwrap().to_owned();
    let (leaf, _) = leaf(rest.strip_prefix(": ").unwrap());
    if matches!(name.as_str(), "id" | "importing" | "replace_paths") {
        if leaf.get("sensitive").is_some() {
            entry[name] = leaf;
        } else {
            if entry.get(&name).is_none() {
                entry[&name] = json!([]);
            }
            entry[name]
                .as_array_mut()
                .unwrap()
                .push(json!({ "path": path, "at": leaf }));
        }
    } else {
        entry[name] = leaf["value"].clone();
    }
}

fn string(text: &str) -> (String, &str) {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<String>();
    let value_text = stream.next().unwrap().unwrap();
    (value_text, &text[stream.byte_offset()..])
}

fn path(mut text: &str) -> (Vec<Value>, &str) {
    if let Some(rest) = text.strip_prefix("(value)") {
        return (Vec::new(), rest);
    }
    let mut steps = Vec::new();
    loop {
        if let Some(rest) = text.strip_prefix('[') {
            if rest.starts_with('"') {
                let (member, rest) = string(rest);
                steps.push(json!(member));
                text = rest.strip_prefix(']').unwrap();
            } else {
                let (index, rest) = rest.split_once(']').unwrap();
                steps.push(json!(index.parse::<usize>().unwrap()));
                text = rest;
            }
        } else if text.starts_with(": ") || text.is_empty() {
            return (steps, text);
        } else {
            let text_here = text.strip_prefix('.').unwrap_or(text);
            let end = text_here.find(['.', '[', ':']).unwrap();
            steps.push(json!(&text_here[..end]));
            text = &text_here[end..];
        }
    }
}

fn leaf(text: &str) -> (Value, &str) {
    for (words, leaf) in [
        ("(absent)", Value::Null),
        ("(known after apply)", json!({ "unknown": true })),
        ("(sensitive value on the other side)", json!({ "hidden": true })),
        ("(sensitive value)", json!({ "sensitive": true })),
    ] {
        if let Some(rest) = text.strip_prefix(words) {
            return (leaf, rest);
        }
    }
    if text.starts_with('"') {
        let (value_text, rest) = string(text);
        return (json!({ "value": value_text }), rest);
    }
    let end = text.find(" -> ").unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let value: Value = serde_json::from_str(word).unwrap();
    if value.is_f64() || word.starts_with("-0") {
        return (json!({ "number": word }), rest);
    }
    (json!({ "value": value }), rest)
}

#[test]
fn the_text_of_an_update() {
    let plan = super::super::super::document::parse(update().to_string().as_bytes()).unwrap();
    let text = Effect::new(&plan, &inputs()).text();
    assert_eq!(
        text,
        r#"What this plan's id covers (sluice.effect/2):
  inputs: sha256:1
  modules: none
  lock: none
  last_apply: none
~ a.one: update
    # mode: "managed"
    # type: "a"
    # provider: "p"
    # id: "i-1"
    hash: (absent) -> (known after apply)
    list[1]: 2 -> 3
    secret: (sensitive value) -> (sensitive value)
    size: 1 -> 2
- a.two: delete
    # mode: "managed"
    # type: "a"
    # provider: "p"
    # id: "i-2"
    # its content is not compared
~ output o: update
    (value): 1 -> 2
"#
    );
}

#[test]
fn a_value_cannot_imitate_a_line() {
    let plan = json!({ "resource_changes": [{ "address": "a.r[\"x\\ny\"]", "mode": "managed", "type": "a",
        "change": { "actions": ["create"], "after": { "a\n# id": "1\n- a.gone: delete\u{202e}", "b": "\u{7f}" } } }] });
    let plan = super::super::super::document::parse(plan.to_string().as_bytes()).unwrap();
    let effect = Effect::new(&plan, &inputs());
    assert_eq!(effect.text().lines().count(), 5 + 1 + 3 + 2);
    assert!(!effect.text().contains(['\u{202e}', '\u{7f}']));
    assert_eq!(read(&effect.text()), masked(effect.document()));
}

proptest! {
    #[test]
    fn the_readable_effect_equals_the_digested_effect(
        sides in proptest::collection::vec((value(), value(), value(), marks(), marks(), marks()), 0..4),
        id in value(), import in proptest::option::of(value()), moved: bool, is_removed: bool, name in "[a-z\" \\n]{0,4}",
    ) {
        let mut entries: Vec<_> = sides.iter().enumerate().map(|(index, (before, after, _, old, new, unknown))| {
            let mut entry = entry(&format!("a.r{index}[{name:?}]"), before, after);
            entry["change"]["before_sensitive"] = old.clone();
            entry["change"]["after_sensitive"] = new.clone();
            entry["change"]["after_unknown"] = unknown.clone();
            entry["provider_name"] = json!(name);
            entry
        }).collect();
        if let Some(first) = entries.first_mut() {
            if first["change"]["before"].is_object() {
                first["change"]["before"]["id"] = id;
            }
            first["change"]["importing"] = json!(import);
            first["change"]["replace_paths"] = json!([["a", 0], ["b c"]]);
            if moved { first["previous_address"] = json!("a.was"); }
            if is_removed { first["change"]["actions"] = json!(["delete"]); }
        }
        let outputs: Map<_, _> = sides.iter().enumerate().map(|(index, (before, after, ..))| {
            (format!("o{index}"), json!({ "actions": ["update"], "before": before, "after": after, "after_unknown": false }))
        }).collect();
        let other: Vec<_> = sides.iter().map(|(_, _, other, ..)| other).collect();
        let plan = json!({ "resource_changes": entries, "output_changes": outputs, "later": other });
        let plan = super::super::super::document::parse(plan.to_string().as_bytes()).unwrap();
        let effect = Effect::new(&plan, &inputs());
        prop_assert_eq!(read(&effect.text()), masked(effect.document()));
    }
}

fn marks() -> impl Strategy<Value = Value> {
    let leaf = any::<bool>().prop_map(Value::from);
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[a-d]", inner, 0..3).prop_map(|members| json!(members)),
        ]
    })
}
