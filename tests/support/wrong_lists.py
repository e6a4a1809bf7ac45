"""Answers to a listing of S3 that are no true list: what proxies, wrong settings and lagging servers send, all with
status 200. A client that does not look twice takes each of them for a list in which something is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tests.support.ledger import Ledger
from tests.support.listlag import lagged

KINDS: Final = ("page", "broken page", "buckets", "empty", "truncated", "shorter", "other prefix", "old")
_BODIES: Final[Mapping[str, bytes]] = {
    "page": b"<html><head><title>Sign in</title></head><body><p>Sign in to this network</p></body></html>",
    "broken page": b"<!doctype html><html><head><meta charset=utf-8></head><body><input></form></body></html>",
    "buckets": b'<?xml version="1.0"?><ListAllMyBucketsResult><Owner><ID>x</ID></Owner><Buckets><Bucket><Name>store'
    b"</Name></Bucket></Buckets></ListAllMyBucketsResult>",
    "empty": b"",
}


def wrong(kind: str, answer: bytes, target: str, ledger: Ledger) -> bytes:
    """The body of the answer to a listing, spoilt in the way of KINDS. `target`: the request's path and query."""
    if kind in _BODIES:
        return _BODIES[kind]
    if kind == "truncated":
        return answer[: len(answer) // 2]
    if kind == "shorter":  # well-formed, and without its second half
        items = re.findall(rb"<Contents>.*?</Contents>|<CommonPrefixes>.*?</CommonPrefixes>", answer, re.DOTALL)
        items.sort(key=lambda item: re.findall(rb"<(?:Key|Prefix)>([^<]*)", item))
        for item in items[len(items) // 2 :]:
            answer = answer.replace(item, b"")
        return re.sub(rb"<IsTruncated>true", b"<IsTruncated>false", answer)
    if kind == "other prefix":
        return re.sub(rb"(<Key>|<Prefix>)[^<]*", rb"\1another/team/a-0123456789ab/job.json", answer)
    return lagged(answer, target, ledger, 60.0)  # the state of a minute ago
