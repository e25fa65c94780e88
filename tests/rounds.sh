#!/bin/sh
# The runner of `make test-busy`: runs a test program ROUNDS times in a row, up to its first failure. Program by program, because a
# failure then costs the rounds of one program only.
for round in $(seq "$ROUNDS"); do
  echo "== Round $round of $(basename "$1"), $(date +%T)"
  "$@" || exit
done
