"""Benchmarks: agentnetbench (OpenCUA) and screenspot (ScreenSpot, v2, Pro) offline, linux_desktop (our own), and
osworld (task files in its format)."""
