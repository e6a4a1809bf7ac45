"""The desktop server: a session over HTTP, in the protocol of OSWorld and Windows Agent Arena and in our faster one.

`service` is the desktop without HTTP, `public` is the public protocol, `app` has ours and puts both on sockets, and
`python -m eval.desktops.server` runs one desktop.
"""
