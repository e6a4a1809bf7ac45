"""Rows of others' projects become what their own loaders make of them (tests/data/chats)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eval.config import ConfigError
from eval.prompts import PromptConfig
from tests.data.chats.rows import LLAVA_WRONG, rows
from training.data.chat import ChatSamples
from training.data.chat_forms import read_row
from training.data.faults import BadSample, Faults
from training.data.source import open_source

GOLDEN = Path(__file__).parents[3] / "data" / "chats"
# where theirs takes what ours refuses, and the other way round
ADDED = {("ms-swift", "missing")}  # it puts one more mark before the first text
CASES = [(form, name) for form, named in rows().items() for name in named]


def plain(row: dict[str, Any]) -> list[dict[str, Any]]:
    chat = read_row(copy.deepcopy(row))
    left = iter(chat.pictures)
    return [
        {
            "role": turn["role"],
            "content": [
                {"image": next(left)} if part["type"] == "image" else {"text": part["text"]} for part in turn["content"]
            ],
        }
        for turn in chat.turns
    ]


@pytest.mark.parametrize(("form", "name"), CASES)
def test_a_row_is_read_as_its_own_loader_reads_it(form: str, name: str) -> None:
    row = rows()[form][name]
    theirs = json.loads((GOLDEN / f"{form}.json").read_text(encoding="utf-8")).get(name)
    if theirs is None or "refused" in theirs or (form, name) in ADDED:
        assert theirs is not None or name in LLAVA_WRONG
        with pytest.raises(BadSample, match=r"images_do_not_fit|places"):
            plain(row)
    else:
        assert plain(row) == theirs


def chat(**fields: Any) -> dict[str, Any]:
    turns = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Kane."}]
    return {"messages": turns, **fields}


REFUSED: list[tuple[dict[str, Any], str]] = [
    (chat(videos=["a.mp4"]), "unknown_field: videos: not understood"),
    (chat(tools="[]"), "unknown_field: tools"),
    (chat(rejected="no"), "unknown_field: rejected"),
    (chat(objects={"bbox": []}), "unknown_field: objects"),
    ({"instruction": "Who?", "output": "Kane."}, "unknown_field: instruction"),
    ({"query": "Who?", "response": "Kane."}, "unknown_field: query"),
    (chat(conversations=[{"from": "human", "value": "x"}]), "turns in messages, conversations"),
    (chat(image="1.png", images=["1.png"]), "give either image or images"),
    ({"messages": [{"role": "user", "content": "<video>"}]}, "<video> is the place"),
    ({"messages": [{"role": "tool", "content": "x"}]}, r"messages\[0\].role: 'tool'; allowed: system, user"),
    ({"messages": [{"role": "assistant", "content": "x", "tool_calls": [{"f": 1}]}]}, r"messages\[0\].tool_calls"),
    ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, r"messages\[0\].content\[0\]: 'video'"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "weight": 2}]}]}, "weight"),
    ({"messages": [{"role": "user", "content": 5}]}, "a text or a list of parts"),
    ({"messages": "x"}, "a list of turns"),
    ({"prompt": chat()["messages"][:1], "completion": chat()["messages"]}, "completion: it is one turn"),
    ({"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "<image>"}]}]}, "not both"),
    ({"messages": [{"role": ["user"], "content": "x"}]}, r"messages\[0\].role: \['user'\]; allowed: system, user"),
    ({"conversations": [{"from": {"role": "human"}, "value": "x"}]}, r"conversations\[0\].from: {'role'"),
    (chat(image_path="1.png"), "unknown_field: image_path"),
    (chat(images=["1.png"], video_file="a"), "unknown_field: video_file"),
    (chat(images=["1.png"], screenshot_link="https://a/b"), "unknown_field: screenshot_link"),
    (chat(file_name="1.PNG"), "unknown_field: file_name"),
    (chat(meta={"files": ["a.txt", "b.webm "]}), "unknown_field: meta"),
    (chat(source="data:image/png;base64,AAAA"), "unknown_field: source"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "said"), REFUSED, ids=[said[:30] for _, said in REFUSED])
def test_what_carries_content_and_is_not_understood_is_named(row: dict[str, Any], said: str) -> None:
    with pytest.raises(BadSample, match=said):
        read_row(row)


def test_what_says_nothing_is_passed_over() -> None:
    assert len(read_row(chat(id=7, source="web", tools=None, videos=[], num_tokens=4, system="")).turns) == 2
    about = {"image_id": 7, "image_width": 40, "photo_license": "CC0", "url": "https://a/1.png", "file": "a.txt"}
    assert read_row(chat(images=["1.png"], **about)).pictures == ["1.png"]


@pytest.mark.parametrize(
    "text",
    ["<|image_1|> Who?", "Who? <img>1.png</img>", "<image 1> Who?", "[IMG] Who?", "<ImageHere>Who?", "![who](1.png)?"],
)
def test_the_mark_of_another_project_is_no_text(text: str) -> None:
    """Where it names the picture's place, the picture would stand elsewhere, and the mark be learnt as text."""
    turns = [{"role": "user", "content": text}, {"role": "assistant", "content": "Kane. ![he](he.png)"}]
    with pytest.raises(BadSample, match=r"unknown_part: .*is no place of a picture here; write <image>"):
        read_row({"messages": turns, "images": ["1.png"]})
    turns[0]["content"] = f"<image>{text}"  # with a place of its own it is what the user says
    assert read_row({"messages": turns, "images": ["1.png"]}).turns[0]["content"][1]["text"] == text
    assert read_row({"messages": [{"role": "user", "content": text}, turns[1]]}).pictures == []


