"""A real kind on a machine of the tests, from nothing and without a registry.

engine      a Docker engine with networks of its own, in a network namespace
archive     images as files that docker and containerd load, made from files of this machine
node_image  the image of kind's node: Debian, kind's own files, and the programs of `make kind-tools`
"""
