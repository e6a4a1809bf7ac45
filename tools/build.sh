#!/bin/sh
# build.sh [NAME]: builds a program that tests need and that no package brings: versitygw, a real S3 server over a folder;
# or actionlint. tools/NAME/go.mod pins the version, go.sum every hash. Builds once per pin, into .tools/bin.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
name=${1:-versitygw}
pin=$root/tools/$name
bin=$root/.tools/bin/$name
stamp=$root/.tools/$name.pin

wanted=$(cat "$pin/go.mod" "$pin/go.sum" | cksum)
if [ -x "$bin" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi
if ! command -v go >/dev/null 2>&1; then
    echo "tools: no Go here, so no $name; without versitygw, tests that need a real S3 server use moto"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$pin/go.mod" "$pin/go.sum" "$work"
module=$(sed -n 's/^require \([^ ]*\) .*/\1/p' "$pin/go.mod")
echo "tools: building $name $(sed -n 's/^require [^ ]* v//p' "$pin/go.mod") (a minute, once)"
# `go install module@version` would ask for the list of versions; a module with one requirement asks for none
(cd "$work" && CGO_ENABLED=0 GOFLAGS="-buildvcs=false -mod=mod" \
    go build -trimpath -ldflags "-s -w" -o "$name" "$module/cmd/$name")
if ! cmp -s "$work/go.sum" "$pin/go.sum"; then
    echo "tools: the build wanted modules that tools/$name/go.sum does not pin" >&2
    exit 1
fi
mkdir -p "$(dirname "$bin")"
mv "$work/$name" "$bin.new"
mv "$bin.new" "$bin"
printf '%s\n' "$wanted" >"$stamp"
