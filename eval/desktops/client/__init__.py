"""Clients of desktop servers: `fast` for ours, `public` for those of OSWorld and Windows Agent Arena."""
