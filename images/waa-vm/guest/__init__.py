"""A desktop in a virtual machine: QEMU under a controller that boots, watches, snapshots, resets and shows it.

config    what a guest is made of
qmp       QEMU's monitor protocol
machine   one virtual machine: start, health, snapshot, reset, screenshot, stop
control   the HTTP port beside it: /ready, /reset, /screenshot.png, /console, noVNC
"""
