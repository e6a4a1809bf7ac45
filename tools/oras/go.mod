module slipway.tools/oras

go 1.26.2

require oras.land/oras v1.3.2
