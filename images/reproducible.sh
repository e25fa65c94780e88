#!/bin/sh
# Packs the images of the last commit twice, in two clones with other paths, and compares the files; and the sizes of the layers with the
# table in docs/operations.md, up to a megabyte. $1: the CLI.
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

# The table is that of x86-64.
[ "$(uname -m)" = x86_64 ] || exit 0
outdated=
for layer in base program tools cli; do
  bytes=$(wc -c < "$work/one/target/images/layers/$layer.tar")
  size=$(( (bytes + 500000) / 1000000 ))
  documented=$(sed -n "s/^| $layer | .* | \([0-9]*\) MB | [^|]* |\$/\1/p" "$work/one/docs/operations.md")
  if [ -z "$documented" ] || [ $((size - documented)) -gt 1 ] || [ $((documented - size)) -gt 1 ]; then
    echo "== docs/operations.md: the layer $layer has $size MB, not ${documented:-no size}"
    outdated=yes
  fi
done
[ -z "$outdated" ]
