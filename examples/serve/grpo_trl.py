"""TRL's own GRPOTrainer on served desktops: `python grpo_trl.py MODEL URL`, URL such as http://any:TOKEN@127.0.0.1:8000.

Needs `pip install "trl>=1.16" openenv-core torchvision`, and a vision model whose chat template knows tools (Qwen3-VL).
"""

import base64
import io
import sys

from datasets import Dataset
from openenv import GenericEnvClient
from PIL import Image
from trl import GRPOConfig, GRPOTrainer

MODEL, URL = sys.argv[1:3]


class Desktop:
    """One desktop; each public method is a tool of the model."""

    def __init__(self):
        self._env = GenericEnvClient(base_url=URL).sync()

    def reset(self, task_id=None, seed=None, **_):
        return self._seen(self._env.reset(task_id=task_id, seed=seed))

    def click(self, x: float, y: float) -> list:
        """
        Click at a point of the screen.

        Args:
            x: from 0, the left edge, to 1
            y: from 0, the upper edge, to 1
        """
        return self._act({"type": "click", "x": x, "y": y})

    def write(self, text: str) -> list:
        """
        Type a text into what has the focus.

        Args:
            text: the text
        """
        return self._act({"type": "type", "text": text})

    def done(self) -> list:
        """Say that the task is done."""
        return self._act({"type": "done"})

    def get_reward(self):
        if not self._over:  # a model that stops calling tools says that it is done
            self._act({"type": "done"})
        return self._reward

    def _act(self, action):
        if self._over:
            return [{"type": "text", "text": "the task has ended"}]
        try:
            return self._seen(self._env.step(action))
        except RuntimeError as error:  # the desktop failed: that is no score
            self._over, self._reward = True, None
            return [{"type": "text", "text": str(error)}]

    def _seen(self, result):
        self._over, self._reward = result.done, result.reward
        seen = result.observation
        picture = Image.open(io.BytesIO(base64.b64decode(seen["screenshot"]))).convert("RGB")
        return [{"type": "image", "image": picture}, {"type": "text", "text": seen["told"] or seen["instruction"]}]


if __name__ == "__main__":
    system = [{"role": "user", "content": "Do the task on the screen with your tools."}]
    tasks = [{"prompt": system, "task_id": None, "seed": 1000000 + number} for number in range(8)]
    arguments = GRPOConfig(
        output_dir="build/grpo",
        max_steps=2,
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=1024,
        max_tool_calling_iterations=8,
        logging_steps=1,
        report_to="none",
        use_cpu="--cpu" in sys.argv,
    )
    trainer = GRPOTrainer(MODEL, args=arguments, train_dataset=Dataset.from_list(tasks), environment_factory=Desktop)
    trainer.train()
