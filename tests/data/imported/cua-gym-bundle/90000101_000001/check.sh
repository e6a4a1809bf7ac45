#!/usr/bin/env bash
# MARK-HIDDEN-CHECK
set -euo pipefail
python3 - <<'PY'
import json
from pathlib import Path

right = json.loads(Path("/tmp_workspace/gt/answer.json").read_text())["sum"]
result = Path("/tmp_workspace/results/sum.txt")
said = result.read_text().strip() if result.is_file() else ""
found = {"written": float(bool(said)), "right": float(said == str(right))}
print(json.dumps({"overall_score": 0.2 * found["written"] + 0.8 * found["right"], "subscores": found, "errors": []}))
PY
