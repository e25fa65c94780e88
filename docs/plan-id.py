#!/usr/bin/env python3
"""The effect digest of plan-id.md, computed without Sluice.

usage: plan-id.py PLAN.json [--inputs TEXT] [--modules TEXT] [--lock FILE] [--last-apply NAME] [--key HEX]
       plan-id.py --check plan-id-vectors.json

PLAN.json is what `terraform show -json tfplan` prints.
"""

import argparse
import hashlib
import hmac
import json
import sys

SKIPPED = {"timestamp", "format_version", "terraform_version", "variables", "planned_values", "prior_state",
           "configuration", "relevant_attributes", "checks", "resource_drift", "applyable", "complete", "errored"}


KNOWN = {"count", "each", "path", "self", "terraform", "tofu"}


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


def refers(expressions, is_root):
    if isinstance(expressions, list):
        return any(refers(inner, is_root) for inner in expressions)
    if not isinstance(expressions, dict):
        return False
    own = expressions.get("references")
    texts = [text for text in own if isinstance(text, str)] if isinstance(own, list) else []
    firsts = [text.split("[")[0].split(".")[0] for text in texts]
    return any(first not in KNOWN and not (is_root and first == "var") for first in firsts) or \
        any(refers(inner, is_root) for inner in expressions.values())


def module_draws(module, is_root):
    provisioners = [held for entry in module.get("resources", []) for held in entry.get("provisioners", [])]
    return any(held.get("type") != "local-exec" or refers(held, is_root) for held in provisioners) or \
        any(module_draws(call.get("module", {}), False) for call in module.get("module_calls", {}).values())


def state(plan):
    """The digests of the values of the state, if a provisioner or the settings of a provider draw upon them."""
    configuration = plan.get("configuration", {})
    settings = refers(configuration.get("provider_config", {}), True)
    if not (settings or module_draws(configuration.get("root_module", {}), True)):
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


def effect(plan, inputs, modules, lock, last_apply, key):
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
    drawn = state(plan)
    told = {} if drawn is None else \
        {"state": "hmac-sha256:" + hmac.new(key, canonical(drawn).encode(), hashlib.sha256).hexdigest()}
    return told | {"form": "sluice.effect/2", "inputs": inputs, "modules": modules,
            "lock": "sha256:" + hashlib.sha256(lock).hexdigest() if lock else "", "last_apply": last_apply,
            "resources": [resource(entry, key) for entry in resources], "outputs": outputs, "other": other}


def digest(document):
    return hashlib.sha256(canonical(document).encode()).hexdigest()[:40]


def check(path):
    with open(path, encoding="utf-8") as file:
        vectors = json.load(file)
    for vector in vectors:
        origin = vector["origin"]
        document = effect(parse(vector["plan"]), origin["inputs"], origin["modules"], origin["lock"].encode(),
                          origin["last_apply"], bytes.fromhex(origin["key"]))
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
    given = arguments.parse_args()
    if given.check:
        return check(given.check)
    lock = open(given.lock, "rb").read() if given.lock else b""
    with open(given.plan, encoding="utf-8") as file:
        plan = parse(file.read())
    print(digest(effect(plan, given.inputs, given.modules, lock, given.last_apply, bytes.fromhex(given.key))))


if __name__ == "__main__":
    main()
