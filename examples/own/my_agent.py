"""An agent of one's own: it clicks the middle of what is yellow. `agent: {kind: custom, factory: "my_agent:Finder"}`.

A real one would send the prompt and the screenshot to a model: `self.builder.ask(history.task, history.past,
observation)` gives the chat messages and the images.
"""

import functools
from collections.abc import Sequence

from PIL import Image

from eval.agents.base import Decision, History, decide
from eval.desktop import Observation
from eval.prompts import PromptBuilder


def middle_of_yellow(image: Image.Image) -> tuple[float, float] | None:
    """The centre of the yellow pixels as shares of the width and the height, or None without any."""
    red = image.getchannel("R")
    box = red.point([0] * 181 + [255] * 75).getbbox()  # nothing else on this screen is as red as yellow
    if box is None:
        return None
    return (box[0] + box[2]) / 2 / image.width, (box[1] + box[3]) / 2 / image.height


class Finder:
    """`name` stands in the results; `parallel` says how many calls of `act` may run at once."""

    parallel = 1

    def __init__(self, builder: PromptBuilder, *, name: str) -> None:
        self.builder = builder
        self.name = name

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        """One decision per observation, in order. The text is parsed as a model's answer would be."""
        decisions = []
        for observation in observations:
            point = middle_of_yellow(observation.image)
            text = "Action: DONE()" if point is None else f"Action: CLICK(x={point[0]:.4f}, y={point[1]:.4f})"
            decisions.append(decide(functools.partial(self.builder.read_turn, marks=observation.marks), text))
        return decisions
