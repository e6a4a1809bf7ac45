"""Finds secrets in what a user writes, so that none gets into a record, a manifest or a message."""
