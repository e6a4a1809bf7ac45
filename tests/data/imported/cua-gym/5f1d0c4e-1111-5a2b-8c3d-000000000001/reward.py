"""MARK-HIDDEN-CHECK: the agent must not see this file."""

from pathlib import Path

score = 0.0
report = Path("/home/user/Documents/report.txt")
if report.is_file():
    score += 0.5
    if report.read_text().splitlines() == ["minutes", "approved"]:
        score += 0.5
if Path("/home/user/Documents/draft.txt").exists():
    score = 0.0
print(f"component: {score}")
print(f"REWARD: {score}")
