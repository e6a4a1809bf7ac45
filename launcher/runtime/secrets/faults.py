"""Why the value of a secret could not be fetched from where it is kept."""

from __future__ import annotations


class SecretRefused(Exception):
    """Whoever keeps a secret refuses it. A second try would change nothing."""


class SecretUnanswered(Exception):
    """Whoever keeps a secret is busy, broken or not to be reached."""
