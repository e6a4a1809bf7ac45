module slipway/buildkit

go 1.24.0

require (
	github.com/docker/buildx v0.19.3
	github.com/moby/buildkit v0.18.2
)
