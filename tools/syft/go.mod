module slipway.tools/syft

go 1.25.0

require github.com/anchore/syft v1.38.0
