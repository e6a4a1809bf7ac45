"""The published files of ScreenSpot: annotations as JSON lists, screenshots beside them, opened only when used.

Three editions, in the layouts in which they are published:

    v1   screenspot_{mobile,desktop,web}.json (in the folder, annotations/ or metadata/), screenspot_imgs/ or images/
    v2   screenspot_{mobile,desktop,web}_v2.json, screenspotv2_image/ or images/
    pro  annotations/*.json, one for each program and platform, images/

A box of v1 and v2 is left, top, width, height in pixels of the screenshot; a box of Pro left, top, right, bottom in
pixels of `img_size`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Literal

from eval.actions.geometry import Point
from eval.benchmarks.errors import BenchError
from eval.desktop import BadFrame
from eval.episodes.pictures import opened

if TYPE_CHECKING:
    from PIL import Image

Edition = Literal["v1", "v2", "pro"]
Language = Literal["en", "cn"]
PLATFORMS: Final = ("mobile", "desktop", "web")
TYPES: Final = ("text", "icon")
FOLDERS: Final[dict[Edition, tuple[str, ...]]] = {
    "v1": ("screenspot_imgs", "images"),
    "v2": ("screenspotv2_image", "images"),
    "pro": ("images",),
}


@dataclass(frozen=True)
class SpotTarget:
    """One question: what to click on a screenshot.

    image     path below the folder of screenshots; questions about one screenshot are not independent
    pixels    left, top, right, bottom, in pixels of the screenshot
    size      of the screenshot in pixels as the annotation says it; None where it does not
    kind      text or icon
    platform  mobile, desktop, web; in Pro the operating system
    source    the program, site or operating system that the screenshot is of
    group     of Pro: Dev, Creative, CAD, Scientific, Office, OS
    """

    task_id: str
    image: str
    instruction: str
    pixels: tuple[float, float, float, float]
    kind: str
    platform: str
    source: str
    size: tuple[int, int] | None = None
    group: str = ""

    def hit(self, point: Point, size: tuple[int, int]) -> bool:
        """Whether a point (fractions) lies in the box, edges included, as the published scorers have it."""
        left, top, right, bottom = self.pixels
        return left / size[0] <= point[0] <= right / size[0] and top / size[1] <= point[1] <= bottom / size[1]


@dataclass(frozen=True)
class Questions:
    """An edition's targets, in the order of its files. `digest`: the beginning of the sha256 of all annotations."""

    edition: Edition
    targets: tuple[SpotTarget, ...]
    images: Path
    digest: str

    def open(self, target: SpotTarget) -> Image.Image:
        """The screenshot. Raises BadFrame, also where its size is not the annotation's."""
        image = opened(self.images / target.image, target.image)
        if target.size is not None and image.size != target.size:
            told = f"{target.size[0]}x{target.size[1]}"
            raise BadFrame(f"{target.image}: {image.width}x{image.height}, and the annotation says {told}")
        return image


def load(
    folder: Path, edition: Edition | None = None, images: Path | None = None, language: Language = "en"
) -> Questions:
    """The questions of an edition; None: the one that the folder holds. Raises BenchError, with file and item."""
    files = {name: _annotations(folder, name) for name in FOLDERS} if folder.is_dir() else {}
    held: list[Edition] = [name for name in FOLDERS if files.get(name)]
    if edition is None and len(held) > 1:
        raise BenchError(f"{folder}: holds {' and '.join(held)}; choose with `edition`")
    chosen = edition or (held[0] if held else None)
    if chosen is None or not files.get(chosen):
        raise BenchError(
            f"{folder}: no annotations of {edition or 'ScreenSpot, v2 or Pro'}; looked for {_wanted(edition)}"
        )
    if language != "en" and chosen != "pro":
        raise BenchError(f"{folder}: ScreenSpot {chosen} is in English; `language: {language}` is for pro")
    place = images or next((folder / name for name in FOLDERS[chosen] if (folder / name).is_dir()), None)
    if place is None or not place.is_dir():
        wanted = str(images) if images else f"{folder}/{' or '.join(FOLDERS[chosen])}"
        raise BenchError(f"no folder of screenshots: {wanted}")
    targets: list[SpotTarget] = []
    digest = hashlib.sha256()
    for path in files[chosen]:
        body = path.read_bytes()
        digest.update(hashlib.sha256(body).digest())
        targets += _targets(path, body, chosen, language)
    ids = [target.task_id for target in targets]
    if len(set(ids)) < len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise BenchError(f"{folder}: two items have the id {twice}")
    return Questions(chosen, tuple(targets), place, digest.hexdigest()[:12])


