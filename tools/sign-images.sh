#!/usr/bin/env bash
# Signs each image of images/catalogue.yaml with cosign, and attests the bill of materials that it holds. What the release
# workflow calls; elsewhere too, with COSIGN_KEY, the file of a private key. A catalogue that names no image signs nothing.
#   REGISTRY           host/path in front of the images' names, as for `launcher images push --registry`
#   REGISTRY_USER, REGISTRY_PASSWORD   where the registry asks for them
set -euo pipefail
cd "$(dirname "$0")/.."
catalogue=${CATALOGUE:-images/catalogue.yaml}
: "${REGISTRY:?is empty: host/path in front of the names of the images}"
if [ ! -e "$catalogue" ]; then echo "$catalogue: nothing was pushed, so nothing is signed"; exit 0; fi
if [ -n "${REGISTRY_PASSWORD:-}" ]; then
  printf %s "$REGISTRY_PASSWORD" | docker login "${REGISTRY%%/*}" --username "${REGISTRY_USER:?is empty}" --password-stdin
fi
key=(); if [ -n "${COSIGN_KEY:-}" ]; then key=(--key "$COSIGN_KEY"); fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed -n 's/^ *reference: *//p' "$catalogue" >"$work/references"
while read -r image; do
  case $image in
    "$REGISTRY"/*@sha256:*) ;;
    *) echo "$catalogue: $image is not below $REGISTRY" >&2; exit 2 ;;
  esac
  container=$(docker create "$image")
  docker cp "$container:/opt/slipway/sbom.cdx.json" "$work/bill.json"
  docker rm "$container" >/dev/null
  cosign sign --yes "${key[@]}" "$image"
  cosign attest --yes "${key[@]}" --type cyclonedx --predicate "$work/bill.json" "$image"
done <"$work/references"
echo "signed: $(wc -l <"$work/references") images"
