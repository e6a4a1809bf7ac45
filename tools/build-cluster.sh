#!/bin/bash
# Builds the programs of the tests' Kubernetes cluster, each only when it is named:
#   tools/build-cluster.sh kube-apiserver kubelet ...     into .tools/bin, once per pin
#   tools/build-cluster.sh jobset-manifests ...           CRDs and webhooks out of a module, into .tools/cluster; nothing is compiled
#   tools/build-cluster.sh argocd source-controller ...   the controllers of Argo CD and Flux (`make gitops-tools`)
#   tools/build-cluster.sh kind kubeadm kind-etcd ...     kind, and what its node needs besides (`make kind-tools`)
#   tools/build-cluster.sh jobset-release ...        the manifests of a project's release, into .tools/cluster/releases (needs kubectl)
#   tools/build-cluster.sh --pin NAME ...                 writes go.mod and go.sum of tools/cluster anew, after a change of version
# SLIPWAY_CLUSTER_SET=oldest or newest takes the pins of tools/cluster/SET where it has them, and builds into .tools/SET.
# tools/cluster/go.work names the pins that are built with one set of versions; the others stand alone.
# Go is found on PATH, in SLIPWAY_GO (/usr/local/go/bin) or in .tools/go/bin. tools/cluster/*/go.mod pins the versions, go.sum every hash. Exit 3: no Go here, and something was to be built.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
set=${SLIPWAY_CLUSTER_SET:-}
case $set in "" | oldest | newest) ;; *) echo "build-cluster: SLIPWAY_CLUSTER_SET is $set; allowed: oldest, newest" >&2; exit 2 ;; esac
bin=$root/.tools${set:+/$set}/bin
state=$root/.tools${set:+/$set}/cluster
export PATH="$PATH:${SLIPWAY_GO:-/usr/local/go/bin}:$root/.tools/go/bin" CGO_ENABLED=0 GOFLAGS="-buildvcs=false" GOWORK=off
mode=readonly
if [ "${1:-}" = --pin ]; then mode=mod; shift; fi
mkdir -p "$bin" "$state"

pin_of() {
    case $1 in
        kube-apiserver | kube-controller-manager | kube-scheduler | kubelet | kube-proxy | kubectl) echo kubernetes ;;
        kwok | coredns) echo "$1" ;;
        jobset-manager | jobset-manifests | jobset-release) echo jobset ;;
        kueue-manager | kueue-manifests | kueue-release) echo kueue ;;
        coscheduling-manifests) echo coscheduling ;;
        provisioning-manifests) echo provisioning ;;
        containerd | containerd-shim-runc-v2 | ctr) echo containerd ;;
        argocd | argocd-manifests) echo argocd ;;
        source-controller | kustomize-controller | flux-manifests) echo flux ;;
        kind | kind-manifests) echo kind ;;
        kubeadm) echo kubeadm ;; # of Kubernetes' own version, but it needs more modules: one pin would rebuild the other programs
        etcd | kind-etcd) echo etcd ;;
        local-path-provisioner) echo localpath ;;
        *) echo "build-cluster: no program $1 is known" >&2; return 2 ;;
    esac
}

package_of() {
    case $1 in
        kwok) echo sigs.k8s.io/kwok/cmd/kwok ;;
        coredns) echo github.com/coredns/coredns ;;
        jobset-manager) echo sigs.k8s.io/jobset ;;
        kueue-manager) echo sigs.k8s.io/kueue/cmd/kueue ;;
        argocd) echo slipway.tools/cluster/argocd ;; # main.go beside go.mod
        source-controller | kustomize-controller) echo "github.com/fluxcd/$1" ;;
        kind) echo sigs.k8s.io/kind ;;
        etcd | kind-etcd) echo go.etcd.io/etcd/server/v3 ;; # kubeadm's flags need 3.6; tests find Debian's 3.4 as `etcd`
        containerd | containerd-shim-runc-v2 | ctr) echo "github.com/containerd/containerd/v2/cmd/$1" ;;
        local-path-provisioner) echo github.com/rancher/local-path-provisioner ;;
        *) echo "k8s.io/kubernetes/cmd/$1" ;;
    esac
}

