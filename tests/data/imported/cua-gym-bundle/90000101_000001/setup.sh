#!/usr/bin/env bash
# MARK-HIDDEN-SETUP
set -euo pipefail
mkdir -p /tmp_workspace/results
test -f /tmp_workspace/context/amounts.csv
test -s /tmp_workspace/.uda_hidden/seed.txt
