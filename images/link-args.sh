#!/bin/sh
# Prints the linker arguments of a smaller program for this machine and the version $1 of the GNU C library. The linker of Rust on x86-64
# (LLD) keeps one copy of equal functions, and packs the relocations, which the C library reads from 2.36 on. Elsewhere the linker is the
# system's, which may know neither.
set -eu
case $(rustc -vV | sed -n 's/^host: //p') in
  x86_64-*-linux-gnu) arguments=-Wl,--icf=all ;;
  *) exit 0 ;;
esac
oldest=$(printf '%s\n' 2.36 "${1:-0}" | sort -V | head -n 1)
[ "$oldest" != 2.36 ] || arguments=$arguments,-z,pack-relative-relocs
echo "$arguments"
