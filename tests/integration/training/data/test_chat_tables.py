"""Chats in parquet files and in data sets of a hub, read by `datasets`; a folder stands for the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eval.config import ConfigError
from eval.prompts import PromptConfig
from tests.data.chats.rows import rows
from tests.unit.training.data.test_chat_forms import pictures
from training.data.chat import COMMITS
from training.data.faults import Faults
from training.data.source import open_source


@pytest.mark.parametrize("place", ["folder", "hub"])
def test_a_table_with_image_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Parquet as TRL's data sets of the hub have it; the completion alone is learnt."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "data" / "data").mkdir(parents=True)
    one, two = pictures(tmp_path)
    turns = rows()["trl"]["turned"]["messages"]
    kept = {"prompt": [turns[:3]], "completion": [turns[3:]], "images": [[{"bytes": data} for data in (two, one, two)]]}
    table = datasets.Dataset.from_dict(kept).cast_column("images", datasets.List(datasets.Image()))
    table.to_parquet(tmp_path / "data" / "data" / "train-00000-of-00001.parquet")
    where = str(tmp_path / "data")
    if place == "hub":
        real, asked = datasets.load_dataset, []

        def load(name: str, **options: Any) -> Any:
            asked.append((name, options.pop("revision")))
            return real(where, **options)

        monkeypatch.setattr(datasets, "load_dataset", load)
        commit = "0123456789" * 4
        where_asked = f"hf://datasets/owner/name@{commit}"
    else:
        where_asked = where
    for _ in range(2):  # the second time from the folder that the first one made
        (sample,) = open_source(where_asked, PromptConfig().builder(), Faults())
    assert place == "folder" or (asked, COMMITS[where_asked]) == ([("owner/name", commit)], commit)
    assert [Image.open(image).getpixel((0, 0))[0] for image in sample.images] == [2, 1, 2]  # type: ignore[arg-type, index]
    assert sample.answer_only
    assert [part["type"] for part in sample.messages[0]["content"]] == ["text", "image", "text", "image", "text"]


def test_what_the_hub_refuses_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import huggingface_hub

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for place, said in (
        ("hf://datasets/nobody", r"hf://datasets/OWNER/NAME\[@REVISION\]"),
        ("hf://datasets/owner/name", "data: hf://datasets/owner/name: .*(?i:offline)"),
        (f"hf://datasets/owner/name@{'0' * 40}", "data: hf://datasets/owner/name@0"),
    ):
        with pytest.raises(ConfigError, match=said):
            open_source(place, PromptConfig().builder(), Faults())
