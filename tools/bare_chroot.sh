#!/usr/bin/env bash
# Runs `make test`, or another command, where nothing is installed but Debian's python3, python3-venv, make and
# ca-certificates: in a chroot, as a user that is not root, without git, gcc, Go and X.
#
#   tools/bare_chroot.sh [--release NAME] FOLDER [COMMAND...]   # root; needs Debian's mmdebstrap, git and about 10 GB in FOLDER
#
# The chroot is made once, from this machine's own package sources, of its release of Debian or of NAME (trixie has
# Python 3.13). The commit that is checked out here is laid into it each time, and what an earlier command installed
# there (.venv) stays. Remove FOLDER for a fresh machine.
# How this machine reaches its package registry (pip's and uv's settings, proxies, certificates) is taken along.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
. /etc/os-release
release=$VERSION_CODENAME
if [ "$1" = --release ]; then release=$2 && shift 2; fi
folder=$(realpath -m "$1")
shift
(($#)) || set -- make test
user=newcomer
clone=$folder/home/$user/slipway

if [ ! -e "$folder/etc/debian_version" ]; then
  made=$(mktemp -d)
  trap 'rm -rf "$made"' EXIT
  options=$made/options
  apt-config dump Acquire >"$options"
  sources=()
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
    [ -s "$file" ] || continue
    sources+=("$made/${file##*/}") # mmdebstrap tells the two formats apart by the name
    sed "s/\b$VERSION_CODENAME\b/$release/g" "$file" >"${sources[-1]}"
  done
  mmdebstrap --quiet --mode=root --variant=minbase --include=python3,python3-venv,make,ca-certificates \
    --aptopt="$options" "$release" "$folder" "${sources[@]}"
  chroot "$folder" useradd --create-home --shell /bin/bash "$user"
fi

for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/uv/uv.toml /etc/ssl/certs/ca-certificates.crt; do
  if [ -e "$file" ]; then install -D -m 644 "$file" "$folder$file"; fi
done
for settings in .config/pip .config/uv; do
  if [ -e "$HOME/$settings" ]; then
    mkdir -p "$folder/home/$user/.config"
    cp -rT "$HOME/$settings" "$folder/home/$user/$settings"
  fi
done

if [ ! -e "$clone" ]; then git clone -q --no-local --no-checkout "$here" "$clone"; fi
in_clone() { git -c safe.directory='*' -C "$clone" "$@"; }
in_clone fetch -q "$here" HEAD
in_clone checkout -q --force --detach FETCH_HEAD
in_clone clean -dfq
find "$folder/home/$user" -user 0 -exec chown -h --reference="$folder/home/$user" {} +

# Mounts and processes are in namespaces of their own, and end with the command
inside='
root=$1 user=$2
shift 2
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
  touch "$root/dev/$device" && mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
chroot --userspec="$user:$user" "$root" env --chdir="/home/$user/slipway" "$@"
exit # so that this shell stays, which collects the processes that lost their parents'
environment=(HOME="/home/$user" USER="$user" LANG=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin TERM=dumb)
for name in $(compgen -e); do
  case $name in
  PIP_* | UV_* | SSL_CERT_* | REQUESTS_CA_BUNDLE | *_proxy | *_PROXY) environment+=("$name=${!name}") ;;
  esac
done
unshare --mount --pid --fork --kill-child bash -ceu "$inside" - "$folder" "$user" -i "${environment[@]}" "$@"
