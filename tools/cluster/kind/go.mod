module slipway.tools/cluster/kind

go 1.24.0

require sigs.k8s.io/kind v0.30.0
