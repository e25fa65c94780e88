#!/bin/sh
# sshd runs this for every command; the harness fills in the placeholders.
folder='@FOLDER@'
set -- $SSH_CONNECTION
printf '%s %s\n' "$2" "$SSH_ORIGINAL_COMMAND" >>"$folder/commands"
PATH='@PATH@' HOME="$folder/home" LC_ALL=C GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
GIT_CONFIG_KEY_1=uploadpack.allowAnySHA1InWant GIT_CONFIG_VALUE_1=true
export PATH HOME LC_ALL GIT_CONFIG_NOSYSTEM GIT_CONFIG_GLOBAL GIT_CONFIG_COUNT
export GIT_CONFIG_KEY_0 GIT_CONFIG_VALUE_0 GIT_CONFIG_KEY_1 GIT_CONFIG_VALUE_1
# Unlike `head`, it passes on each byte immediately.
first() { dd bs=1 count="$bytes" 2>/dev/null; }
cd "$HOME" || exit 1
read -r fault bytes <"$folder/fault"
case $fault in
hung) exec cat >/dev/null ;;
stalled) sh -c "$SSH_ORIGINAL_COMMAND" | { first; exec sleep 60; } ;;
truncated) sh -c "$SSH_ORIGINAL_COMMAND" | { first; kill "$$"; } ;;
failed) echo 'fatal: the disk is on fire' >&2; exit 7 ;;
closed)
  printf 'none 0\n' >"$folder/fault"
  # A shell may be between this process and the server's process for the connection.
  above=$PPID
  until read -r name <"/proc/$above/comm" && case $name in sshd*) true ;; *) false ;; esac; do
    read -r _ _ _ above _ <"/proc/$above/stat"
  done
  kill "$above" ;;
version0) unset GIT_PROTOCOL; exec sh -c "$SSH_ORIGINAL_COMMAND" ;;
*) exec sh -c "$SSH_ORIGINAL_COMMAND" ;;
esac
