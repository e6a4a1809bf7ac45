"""What a job's command may use: a config file, a progress file, a metrics file, an output folder. None is required."""

import json
import os
import time
from pathlib import Path

config = json.loads(Path(os.environ["SLIPWAY_CONFIG"]).read_text())
results = Path(os.environ["SLIPWAY_OUTPUTS"]) / "results"
results.mkdir(parents=True, exist_ok=True)
for step in range(1, config["count"] + 1):
    print(f"{config['greeting']} {step}", flush=True)
    with Path(os.environ["SLIPWAY_PROGRESS"]).open("a") as progress:
        print(json.dumps({"step": step, "total": config["count"], "phase": "greeting"}), file=progress)
    with Path(os.environ["SLIPWAY_METRICS"]).open("a") as metrics:
        print(json.dumps({"step": step, "name": "said", "value": step, "time": time.time()}), file=metrics)
summary = [{"benchmark": "hello", "metric": "said", "value": 1.0, "n": config["count"], "infra_failures": 0}]
(results / "summary.json").write_text(json.dumps(summary))
