#compdef sluice
# Completion of sluice for zsh: source <(sluice completion zsh), or a file _sluice in a directory of $fpath.

_sluice() {
    local program=${(Q)words[1]} directive line value
    local -a answer values
    (( $+commands[$program] )) || [[ -x $program ]] || program=sluice
    answer=("${(@f)$($program __complete -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" </dev/null 2>/dev/null)}")
    directive=$answer[-1]
    for line in "${(@)answer[1,-2]}"; do
        # _describe takes `value:description`, and a backslash before a colon of the value.
        value=${${line%%$'\t'*}//:/\\:}
        [[ $line != *$'\t'* ]] || value+=:${line#*$'\t'}
        values+=("$value")
    done
    [[ $PREFIX != -*=* ]] || compset -P 1 '*='
    if (( $#values )); then
        _describe -V sluice values
    elif [[ $directive == :0 ]]; then
        _files
    fi
}

if [[ $funcstack[1] == _sluice ]]; then
    _sluice "$@"
else
    compdef _sluice sluice
fi