written_as() { # go names a program by the last part of its package that is not a version
    local package
    package=$(package_of "$1")
    basename "${package%/v[0-9]}"
}

folder_of() { # pin: the folder with its go.mod
    if [ -n "$set" ] && [ -d "$root/tools/cluster/$set/$1" ]; then echo "$root/tools/cluster/$set/$1"; else echo "$root/tools/cluster/$1"; fi
}

version_of() { sed -n 's/^require [^ ]* v\([^ ]*\).*/\1/p' "$(folder_of "$1")/go.mod" | head -n 1; }

workspace_of() { # pin: the go.work that names its folder, or `off`. go.mod is written without one
    local work=$root/tools/cluster/go.work
    if [ $mode = readonly ] && [ "$(folder_of "$1")" = "$root/tools/cluster/$1" ] && grep -qx "	./$1" "$work"; then echo "$work"; else echo off; fi
}

# the first field: raised when the flags of a build change
wanted() (
    shopt -s nullglob
    work=$(workspace_of "$1")
    [ "$work" = off ] && work=
    cd "$(folder_of "$1")" && cat go.mod go.sum ./*.go ${work:+"$work" "$work.sum"} | cksum | sed 's/^/2 /'
)

done_before() { # name pin
    local made=$bin/$1
    case $1 in
        *-manifests) made=$state/${1%-manifests} ;;
        *-release) made=$(release_of "$2") ;;
    esac
    [ -e "$made" ] && [ "$(cat "$state/$1.pin" 2>/dev/null)" = "$(wanted "$2")" ]
}

source_of() { # pin module: the folder with the module's own files; go checks them against go.sum as it fetches them
    (cd "$(folder_of "$1")" && go mod download -json "$2") | sed -n 's/.*"Dir": "\(.*\)".*/\1/p'
}

manifests() { # name pin
    local module source
    rm -rf "${state:?}/$2"
    mkdir -p "$state/$2"
    for module in $(sed -n 's/^require \([^ (]*\) .*/\1/p' "$(folder_of "$2")/go.mod"); do
        source=$(source_of "$2" "$module")
        case $2 in
            argocd) # repo-server calls the script for each commit, signed or not
                cp "$source"/manifests/crds/{application,applicationset,appproject}-crd.yaml "$source"/hack/git-verify-wrapper.sh "$state/$2/"
                mkdir "$state/$2/config"
                cp "$source"/manifests/base/config/argocd-*.yaml "$state/$2/config/"
                ;;
            flux) cp "$source"/config/crd/bases/*.yaml "$state/$2/" ;;
            coscheduling) cp "$source"/config/crd/bases/scheduling.x-k8s.io_podgroups.yaml "$state/$2/" ;;
            provisioning) cp "$source"/config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml "$state/$2/" ;;
            kind) # what images/base/Dockerfile copies into a node, and the text of the storage class
                cp -r "$source/images/base/files" "$source/pkg/build/nodeimage/const_storage.go" "$state/$2/"
                ;;
            *)
                cp "$source"/config/components/crd/bases/*.yaml "$state/$2/" || { echo "build-cluster: no CRDs in $module" >&2; exit 1; }
                mkdir "$state/$2/webhook"
                cp "$source/config/components/webhook/manifests.yaml" "$state/$2/webhook/"
                ;;
        esac
    done
    chmod -R u+w "$state/$2"
}

copy_kwok() { # the copy that go.work names: go builds nothing in the workspace without it
    local copy=$root/.tools/cluster/kwok source
    source=$(source_of kwok sigs.k8s.io/kwok)
    rm -rf "$copy" && mkdir -p "${copy%/*}" && cp -r "$source" "$copy" && chmod -R u+w "$copy"
    sed -i 's|metav1.InitialEventsListBlueprintAnnotationKey|"kubernetes.io/initial-events-list-blueprint"|' "$copy/pkg/utils/informer/informer.go"
}

release_of() { echo "$state/releases/$1-$(version_of "$1").yaml"; } # as `launcher cluster up --manifests` names it

release() { # pin: what the project publishes with a release, made by its own kustomization; its images' names differ
    local module made
    made=$(release_of "$1")
    module=$(sed -n 's/^require \([^ (]*\) .*/\1/p' "$(folder_of "$1")/go.mod" | head -n 1)
    mkdir -p "$state/releases"
    "$bin/kubectl" kustomize "$(source_of "$1" "$module")/config/default" >"$made.new"
    mv "$made.new" "$made"
}

