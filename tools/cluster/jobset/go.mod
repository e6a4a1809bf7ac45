module slipway.tools/cluster/jobset

go 1.25.0

require sigs.k8s.io/jobset v0.10.1
