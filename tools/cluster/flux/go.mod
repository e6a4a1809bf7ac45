module slipway.tools/cluster/flux

go 1.26.0

require github.com/fluxcd/source-controller v1.9.6

require github.com/fluxcd/kustomize-controller v1.9.5
