"""Saved documents of LibreOffice, written for a start state and read by judges (OpenDocument 1.3)."""
