"""Makes the start state. MARK-HIDDEN-SETUP: the agent must not see this file."""

from pathlib import Path

folder = Path("/home/user/Documents")
folder.mkdir(exist_ok=True)
(folder / "draft.txt").write_text("minutes\n")
