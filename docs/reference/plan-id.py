#!/usr/bin/env python3
"""The effect digest of plan-id.md, computed without Sluice.

usage: plan-id.py PLAN.json [--inputs TEXT] [--modules TEXT] [--lock FILE] [--last-apply NAME] [--key HEX] [--made]
       plan-id.py --shown PLAN.txt [...]
       plan-id.py --check plan-id-vectors.json

PLAN.json is what `terraform show -json tfplan` prints, PLAN.txt what `terraform plan` prints of a plan that cannot be saved.
`--made` says that planning made files.
"""

import argparse
import hashlib
import hmac
import json
import re
import sys

SKIPPED = {"timestamp", "format_version", "terraform_version", "variables", "planned_values", "prior_state",
           "configuration", "relevant_attributes", "checks", "resource_drift", "applyable", "complete", "errored"}


KNOWN = {"count", "path", "self", "terraform", "tofu"}


class Number(str):
    """A number that does not fit into 64 bits, as it was printed."""


def number(text):
    fits = text.lstrip("-").isdigit() and -(1 << 63) <= int(text) < (1 << 64) and str(int(text)) == text
    return int(text) if fits else Number(text)


def parse(text):
    return json.loads(text, parse_int=number, parse_float=number)


def canonical(value):
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda member: member[0].encode())
        return "{" + ",".join(canonical(name) + ":" + canonical(held) for name, held in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(canonical(held) for held in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def leaf(value):
    return {"number": str(value)} if isinstance(value, Number) else {"value": value}


def get(value, step):
    if isinstance(value, dict) and isinstance(step, str):
        return value.get(step)
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return value[step]
    return None


def has(value, step):
    return (isinstance(value, dict) and step in value) or \
        (isinstance(value, list) and isinstance(step, int) and step < len(value))


def marked(marks):
    if isinstance(marks, dict):
        return any(marked(inner) for inner in marks.values())
    if isinstance(marks, list):
        return any(marked(inner) for inner in marks)
    return marks is True


ABSENT = object()


def leaves(value, unknown, own, other, key, path=()):
    """The leaves of one side, by path."""
    if unknown is True:
        return {path: {"unknown": True}}
    if value is not ABSENT and own is True:
        return {path: {"sensitive": keyed(value, key)}}
    if value is not ABSENT and other is True:
        return {path: {"hidden": keyed(value, key)}}
    below = []
    for held, counts in ((value, lambda inner: True), (unknown, marked)):
        if isinstance(held, dict):
            below += [name for name, inner in held.items() if counts(inner)]
        elif isinstance(held, list):
            below += [index for index, inner in enumerate(held) if counts(inner)]
    if not below:
        return {} if value is ABSENT else {path: leaf(value)}
    found = {}
    for step in below:
        inner = get(value, step) if has(value, step) else ABSENT
        found.update(leaves(inner, get(unknown, step), get(own, step), get(other, step), key, path + (step,)))
    return found


def order(path):
    return [(0, step.encode(), 0) if isinstance(step, str) else (1, b"", step) for step in path]


def listed(value, key):
    found = leaves(value, None, None, None, key)
    return [{"path": list(path), "at": found[path]} for path in sorted(found, key=order)]


def keyed(value, key):
    return hmac.new(key, canonical(listed(value, key)).encode(), hashlib.sha256).hexdigest()


def difference(change, key):
    old, new = change.get("before_sensitive"), change.get("after_sensitive")

    def side(name, unknown, own, other):
        value = change.get(name)
        return leaves(ABSENT if value is None else value, unknown, own, other, key)

    before = side("before", None, old, new)
    after = side("after", change.get("after_unknown"), new, old)
    rows = []
    for path in sorted(set(before) | set(after), key=order):
        if before.get(path) != after.get(path):
            row = {"path": list(path)}
            row.update({name: held[path] for name, held in (("before", before), ("after", after)) if path in held})
            rows.append(row)
    return rows


def resource(entry, key):
    change = entry["change"]
    actions = change.get("actions", [])
    told = {"address": entry.get("address", ""), "mode": entry.get("mode", ""), "type": entry.get("type", ""),
            "provider": entry.get("provider_name", ""), "actions": actions}
    for name, member in (("deposed", "deposed"), ("previous_address", "previous_address"), ("reason", "action_reason")):
        if entry.get(member) is not None:
            told[name] = entry[member]
    identity = get(change.get("before"), "id")
    if identity is not None:
        marks = [change.get("before_sensitive"), change.get("after_sensitive")]
        hidden = any(mark is True or marked(get(mark, "id")) for mark in marks)
        told["id"] = {"sensitive": keyed(identity, key)} if hidden else listed(identity, key)
    for name in ("importing", "replace_paths"):
        if change.get(name) is not None:
            told[name] = listed(change[name], key)
    if actions not in (["delete"], ["forget"]) or identity is None:
        told["changes"] = difference(change, key)
    return told


def references(expressions):
    """All references in an expression, or in what holds expressions, as lists of words."""
    if isinstance(expressions, list):
        return [words for inner in expressions for words in references(inner)]
    if not isinstance(expressions, dict):
        return []
    own = expressions.get("references")
    texts = [text for text in own if isinstance(text, str)] if isinstance(own, list) else []
    return [re.split(r"[.\[]", text) for text in texts] + references(list(expressions.values()))


def leads_out(expressions, is_input, each=False):
    """Whether a reference leads to more than inputs. `is_input` judges names of variables; `each`: its values are more."""
    def outside(words):
        second = words[1] if len(words) > 1 else ""
        if words[0] == "each":
            return each and second != "key"
        return not is_input(second) if words[0] == "var" else words[0] not in KNOWN
    return any(outside(words) for words in references(expressions))


def settings_draw(provider):
    return leads_out(provider, lambda name: not provider.get("module_address"))


def commands_draw(module, is_root, deletes):
    for entry in module.get("resources", []):
        each = leads_out(entry.get("for_each_expression"), lambda name: is_root)
        for held in entry.get("provisioners", []):
            of_gone = deletes and any(words[0] == "self" for words in references(held))
            if held.get("type") != "local-exec" or of_gone or leads_out(held, lambda name: is_root, each):
                return True
    return any(commands_draw(call.get("module", {}), False, deletes) for call in module.get("module_calls", {}).values())


def without_keys(address):
    """The address of all instances; a key is an index or a JSON-like string."""
    return re.sub(r'\[(?:[^"\]]|"(?:[^"\\]|\\.)*")*\]', "", address)


def holds_null(value, unknown):
    if unknown is True:
        return False
    if isinstance(value, (dict, list)):
        steps = value if isinstance(value, dict) else range(len(value))
        return any(holds_null(get(value, step), get(unknown, step)) for step in steps)
    return value is None


def hides(expressions, after, unknown, is_outside):
    """Whether an argument takes a value from outside that the plan does not show, as it shows none that is write-only."""
    if unknown is True:
        return False
    if isinstance(expressions, dict) and isinstance(expressions.get("references"), list):
        return is_outside(expressions) and holds_null(after, unknown)
    if isinstance(expressions, (dict, list)):
        steps = expressions if isinstance(expressions, dict) else range(len(expressions))
        return any(hides(expressions[step], get(after, step), get(unknown, step), is_outside) for step in steps)
    return False


def arguments_draw(module, prefix, passed, written):
    """`passed` are the variables that are more than inputs."""
    def is_input(name):
        return name not in passed

    for entry in module.get("resources", []):
        each = leads_out(entry.get("for_each_expression"), is_input)
        for change in written.get(prefix + entry.get("address", ""), []):
            if hides(entry.get("expressions"), change.get("after"), change.get("after_unknown"),
                     lambda expression: leads_out(expression, is_input, each)):
                return True
    for name, call in module.get("module_calls", {}).items():
        each = leads_out(call.get("for_each_expression"), is_input)
        outside = {given for given, value in call.get("expressions", {}).items() if leads_out(value, is_input, each)}
        if arguments_draw(call.get("module", {}), f"{prefix}module.{name}.", outside, written):
            return True
    return False


def draws(plan):
    configuration = plan.get("configuration", {})
    root = configuration.get("root_module", {})
    deletes, written = False, {}
    for entry in plan.get("resource_changes", []):
        actions = entry.get("change", {}).get("actions", [])
        deletes |= "delete" in actions
        if "create" in actions or "update" in actions:
            written.setdefault(without_keys(entry.get("address", "")), []).append(entry["change"])
    return any(settings_draw(provider) for provider in configuration.get("provider_config", {}).values()) or \
        commands_draw(root, True, deletes) or arguments_draw(root, "", set(), written)


def state(plan, made):
    """The digests of the values of the state, if what no change shows draws upon them."""
    if not (made or draws(plan)):
        return None
    found, modules = {}, [plan.get("prior_state", {}).get("values", {}).get("root_module", {})]
    while modules:
        module = modules.pop()
        for entry in module.get("resources", []):
            name = (entry.get("address", "") + " " + entry.get("deposed_key", "")).rstrip()
            text = canonical(listed(entry.get("values"), b""))
            found[name] = hashlib.sha256(text.encode()).hexdigest()
        modules += module.get("child_modules", [])
    return found


def effect(plan, inputs, modules, lock, last_apply, key, made=False):
    def counts(entry):
        actions = entry.get("change", {}).get("actions", [])
        moved = entry.get("previous_address") is not None or entry["change"].get("importing") is not None
        return actions != ["read"] and (moved or actions not in ([], ["no-op"]))

    resources = [entry for entry in plan.get("resource_changes", []) if counts(entry)]
    resources.sort(key=lambda entry: (entry.get("address", "").encode(), entry.get("deposed") is not None,
                                      (entry.get("deposed") or "").encode()))
    outputs = [{"name": name, "actions": change.get("actions", []), "changes": difference(change, key)}
               for name, change in sorted(plan.get("output_changes", {}).items(), key=lambda item: item[0].encode())
               if change.get("actions", []) not in ([], ["no-op"])]
    other = {name: {"sensitive": keyed(value, key)} for name, value in plan.items()
             if name not in SKIPPED | {"resource_changes", "output_changes"}}
    drawn = state(plan, made)
    told = {} if drawn is None else \
        {"state": "hmac-sha256:" + hmac.new(key, canonical(drawn).encode(), hashlib.sha256).hexdigest()}
    return told | {"form": "sluice.effect/2", "inputs": inputs, "modules": modules,
            "lock": "sha256:" + hashlib.sha256(lock).hexdigest() if lock else "", "last_apply": last_apply,
            "resources": [resource(entry, key) for entry in resources], "outputs": outputs, "other": other}


HEADINGS = {" will be created": ["create"], " will be updated in-place": ["update"], " will be destroyed": ["delete"],
            " must be replaced": ["delete", "create"], " will be replaced": ["delete", "create"],
            " is tainted, so must be replaced": ["delete", "create"],
            " is tainted, so it must be replaced": ["delete", "create"], " will no longer be managed": ["forget"]}
BEGINNINGS = ("perform the following actions", "planned the following actions", "Changes to Outputs:")


def essence(text):
    """The plan itself out of all that the CLI said."""
    lines = [line.rstrip() for line in text.split("\n")]
    plans = [place for place, line in enumerate(lines) if any(words in line for words in BEGINNINGS)]
    notes = [place for place, line in enumerate(lines) if "Objects have changed outside of" in line]
    rules = [place for place, line in enumerate(lines)
             if plans and place > plans[-1] and len(line.encode()) >= 20 and not line.strip("-\u2500")]
    return "\n".join(lines[min(plans + notes, default=0):min(rules, default=len(lines))]).strip()


def shown(text):
    """What stands for the JSON of a plan that was only shown."""
    text, entries = essence(text), []
    for line in text.split("\n"):
        heading = line.lstrip()
        found = [(heading.find(words, 2), actions) for words, actions in HEADINGS.items() if heading.find(words, 2) >= 0]
        if heading.startswith("# ") and found:
            end, actions = min(found, key=lambda held: held[0])
            address = heading[2:end]
            kind = ([""] + without_keys(address).split("."))[-2]
            entries.append({"address": address, "type": kind, "mode": "managed", "change": {"actions": actions}})
    return {"resource_changes": entries, "shown_plan": text}


def digest(document):
    return hashlib.sha256(canonical(document).encode()).hexdigest()[:40]


def check(path):
    with open(path, encoding="utf-8") as file:
        vectors = json.load(file)
    for vector in vectors:
        origin = vector["origin"]
        plan = shown(vector["shown"]) if "shown" in vector else parse(vector["plan"])
        document = effect(plan, origin["inputs"], origin["modules"], origin["lock"].encode(),
                          origin["last_apply"], bytes.fromhex(origin["key"]), origin.get("made", False))
        if (canonical(document), digest(document)) != (vector["canonical"], vector["digest"]):
            sys.exit(f"{vector['name']}: another digest: {digest(document)}")
    print(f"{len(vectors)} vectors agree")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("plan", nargs="?")
    arguments.add_argument("--check")
    for name in ("--inputs", "--modules", "--last-apply", "--key"):
        arguments.add_argument(name, default="")
    arguments.add_argument("--lock")
    for name in ("--made", "--shown"):
        arguments.add_argument(name, action="store_true")
    given = arguments.parse_args()
    if given.check:
        return check(given.check)
    lock = open(given.lock, "rb").read() if given.lock else b""
    with open(given.plan, encoding="utf-8") as file:
        plan = shown(file.read()) if given.shown else parse(file.read())
    key = bytes.fromhex(given.key)
    print(digest(effect(plan, given.inputs, given.modules, lock, given.last_apply, key, given.made)))


if __name__ == "__main__":
    main()
