module slipway.tools/cluster/coscheduling

go 1.25.0

require sigs.k8s.io/scheduler-plugins v0.31.8