def test_a_pairs_question_comes_before_its_answer_in_whatever_order_it_is_written() -> None:
    pairs = [{"assistant": "Kane.", "human": "Who?"}, {"user": "Sure?", "bot": "Yes."}]
    assert [turn["role"] for turn in read_row({"conversation": pairs}).turns] == ["user", "assistant"] * 2


def test_parts_of_a_table_name_their_pictures_by_number() -> None:
    """As in llava-instruct-mix-vsft: every part has every key, and `index` says which picture."""
    parts = [{"type": "image", "index": n, "text": None} for n in (1, 0)]
    content = [*parts, {"type": "text", "index": None, "text": "Which?"}]
    row = read_row(
        {
            "messages": [{"role": "user", "content": content}, {"role": "assistant", "content": "Both."}],
            "images": ["a", "b"],
        }
    )
    assert row.pictures == ["b", "a"]


def pictures(folder: Path) -> list[bytes]:
    made = []
    for number in (1, 2):
        Image.new("RGB", (40, 30), (number, 0, 0)).save(folder / f"{number}.png")
        made.append((folder / f"{number}.png").read_bytes())
    return made


def test_a_list_of_rows_is_one_file(tmp_path: Path) -> None:
    """LLaMA-Factory's and LLaVA's files are JSON lists."""
    pictures(tmp_path)
    named = rows()["llama-factory"]
    path = tmp_path / "mllm_demo.json"
    path.write_text(json.dumps([named["published"], named["missing"], named["turned"]], indent=2))
    faults = Faults("skip")
    found = open_source(str(path), PromptConfig().builder(), faults)
    assert [[image.name for image in sample.images] for sample in found] == [["1.png", "2.png"], ["2.png", "1.png"]]
    assert faults.counts == {"images_do_not_fit": 1}
    with pytest.raises(ConfigError, match=r"mllm_demo\.json:2: images_do_not_fit"):
        ChatSamples(path, Faults())


@pytest.mark.parametrize("image", ["a" * 300, "iVBORw0KGgo" * 99, "a\0b", "", 5, ["1.png"], {"url": "1.png"}, {}])
def test_what_is_no_name_of_a_file_is_a_missing_picture(image: Any, tmp_path: Path) -> None:
    pictures(tmp_path)
    good = rows()["llama-factory"]["published"]
    (tmp_path / "a.jsonl").write_text(json.dumps(good) + "\n" + json.dumps({**good, "images": ["1.png", image]}))
    faults = Faults("skip")
    assert len(ChatSamples(tmp_path / "a.jsonl", faults)) == 1
    assert faults.counts == {"image_missing": 1}
    assert len(faults.examples["image_missing"][0]) < 400 + len(str(tmp_path))


def test_an_answer_shows_no_picture_and_comes_last(tmp_path: Path) -> None:
    pictures(tmp_path)
    for turns, said in (
        ([("assistant", "Hi."), ("user", "a"), ("assistant", "b")], "begins with the user's turn"),
        ([("user", "a"), ("assistant", "b"), ("user", "c")], "ends with the assistant's answer"),
        (
            [("user", "a"), ("assistant", "<image>"), ("user", "a"), ("assistant", "b")],
            "turn 1 of the assistant holds a picture",
        ),
    ):
        row = {
            "messages": [{"role": role, "content": text} for role, text in turns],
            "images": ["1.png"] if "<image>" in str(turns) else [],
        }
        (tmp_path / "a.jsonl").write_text(json.dumps(row))
        with pytest.raises(ConfigError, match=said):
            ChatSamples(tmp_path, Faults())
