module slipway.tools/cluster/localpath

go 1.24.0

require github.com/rancher/local-path-provisioner v0.0.30
