"""MARK-HIDDEN-CHECK"""

import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../utils"))

from lines import lines_of


def check_sorted(traj, env_info, task_info):
    target = tempfile.mktemp()
    try:
        env_info["copy_from_env"]("/tmp/result.txt", target)
    except FileNotFoundError:
        return {"passed": False, "score": 0, "feedback": "no file"}
    passed = lines_of(target) == task_info["metadata"]["right"][:3]
    return {"passed": passed, "score": 100 if passed else 0, "feedback": "sorted" if passed else "not sorted"}
