#!/bin/sh
# Renders src/ into jobs/. A file that is there for an unchanged run stays as it is; nothing is ever removed: delete a
# file by hand when its Job may go. LAUNCHER: another launcher than the PATH's.
set -eu
launcher=${LAUNCHER:-launcher}
case $launcher in
  /*) ;;
  */*) launcher=$PWD/$launcher ;; # a path from where the caller stands
esac
cd "$(dirname "$0")"
$launcher render src --to jobs
$launcher lint jobs
