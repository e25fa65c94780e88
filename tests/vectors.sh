#!/bin/sh
# Vectors that other programs made are made again and compared: Go's templates with sprig, Masterminds' versions, the schema
# packages of kube-apiserver, net/url, and the reference program of docs/plan-id.md.
set -eu
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# The flags of the other Go builds, so that their cache is found.
export GOFLAGS="-trimpath -buildvcs=false -mod=readonly"

# again NAME FOLDER FILE [ARGUMENT...]: runs the folder's program in a copy of it. `-` as the first argument: it writes FILE itself.
again() {
  name=$1 folder=$2 file=$3
  shift 3
  cp -r "$folder" "$scratch/$name"
  (
    cd "$scratch/$name"
    rm "$file"
    if [ "${1:-}" = - ]; then go run .; else go run . "$@" > made && mv made "$file"; fi
  )
  diff -u "$folder/$file" "$scratch/$name/$file"
  echo "$name: $folder/$file is what Go makes"
}

python3 docs/plan-id.py --check docs/plan-id-vectors.json
again semver runtime/tests/semver vectors.txt
again sprig tests/assets/sprig vectors.jsonl -
again schema embedded/tests/vectors expected.json cases.json
again urls source-controller/tests/urls vectors.jsonl
