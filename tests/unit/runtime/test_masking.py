"""No byte of a secret gets out, however the stream is cut, and nothing else is touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.runtime.secrets.masking import MASK, Masker

LETTERS = st.text("abc", min_size=1, max_size=5)


def model(data: bytes, secrets: list[bytes]) -> bytes:
    """Masks the union of all occurrences at once."""
    hidden = [-1] * len(data)
    starts = set()
    for secret in secrets:
        for at in range(len(data)):
            if data.startswith(secret, at):
                starts.add(at)
                for index in range(at, at + len(secret)):
                    hidden[index] = max(hidden[index], at)
    out = b""
    end = 0  # of the occurrence that is being masked
    for index, byte in enumerate(data):
        if hidden[index] < 0:
            out += bytes([byte])
        elif index in starts and index >= end:
            out += MASK
        for secret in secrets:
            if data.startswith(secret, index):
                end = max(end, index + len(secret))
    return out


@given(st.lists(LETTERS, max_size=3), st.lists(st.text("abcx", max_size=8), max_size=6))
def test_any_cut_gives_the_mask_of_the_whole(secrets: list[str], chunks: list[str]) -> None:
    masker = Masker(secrets)
    out = b"".join(masker.feed(chunk.encode()) for chunk in chunks) + masker.flush()
    assert out == model("".join(chunks).encode(), [secret.encode() for secret in secrets])


def test_a_secret_is_masked_wherever_two_chunks_part_it() -> None:
    text = b"token hf_secret, and more"
    for cut in range(len(text) + 1):
        masker = Masker(["hf_secret"])
        assert masker.feed(text[:cut]) + masker.feed(text[cut:]) + masker.flush() == b"token ***, and more", cut


def test_only_the_beginning_of_a_secret_is_held_back() -> None:
    masker = Masker(["hf_secret"])
    assert masker.feed(b"token hf_se") == b"token "
    assert masker.feed(b"ven\n") == b"hf_seven\n"
    assert masker.feed(b"x hf_") + masker.feed(b"secret y") == b"x *** y"
    assert masker.flush() == b""


def test_binary_is_kept() -> None:
    masker = Masker(["hf_secret"])
    data = bytes(range(256)) * 10
    assert masker.feed(data) + masker.flush() == data


@pytest.mark.parametrize("shown", ["first line of it\nsecond line of it", "> first line of it", "second line of it\r"])
def test_a_secret_of_several_lines_is_masked_line_by_line(shown: str) -> None:
    masked = Masker(["first line of it\nsecond line of it\n"]).text(shown)
    assert "line of it" not in masked
    assert "***" in masked


def test_no_secret_no_change() -> None:
    assert Masker(["", "\n"]).text("as it was") == "as it was"