compile() { # pin name...: one call of go for all programs of a pin, so that two cores stay busy
    local pin=$1 version flags work=$state/build.$1 packages=() name
    shift
    version=$(version_of "$pin")
    flags="-s -w"
    if [ "$pin" = kubernetes ] || [ "$pin" = kubeadm ]; then # else the server reports a version that nobody released
        local variable=k8s.io/component-base/version minor=${version#*.}
        flags+=" -X $variable.gitVersion=v$version -X $variable.gitMajor=${version%%.*} -X $variable.gitMinor=${minor%%.*}"
    fi
    for name; do packages+=("$(package_of "$name")"); done
    local workspace sums=$root/tools/cluster/go.work.sum pinned
    workspace=$(workspace_of "$pin") pinned=$(cksum <"$sums")
    [ "$workspace" = off ] || copy_kwok
    rm -rf "$work" && mkdir -p "$work"
    echo "build-cluster: $* ($pin $version; minutes, once)"
    local start=$SECONDS
    # without debugging data, which -s and -w would drop in the end: a sixth of the time
    (cd "$(folder_of "$pin")" && GOWORK=$workspace go build -mod=$mode -trimpath -gcflags=all=-dwarf=false \
        -ldflags "$flags" -o "$work/" "${packages[@]}")
    if [ "$pinned" != "$(cksum <"$sums")" ]; then # of a workspace, go adds the hashes that it lacks
        echo "build-cluster: the build of $pin wanted modules that tools/cluster/go.work.sum did not pin" >&2
        exit 1
    fi
    for name; do
        local made=$work/$(written_as "$name")
        mv "$made" "$bin/$name.new" && mv "$bin/$name.new" "$bin/$name"
    done
    rmdir "$work"
    echo "build-cluster: $* took $((SECONDS - start)) s"
}

for name; do pin_of "$name" >/dev/null || exit 2; done
all_done() { for name; do done_before "$name" "$(pin_of "$name")" || return 1; done; }

if [ $mode = readonly ] && all_done "$@"; then exit 0; fi
exec 9>"$state/lock"
flock 9 # two test runs at once: one builds, the other waits and finds it done

for pin in kubernetes etcd containerd kwok jobset kueue provisioning coscheduling coredns flux argocd kind kubeadm localpath; do
    missing=() files=()
    for name; do
        [ "$(pin_of "$name")" = "$pin" ] || continue
        if [ $mode = readonly ] && done_before "$name" "$pin"; then continue; fi
        case $name in *-manifests | *-release) files+=("$name") ;; *) missing+=("$name") ;; esac
    done
    ((${#missing[@]} + ${#files[@]})) || continue
    command -v go >/dev/null || { echo "build-cluster: no Go here, so no ${missing[*]} ${files[*]}" >&2; exit 3; }
    for name in "${files[@]}"; do
        case $name in *-release) release "$pin" ;; *) manifests "$name" "$pin" ;; esac
    done
    ((${#missing[@]} == 0)) || compile "$pin" "${missing[@]}"
    for name in "${files[@]}" "${missing[@]}"; do wanted "$pin" >"$state/$name.pin"; done
done
