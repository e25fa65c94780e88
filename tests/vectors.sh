#!/bin/sh
# Generates the test vectors of other programs again and compares them: Go's templates with sprig, Masterminds' versions, the schema
# packages of kube-apiserver, net/url, and the reference program of docs/reference/plan-id.md.
set -eu
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# The flags of the other Go builds, to use their cache.
export GOFLAGS="-trimpath -buildvcs=false -mod=readonly"

# check NAME FOLDER FILE [ARGUMENT...]: runs the program in a copy of the folder. With `-` as the first argument it writes FILE itself.
check() {
  name=$1 folder=$2 file=$3
  shift 3
  cp -r "$folder" "$scratch/$name"
  (
    cd "$scratch/$name"
    rm "$file"
    if [ "${1:-}" = - ]; then go run .; else go run . "$@" > generated && mv generated "$file"; fi
  )
  diff -u "$folder/$file" "$scratch/$name/$file"
  echo "$name: $folder/$file is up to date"
}

python3 docs/reference/plan-id.py --check docs/reference/plan-id-vectors.json
check semver runtime/tests/semver vectors.txt
check sprig tests/assets/sprig vectors.jsonl -
check schema embedded/tests/vectors expected.json cases.json
check urls source-controller/tests/urls vectors.jsonl
