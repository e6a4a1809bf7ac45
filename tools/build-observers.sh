#!/bin/sh
# Builds what the nightly tests of metrics and traces talk to: Prometheus and an OpenTelemetry collector, each once per pin,
# into .tools/bin. tools/NAME/go.mod pins the version, go.sum every hash.
#   tools/build-observers.sh prometheus otelcol
# Exit 3: no Go here, and something was to be built.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
export PATH="$PATH:${SLIPWAY_GO:-/usr/local/go/bin}:$root/.tools/go/bin" CGO_ENABLED=0 GOFLAGS="-buildvcs=false"

for name; do
    pin=$root/tools/$name
    bin=$root/.tools/bin/$name
    stamp=$root/.tools/$name.pin
    case $name in
        # what finds targets in clouds is left out: the tests name theirs
        prometheus) package=github.com/prometheus/prometheus/cmd/prometheus tags=remove_all_sd ;;
        otelcol) package=slipway.tools/otelcol tags= ;; # main.go beside go.mod: three parts, of the hundreds that there are
        *) echo "build-observers: no program $name is known" >&2; exit 2 ;;
    esac
    wanted=$(cat "$pin"/go.mod "$pin"/go.sum "$pin"/*.go 2>/dev/null | cksum)
    if [ -x "$bin" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then continue; fi
    command -v go >/dev/null 2>&1 || { echo "build-observers: no Go here, so no $name" >&2; exit 3; }
    echo "build-observers: $name (minutes, once)"
    mkdir -p "$root/.tools/bin"
    (cd "$pin" && go build -mod=readonly -trimpath -tags "$tags" -ldflags "-s -w" -o "$bin.new" "$package")
    mv "$bin.new" "$bin"
    printf '%s\n' "$wanted" >"$stamp"
done
