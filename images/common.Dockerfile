# --- images/common.Dockerfile: the head of every image; change it there, then `python -m launcher.images.common` ---
# The digest is that of the index debian:bookworm-20261005-slim (amd64, arm64, ...). A newer one:
#   docker buildx imagetools inspect docker.io/library/debian:bookworm-slim --format '{{.Manifest.Digest}}'
ARG BASE=docker.io/library/debian:bookworm-slim@sha256:7c7b2c966bc9ee8cedfeef67e0e279108992c77681fa595db4a9d65c06ccc587
# The time that an image and all its files get, whenever it is built: that of the base.
ARG SOURCE_DATE_EPOCH=1791158400
# A time, as 20261122T000000Z: Debian's packages are those that its archive had then. Without it they are those of the day
# of the build, from wherever the base gets them; their list is then part of the version (launcher/images/debian.py).
ARG SNAPSHOT=
ARG ARCHIVE=http://snapshot.debian.org/archive

# What every stage and every image stands on: Python 3.11 and a user. HOME and caches are /work, so that a read-only root
# with a tmpfs there is enough: Triton, FlashInfer and CUDA's driver write below HOME. USER and LOGNAME are for libraries
# that ask who they are, under a uid that nobody named. The times of files are rewritten after the build, so bytecode must
# not rest on those of sources that are newer than SOURCE_DATE_EPOCH; useradd writes its day into /etc/shadow. No program
# keeps a setuid or setgid bit (su, mount, passwd): images/sbom.py ends the build of an image that has one.
FROM ${BASE} AS base
ARG SOURCE_DATE_EPOCH
ARG SNAPSHOT
ARG ARCHIVE
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV LANG=C.UTF-8 \
    PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/work \
    USER=slipway \
    LOGNAME=slipway \
    XDG_CACHE_HOME=/work/.cache \
    HF_HUB_DISABLE_TELEMETRY=1 \
    DO_NOT_TRACK=1
RUN if [ -n "$SNAPSHOT" ]; then \
      rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* \
      && for suite in debian/bookworm debian/bookworm-updates debian-security/bookworm-security; do \
        echo "deb [check-valid-until=no] $ARCHIVE/${suite%/*}/$SNAPSHOT ${suite#*/} main" >> /etc/apt/sources.list; \
      done; \
    fi \
    && apt-get update -q --error-on=any \
    && apt-get upgrade -qy \
    && apt-get install -qy --no-install-recommends ca-certificates python3 \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/* /var/log/* /tmp/* \
    && groupadd --gid 1000 slipway \
    && useradd --uid 1000 --gid 1000 --no-log-init --create-home --home-dir /home/slipway slipway \
    && install -d -o slipway -g slipway -m 1777 /work \
    && find / -xdev -type f -perm /6000 -exec chmod ug-s {} + \
    && find /usr/lib/python3* -name '*.py' -newermt "@$SOURCE_DATE_EPOCH" -print0 \
      | xargs -0r python3 -m compileall -q -f --invalidation-mode unchecked-hash

# Where packages are installed: uv, and an empty environment that knows where our code will lie. Bytecode is made here,
# because the user cannot write it later; its validity rests on the sources' hash, not on times that a build changes.
FROM base AS builder
ENV UV_NO_CACHE=1 UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 PYC_INVALIDATION_MODE=UNCHECKED_HASH PYTHONHASHSEED=0
COPY tools/uv.lock images/sbom.py images/records.py /build/
RUN apt-get update -q --error-on=any \
    && apt-get install -qy --no-install-recommends python3-venv \
    && python3 -m venv /opt/uv \
    && /opt/uv/bin/pip install -q --no-cache-dir --disable-pip-version-check --require-hashes -r /build/uv.lock \
    && ln -s /opt/uv/bin/uv /usr/local/bin/uv \
    && uv venv -q --python /usr/bin/python3 /opt/venv \
    && echo /opt/slipway > /opt/venv/lib/python3.11/site-packages/slipway.pth
# --- end of images/common.Dockerfile ---
