"""Queue entries: what is rendered is what is read back, whatever texts a job holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.backends.local.entry import entries, parse
from launcher.errors import BadInput
from launcher.spec.hashing import run_hash, run_id
from tests.support.jobs import job, reads

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=60)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(texts, plain, max_size=5), st.dictionaries(texts, texts, max_size=3))
def test_an_entry_survives_any_text(config: dict[str, object], env: dict[str, str]) -> None:
    made = job("any", config=config, role={"env": env})
    (entry,) = entries([made])
    again = parse(entry.text())
    assert again == entry
    assert run_hash(again.job) == run_hash(made)
    assert again.text() == entry.text()


@pytest.mark.parametrize(
    "text",
    [
        "on",
        "no",
        "0777",
        "1e-5",
        "1_000",
        "~",
        "null",
        "2026-11-21",
        "=",
        "<<",
        "!x",
        "a: b",
        "\x85",
        "\u2028",
        "\ufeff",
        "😀",
        "\x07",
        " x ",
    ],
)
def test_words_that_yaml_reads_otherwise(text: str) -> None:
    made = job("words", config={text: text}, labels={"key": text})
    assert parse(entries([made])[0].text()).job == made


def test_upstream_runs_of_the_same_submit() -> None:
    first = job("first")
    second = job("second", inputs={"x": reads(first)})
    other = job("third", inputs={"x": reads(job("elsewhere", "1"))})
    made = {entry.job.name: entry for entry in entries([first, second, other])}
    assert list(made["second"].upstream) == [run_id(first)]
    assert made["third"].upstream == {}
    assert len(made["third"].works) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("entry: 1", "entry: 2"),
        ("retries", "tries"),
        ("name: x", "name: y"),
        ("job:", "job: ]"),
        ("run: x-", "run: z-"),
    ],
)
def test_a_damaged_entry_is_refused(old: str, new: str) -> None:
    from launcher.spec.model import Limits

    text = entries([job("x", limits=Limits(retries=2))])[0].text()
    assert old in text
    with pytest.raises(BadInput):
        parse(text.replace(old, new))
