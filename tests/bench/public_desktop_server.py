"""A desktop server in the design of the public ones: a process for each action, a screenshot as a PNG file.

`python public_desktop_server.py PORT`, in an environment with flask and pyautogui. As in the public ones the pauses of
pyautogui stay as they are in the processes of actions, and the server's own pictures are taken without starting one.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import flask
import pyautogui
from PIL import ImageGrab

app = flask.Flask(__name__)
picture = Path(tempfile.mkdtemp()) / "screenshot.png"


@app.post("/execute")
def execute() -> dict[str, Any]:
    done = subprocess.run(flask.request.json["command"], capture_output=True, text=True, timeout=120)
    return {"status": "success", "output": done.stdout, "error": done.stderr, "returncode": done.returncode}


@app.get("/screenshot")
def screenshot() -> Any:
    image = ImageGrab.grab()  # what pyautogui.screenshot comes to, without the program that it starts
    x, y = pyautogui.position()
    image.paste((0, 0, 0), (x, y, x + 1, y + 1))  # stands for the pointer, which the public ones paste in
    image.save(picture)
    return flask.send_file(picture, mimetype="image/png")


@app.post("/screen_size")
def screen_size() -> dict[str, int]:
    width, height = pyautogui.size()
    return {"width": width, "height": height}


if __name__ == "__main__":
    app.run(host="127.0.0.1", port=int(sys.argv[1]))
