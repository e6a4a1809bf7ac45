module slipway.tools/cosign

go 1.25.7

require github.com/sigstore/cosign/v3 v3.0.6