def _annotations(folder: Path, edition: Edition) -> list[Path]:
    """The annotation files of an edition in a folder: of v1 and v2 those of the platforms that are there."""
    if edition == "pro":
        found = sorted((folder / "annotations").glob("*.json"))
        return [path for path in found if not path.name.startswith("screenspot_")]
    ending = "_v2" if edition == "v2" else ""
    names = [f"screenspot_{platform}{ending}.json" for platform in PLATFORMS]
    for place in (folder, folder / "annotations", folder / "metadata"):
        if found := [place / name for name in names if (place / name).is_file()]:
            return found
    return []


def _wanted(edition: Edition | None) -> str:
    forms = {
        "v1": "screenspot_{mobile,desktop,web}.json",
        "v2": "screenspot_{mobile,desktop,web}_v2.json",
        "pro": "annotations/*.json",
    }
    return forms[edition] if edition else ", ".join(forms.values())


def _targets(path: Path, body: bytes, edition: Edition, language: Language) -> list[SpotTarget]:
    number = -1
    try:
        items = json.loads(body)
        if not isinstance(items, list) or not items:
            raise BenchError(f"{path.name}: not a list of items")
        found = []
        for number, item in enumerate(items):
            found.append(_pro(item, language) if edition == "pro" else _plain(item, path, number))
        return found
    except BenchError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        where = path.name if number < 0 else f"{path.name}: item {number}"
        problem = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise BenchError(f"{where}: {problem}") from None


def _plain(item: Mapping[str, Any], path: Path, number: int) -> SpotTarget:
    """An item of v1 or v2."""
    left, top, width, height = _numbers(item["bbox"])
    platform = path.stem.split("_")[1]
    return SpotTarget(
        task_id=f"{platform}/{number}",
        image=_image(item["img_filename"]),
        instruction=_text(item["instruction"], "instruction"),
        pixels=_edges(left, top, left + width, top + height),
        kind=_kind(item["data_type"]),
        platform=platform,
        source=_text(item["data_source"], "data_source"),
    )


def _pro(item: Mapping[str, Any], language: Language) -> SpotTarget:
    width, height = item["img_size"]
    if not all(isinstance(side, int) and side > 0 for side in (width, height)):
        raise ValueError(f"img_size must be two whole numbers, not {item['img_size']!r}")
    return SpotTarget(
        task_id=_text(item["id"], "id"),
        image=_image(item["img_filename"]),
        instruction=_text(item["instruction" if language == "en" else "instruction_cn"], "instruction"),
        pixels=_edges(*_numbers(item["bbox"])),
        kind=_kind(item["ui_type"]),
        platform=_text(item["platform"], "platform"),
        source=_text(item["application"], "application"),
        size=(width, height),
        group=_text(item["group"], "group"),
    )


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be a text, not {value!r}")
    return value


def _kind(value: Any) -> str:
    if value not in TYPES:
        raise ValueError(f"the type must be text or icon, not {value!r}")
    return str(value)


def _image(value: Any) -> str:
    """A path that stays in the folder of screenshots."""
    name = _text(value, "img_filename")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"img_filename must stay in the folder, not {name!r}")
    return name


def _numbers(value: Any) -> tuple[float, float, float, float]:
    if not isinstance(value, list) or len(value) != 4:
        raise ValueError(f"bbox must be four numbers, not {value!r}")
    if not all(isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n) for n in value):
        raise ValueError(f"bbox must be four numbers, not {value!r}")
    one, two, three, four = (float(number) for number in value)
    return one, two, three, four


def _edges(left: float, top: float, right: float, bottom: float) -> tuple[float, float, float, float]:
    if left > right or top > bottom:
        raise ValueError(f"a box of {left:g}, {top:g}, {right:g}, {bottom:g} has no inside")
    return left, top, right, bottom
