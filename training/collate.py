"""TRL's collator, with the work that is the same each time done once.

A sample's chat template, tokens and labels do not change between epochs, and its picture, once decoded, need not be
decoded again. The batches are those of TRL's collator, bit for bit; only pixel values are computed anew each time,
because they are many times larger than the picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from PIL import Image
from torch import Tensor

from training.samples import Sample, open_images

PICTURES: Final = 512 * 2**20  # bytes of decoded pictures that are kept


class Collator:
    """Called with rows that carry the `index` of their sample; gives what `inner`, TRL's collator, would give for them.

    Sequences are padded on the right: input_ids with the pad token, labels with -100, everything else with 0.
    """

    def __init__(self, inner: Any, samples: Sequence[Sample]) -> None:
        self.inner = inner
        self.samples = samples
        self.texts: dict[int, dict[str, Tensor]] = {}  # (length,) each, and image_grid_thw (images, 3)
        self.pictures: dict[int, list[Image.Image]] = {}
        self.room = PICTURES
        self.fill = {"input_ids": inner.processor.tokenizer.pad_token_id, "labels": -100}

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        indices = [int(row["index"]) for row in rows]
        pictures = [self._pictures(index) for index in indices]
        new = {i: images for i, images in zip(indices, pictures, strict=True) if i not in self.texts}
        if new:
            self._learn(new)
        texts = [self.texts[index] for index in indices]
        batch: dict[str, Tensor] = {}
        for name in texts[0]:
            parts = [text[name] for text in texts]
            if name == "image_grid_thw":
                batch[name] = torch.cat(parts)
            else:
                batch[name] = torch.nn.utils.rnn.pad_sequence(parts, True, self.fill.get(name, 0))
        flat = [image for images in pictures for image in images]
        batch["pixel_values"] = self.inner.processor.image_processor(flat, return_tensors="pt")["pixel_values"]
        return batch

    def _pictures(self, index: int) -> list[Image.Image]:
        if (known := self.pictures.get(index)) is not None:
            return known
        images = open_images(self.samples[index])
        size = sum(image.width * image.height * 3 for image in images)
        if size <= self.room:
            self.room -= size
            self.pictures[index] = images
        return images

    def _learn(self, new: Mapping[int, list[Image.Image]]) -> None:
        """Has TRL's collator make the texts of these samples, and takes the padding off."""
        rows = [{"messages": self.samples[i].messages, "images": images} for i, images in new.items()]
        made = self.inner(rows)
        grids = made.pop("image_grid_thw")
        del made["pixel_values"]
        lengths = made["attention_mask"].sum(dim=1).tolist()
        first = 0
        for row, (index, images) in enumerate(new.items()):
            text = {name: value[row, : lengths[row]].clone() for name, value in made.items()}
            text["image_grid_thw"] = grids[first : first + len(images)].clone()
            first += len(images)
            self.texts[index] = text
