# Completion of sluice for fish: sluice completion fish > ~/.config/fish/completions/sluice.fish

function __sluice_complete
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    set -l typed (commandline --current-token --cut-at-cursor | string trim --left --chars \'\")
    set -l program $words[1]
    set -e words[1]
    command --query $program; or set program sluice
    set -l answers ($program __complete -- $words "$typed" </dev/null 2>/dev/null)
    set -q answers[1]; or return
    set -l directive $answers[-1]
    set -e answers[-1]
    # The answers have no `--flag=`.
    set -l flag (string match --regex -- '^-[^=]*=' "$typed")
    if test "$directive" = :0; and not set -q answers[1]
        set answers (__fish_complete_path (string replace --regex -- '^-[^=]*=' '' "$typed"))
    end
    set -q answers[1]; and printf '%s\n' "$flag"$answers
end

complete --command sluice --erase
complete --command sluice --no-files --keep-order --arguments '(__sluice_complete)'
