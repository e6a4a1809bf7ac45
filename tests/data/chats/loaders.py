"""Writes what others' loaders make of `rows.py`: `python tests/data/chats/loaders.py [LLAVA]`. README.md says where."""

from __future__ import annotations

import ast
import copy
import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

sys.modules["torchaudio"] = ModuleType("torchaudio")  # which LLaMA-Factory imports for sound; no row has any
sys.modules["torchaudio"].__spec__ = ModuleSpec("torchaudio", None)
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]

from rows import LLAVA_WRONG, rows  # noqa: E402

Turns = list[dict[str, Any]]


def placed(turns: list[tuple[str, str]], images: list[str], mark: str = "<image>") -> Turns:
    """Texts with marks as parts; the n-th mark stands for the n-th picture."""
    left, made = iter(images), []
    for role, text in turns:
        content: list[dict[str, str]] = []
        for number, piece in enumerate(text.split(mark)):
            if number:
                content.append({"image": next(left)})
            if piece:
                content.append({"text": piece})
        made.append({"role": role, "content": content})
    return made


def llama_factory(row: dict[str, Any]) -> Turns:
    from llamafactory.data.converter import SharegptDatasetConverter
    from llamafactory.data.mm_plugin import get_mm_plugin
    from llamafactory.data.parser import DatasetAttr

    attr = DatasetAttr(load_from="hf_hub", dataset_name="rows", formatting="sharegpt", images="images")
    if "messages" in row:
        attr.messages, attr.role_tag, attr.content_tag = "messages", "role", "content"
        attr.user_tag, attr.assistant_tag = "user", "assistant"
    else:
        attr.messages = "conversations"
    read = SharegptDatasetConverter(attr, SimpleNamespace(media_dir="."))(copy.deepcopy(row))
    chat, images = [*read["_prompt"], *read["_response"]], read["_images"] or []
    # the plugin's own check, and its own replacing of <image>, without a model
    plugin = get_mm_plugin(
        "qwen2_vl", image_token="<|image_pad|>", video_token="<|video_pad|>", vision_bos_token="", vision_eos_token=""
    )
    plugin.expand_mm_tokens = False
    plugin._validate_input = lambda *_: None
    chat = plugin.process_messages(chat, images, [], [], SimpleNamespace(image_processor=SimpleNamespace(merge_size=2)))
    told = [("system", read["_system"])] if read["_system"] else []
    return placed([*told, *((turn["role"], turn["content"]) for turn in chat)], images, "<|image_pad|>")


def ms_swift(row: dict[str, Any]) -> Turns:
    from datasets import Dataset
    from swift.dataset.preprocessor.core import AutoPreprocessor
    from swift.template.base import Template
    from swift.template.template_inputs import StdTemplateInputs

    (read,) = AutoPreprocessor()(
        Dataset.from_list([row]), load_from_cache_file=False, strict=True, enable_auto_mapping=True
    )
    images = [image["path"] if isinstance(image, dict) else image for image in read.get("images") or ()]
    inputs = StdTemplateInputs.from_dict({"messages": read["messages"], "images": images})
    Template._add_default_tags(inputs)
    told = [("system", inputs.system)] if inputs.system else []
    count = sum(turn["content"].count("<image>") for turn in inputs.messages)
    if count != len(inputs.images):
        raise ValueError(f"{count} marks, {len(inputs.images)} pictures")
    return placed([*told, *((turn["role"], turn["content"]) for turn in inputs.messages)], inputs.images)


def llava(row: dict[str, Any]) -> Turns:
    """The one function of llava/train/train.py that places pictures, alone: the module wants an old transformers."""
    tree = ast.parse((Path(sys.argv[1]) / "llava/train/train.py").read_text(encoding="utf-8"))
    (place,) = (
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "preprocess_multimodal"
    )
    names: dict[str, Any] = {
        "Sequence": list, "Dict": dict, "DataArguments": Any, "DEFAULT_IMAGE_TOKEN": "<image>",
        "conversation_lib": SimpleNamespace(default_conversation=SimpleNamespace(version="v1")),
    }  # fmt: skip
    exec(compile(ast.Module([place], []), "train.py", "exec"), names)
    arguments = SimpleNamespace(is_multimodal=True, mm_use_im_start_end=False)
    (chat,) = names["preprocess_multimodal"]([copy.deepcopy(row["conversations"])], arguments)
    roles = {"human": "user", "gpt": "assistant"}
    return placed([(roles[turn["from"]], turn["value"]) for turn in chat], [row["image"]])


def trl(row: dict[str, Any]) -> Turns:
    from trl.data_utils import prepare_multimodal_messages

    read = prepare_multimodal_messages(copy.deepcopy(row["messages"]), row["images"])
    return [
        {"role": turn["role"], "content": [{part["type"]: part[part["type"]]} for part in turn["content"]]}
        for turn in read
    ]


LOADERS = {"llama-factory": llama_factory, "share-gpt": llama_factory, "ms-swift": ms_swift, "llava": llava, "trl": trl}


def main() -> None:
    for form, named in rows().items():
        if form == "llava" and len(sys.argv) < 2:
            continue
        made: dict[str, Any] = {}
        for name, row in named.items():
            if form == "llava" and name in LLAVA_WRONG:
                continue  # it does not look at the number
            try:
                made[name] = LOADERS[form](row)
            except (ValueError, StopIteration) as error:
                made[name] = {"refused": str(error)[:60]}
        (HERE / f"{form}.json").write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
