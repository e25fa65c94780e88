#!/bin/sh
# Builds the program into the directory $1 for the images: no path of this machine is in it, so the same commit and the same compilers
# give the same bytes in every directory.
set -eu
workspace=$(pwd -P)
mkdir -p "$1"
target=$(cd "$1" && pwd -P)
cargo=${CARGO:-cargo}
cargo_home=$(cd "${CARGO_HOME:-$HOME/.cargo}" && pwd -P)

# The directories of sources are named after the registry, and exist only after this.
"$cargo" fetch --locked --target "$(rustc -vV | sed -n 's/^host: //p')"

# Of several prefixes the compilers take the last that fits.
rust= c=
map() {
  rust="$rust${rust:+$separator}--remap-path-prefix=$1=$2"
  c="$c -ffile-prefix-map=$1=$2"
}
separator=$(printf '\037')
map "$cargo_home" /cargo
for sources in "$cargo_home"/registry/src/*/; do
  [ ! -d "$sources" ] || map "${sources%/}" /crates
done
map "$(rustc --print sysroot)" /rust
map "$workspace" /sluice
map "$target" /build

# The C library of the images is that of Debian 12. Only the program is linked for it: build scripts run on this machine, whose C library
# may be older.
SLUICE_LINK_ARGS=$(sh "$workspace/images/link-args.sh" 2.36)
export SLUICE_LINK_ARGS

# Other flags would be in the program too.
unset RUSTFLAGS CARGO_BUILD_RUSTFLAGS CARGO_INCREMENTAL CARGO_PROFILE_RELEASE_DEBUG
CARGO_ENCODED_RUSTFLAGS=$rust CFLAGS="${c# }" \
  exec "$cargo" build --locked --release --package sluice --bin sluice --target-dir "$target"
