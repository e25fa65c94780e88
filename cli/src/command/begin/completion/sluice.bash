# Completion of sluice for bash: source <(sluice completion bash)

_sluice() {
    local program=${COMP_WORDS[0]} rest=${COMP_LINE:0:COMP_POINT} words=() index piece
    type -P -- "$program" >/dev/null || program=sluice
    # Readline splits words at = : and @ too. What has no space in between is one word.
    for ((index = 0; index <= COMP_CWORD; index++)); do
        if [[ $index -eq 0 || $rest == [[:space:]]* ]]; then
            rest=${rest#"${rest%%[![:space:]]*}"}
            words+=("")
        fi
        piece=${COMP_WORDS[index]}
        [[ $index -lt $COMP_CWORD ]] || piece=$rest
        words[${#words[@]} - 1]+=$piece
        rest=${rest#"$piece"}
    done
    words=("${words[@]//[\"\'\\]/}")
    # The answer has no `--flag=`, and readline replaces only $2, the part after the last of those letters.
    local typed=${words[${#words[@]} - 1]} value help
    [[ $typed != -*=* ]] || typed=${typed#*=}
    local kept=${typed%"$2"}
    COMPREPLY=()
    while IFS=$'\t' read -r value help; do
        if [[ $value =~ ^:[0-9]+$ ]]; then
            [[ $value != :0 || ${#COMPREPLY[@]} -gt 0 ]] || compopt -o default 2>/dev/null
        elif [[ $value == "$kept"* ]]; then
            printf -v value %q "${value#"$kept"}"
            COMPREPLY+=("$value")
        fi
    done < <("$program" __complete -- "${words[@]:1}" </dev/null 2>/dev/null)
}

complete -o nosort -F _sluice sluice 2>/dev/null || complete -F _sluice sluice
