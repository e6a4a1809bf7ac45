module slipway.tools/cluster/argocd

go 1.26.3

require github.com/argoproj/argo-cd/v3 v3.5.7
