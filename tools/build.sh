#!/bin/sh
# build.sh [NAME...]: builds programs that tests and a release need and that no package brings, each once per pin, into
# .tools/bin: versitygw, a real S3 server over a folder; actionlint; what builds, signs and lists images. tools/PIN/go.mod pins
# their versions, go.sum every hash.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
PATH=$PATH:/usr/local/go/bin:$root/.tools/go/bin
for name in "${@:-versitygw}"; do
    case $name in
        actionlint) pin=actionlint package=github.com/rhysd/actionlint/cmd/actionlint ;;
        buildctl | buildkitd) pin=buildkit package=github.com/moby/buildkit/cmd/$name ;;
        buildx) pin=buildkit package=github.com/docker/buildx/cmd/buildx ;;
        cosign) pin=cosign package=github.com/sigstore/cosign/v3/cmd/cosign ;;
        oras) pin=oras package=oras.land/oras/cmd/oras ;;
        syft) pin=syft package=github.com/anchore/syft/cmd/syft ;;
        versitygw) pin=versitygw package=github.com/versity/versitygw/cmd/versitygw ;;
        *) echo "tools: no program $name; allowed: actionlint buildctl buildkitd buildx cosign oras syft versitygw" >&2; exit 2 ;;
    esac
    folder=$root/tools/$pin
    bin=$root/.tools/bin/$name
    stamp=$root/.tools/$name.pin
    wanted=$(cat "$folder/go.mod" "$folder/go.sum" | cksum)
    if [ -x "$bin" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        continue
    fi
    if ! command -v go >/dev/null 2>&1; then
        echo "tools: no Go here, so no $name; without versitygw, tests that need a real S3 server use moto"
        continue
    fi
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cp "$folder/go.mod" "$folder/go.sum" "$work"
    echo "tools: building $name (minutes, once)"
    # `go install module@version` would ask for the list of versions; a module with one requirement asks for none
    (cd "$work" && CGO_ENABLED=0 GOFLAGS="-buildvcs=false -mod=mod" \
        go build -trimpath -gcflags=all=-dwarf=false -ldflags "-s -w" -o "$name" "$package")
    if ! cmp -s "$work/go.sum" "$folder/go.sum"; then
        echo "tools: the build wanted modules that tools/$pin/go.sum does not pin" >&2
        exit 1
    fi
    mkdir -p "$(dirname "$bin")"
    mv "$work/$name" "$bin.new"
    mv "$bin.new" "$bin"
    printf '%s\n' "$wanted" >"$stamp"
    rm -rf "$work"
done
