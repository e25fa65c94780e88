//! Examples for the help of each command. A test parses them.

/// The name of a command, and lines that a user can type.
pub(super) const EXAMPLES: [(&str, &[&str]); 43] = [
    (
        "up",
        &[
            "sluice up -f stacks --state state",
            "sluice up -f stacks --state state --plain",
        ],
    ),
    (
        "init",
        &[
            "sluice init shop --url https://git.example.com/shop.git",
            "sluice init",
        ],
    ),
    (
        "create source git",
        &[
            "sluice create source git shop --url https://git.example.com/shop.git --branch main",
            "sluice create source git shop --url ssh://git@git.example.com/shop.git --secret-ref deploy-key --branch main --export > shop.yaml",
        ],
    ),
    (
        "create terraform",
        &[
            "sluice create terraform app --source GitRepository/shop --path ./stack",
            "sluice create terraform app --source GitRepository/shop --path ./stack --var region=eu-1 --depends-on network --export > app.yaml",
        ],
    ),
    (
        "adopt",
        &[
            "sluice adopt",
            "sluice adopt live --source GitRepository/infra -n team > stacks.yaml",
        ],
    ),
    ("migrate", &["sluice migrate", "sluice migrate -n team -o json"]),
    ("check", &["sluice check --pre", "sluice check"]),
    (
        "install",
        &[
            "sluice install --registry registry.example.com/sluice",
            "sluice install ha --registry registry.example.com/sluice --export > sluice.yaml",
        ],
    ),
    ("uninstall", &["sluice uninstall", "sluice uninstall ha --export"]),
    (
        "completion",
        &[
            "source <(sluice completion bash)",
            "sluice completion fish > ~/.config/fish/completions/sluice.fish",
        ],
    ),
    ("version", &["sluice version", "sluice version --client -o json"]),
    ("status", &["sluice status -A", "sluice status -l team=net"]),
    ("get", &["sluice get terraforms -A -o wide", "sluice get runs -w"]),
    ("tree", &["sluice tree", "sluice tree -A -l team=net"]),
    (
        "describe",
        &["sluice describe app", "sluice describe app -n team"],
    ),
    ("history", &["sluice history app", "sluice history app -o json"]),
    (
        "logs",
        &["sluice logs app -f", "sluice logs app --run 3 --phase plan"],
    ),
    ("events", &["sluice events app", "sluice events -A"]),
    (
        "outputs",
        &[
            "sluice outputs app",
            "sluice outputs app address",
            "sluice outputs app --show-sensitive -o json",
        ],
    ),
    ("diff", &["sluice diff app", "sluice diff app -n team"]),
    (
        "export",
        &[
            "sluice export app > app.yaml",
            "sluice export sources -A > sources.yaml",
        ],
    ),
    ("plan", &["sluice plan app", "sluice plan app --wait --full"]),
    (
        "plan show",
        &[
            "sluice plan show app --full --wait",
            "sluice plan show app --web plan.html",
        ],
    ),
    (
        "approve",
        &[
            "sluice approve app --wait",
            "sluice approve --all -l team=net",
            "sluice approve app --file stacks/app.yaml",
        ],
    ),
    (
        "reject",
        &["sluice reject app --comment=too-early", "sluice reject app --yes"],
    ),
    (
        "apply",
        &[
            "sluice apply app --local .",
            "sluice apply app --local stacks/app --full",
        ],
    ),
    (
        "replan",
        &["sluice replan app", "sluice replan app --timeout 15m"],
    ),
    (
        "reconcile",
        &[
            "sluice reconcile app --with-source --wait",
            "sluice reconcile source shop --wait",
        ],
    ),
    ("retry", &["sluice retry app --wait", "sluice retry -A"]),
    ("suspend", &["sluice suspend app", "sluice suspend sources --all"]),
    (
        "resume",
        &["sluice resume app --wait", "sluice resume -l team=net"],
    ),
    (
        "cancel",
        &[
            "sluice cancel app --suspend",
            "sluice cancel app-6f1c2d3e00-7 --wait",
        ],
    ),
    (
        "unlock",
        &[
            "sluice unlock app --wait",
            "sluice unlock app --id 6a1f0c0e-1b7e-3c53-e0ee-1a1d6f1a9b0c",
        ],
    ),
    ("debug", &["sluice debug app", "sluice debug app --print"]),
    (
        "delete",
        &["sluice delete app --wait", "sluice delete source shop"],
    ),
    (
        "state list",
        &["sluice state list app", "sluice state list app -o json"],
    ),
    (
        "state show",
        &["sluice state show app", "sluice state show app --copy 3f9a0c1b2d"],
    ),
    (
        "state pull",
        &[
            "sluice state pull app --out app.tfstate",
            "sluice state pull app --copy 3f9a0c1b2d --out before.tfstate",
        ],
    ),
    (
        "state restore",
        &[
            "sluice state restore app --copy 3f9a0c1b2d",
            "sluice state restore app --copy 3f9a0c1b2d --yes",
        ],
    ),
    (
        "state check",
        &[
            "sluice state check --state state",
            "sluice state check --state state --discard KEY",
        ],
    ),
    (
        "state export",
        &[
            "sluice state export --state state --out objects.json",
            "sluice state export --state state > objects.json",
        ],
    ),
    (
        "record export",
        &[
            "sluice record export app --key signer.pem > record.json",
            "sluice record export app --run 7 --key-secret team/signer > record.json",
        ],
    ),
    (
        "record verify",
        &[
            "sluice record verify record.json --key signer.pub",
            "sluice record verify record.json --key signer.pub -o json",
        ],
    ),
];
