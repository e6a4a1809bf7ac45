module slipway.tools/cluster/newest/containerd

go 1.26.0

require github.com/containerd/containerd/v2 v2.2.9
