"""Whose run an object is that Flux has on its list."""

from __future__ import annotations

import pytest

from launcher.backends.kubernetes.carrying import holds

RUN, ALL = "train-0123456789ab", "train-ba9876543210"


@pytest.mark.parametrize(
    ("name", "pod"),
    [
        (RUN, ""),
        (ALL, f"{ALL}-x7k2p"),
        (ALL, f"{ALL}-17-x7k2p"),
        (ALL, f"{ALL}-train-0-12-x7k2p"),
        (ALL, f"{ALL}-train-2-nd-0-0-x7k2p"),
    ],
)
def test_an_object_of_the_run_holds_it(name: str, pod: str) -> None:
    assert holds(name, RUN, ["", pod])


@pytest.mark.parametrize(
    ("name", "pod"),
    [
        ("train", f"{RUN}-x7k2p"),
        ("train", f"{ALL}-train-0-0-x7k2p"),
        (RUN[:-1], f"{RUN}-x7k2p"),
        (ALL, ""),
        # another job's run, whose id is the beginning of this pod's object
        (ALL, f"{ALL}-0123456789ab-x7k2p"),
        (ALL, f"{ALL}-0123456789ab-2-x7k2p"),
    ],
)
def test_an_object_whose_name_is_a_runs_beginning_does_not(name: str, pod: str) -> None:
    assert not holds(name, RUN, [pod])
