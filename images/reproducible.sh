#!/bin/sh
# Packs the images of the last commit twice, in two clones with other paths, and compares the files. $1: the CLI.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in one a-second-directory; do
  git clone -q . "$work/$name"
  # Nothing of the first build may serve the second.
  (cd "$work/$name" && unset CARGO_TARGET_DIR && make images CLI="$1")
  (cd "$work/$name/target/images" && sha256sum ./*.tar ./*.spdx.json) > "$work/$name.sums"
done
if cmp "$work/one.sums" "$work/a-second-directory.sums"; then
  echo "== The images are reproducible:"; cat "$work/one.sums"
else
  diff "$work/one.sums" "$work/a-second-directory.sums"
fi
