"""Desktops as they are now: RFB and what keeps the connections."""
