module slipway.tools/actionlint

go 1.25.0

require github.com/rhysd/actionlint v1.7.7
