"""OSWorld's own controllers against a server: `python osworld_client.py PORT FOLDER`, in the environment of
`make osworld-env`. Prints what they gave as JSON.

`desktop_env.controllers.setup` imports packages for tasks that this does not do (a browser, a drive in a cloud):
empty stand-ins take their place. Nothing of the client is changed.
"""

import json
import sys
import types
from pathlib import Path

STANDINS = {
    "dotenv": ("load_dotenv",),
    "playwright.sync_api": ("sync_playwright", "TimeoutError"),
    "pydrive.auth": ("GoogleAuth",),
    "pydrive.drive": ("GoogleDrive", "GoogleDriveFile", "GoogleDriveFileList"),
    "desktop_env.evaluators.metrics.utils": ("compare_urls",),
    "desktop_env.providers.aws.proxy_pool": ("get_global_proxy_pool", "init_proxy_pool", "ProxyInfo"),
}


def stand_in() -> None:
    for name, things in STANDINS.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            part = ".".join(parts[:end])
            if part != "desktop_env":
                sys.modules.setdefault(part, types.ModuleType(part))
        for thing in things:
            setattr(sys.modules[name], thing, lambda *_: None)


def main(port: int, folder: Path) -> None:
    stand_in()
    from desktop_env.controllers.python import PythonController
    from desktop_env.controllers.setup import SetupController

    out = {}
    setup = SetupController("127.0.0.1", port, cache_dir=str(folder))
    (folder / "local.txt").write_text("")
    out["set up"] = setup.setup(
        [
            {
                "type": "upload_file",
                "parameters": {"files": [{"local_path": str(folder / "local.txt"), "path": "/home/user/note.txt"}]},
            },
            {"type": "execute", "parameters": {"command": ["sh", "-c", "echo out; echo err >&2"], "stdout": "printed"}},
            {"type": "launch", "parameters": {"command": ["mousepad", "/home/user/note.txt"]}},
            {
                "type": "execute_with_verification",
                "parameters": {"command": ["true"], "verification": {"window_exists": "note.txt"}, "max_wait_time": 60},
            },
            {"type": "activate_window", "parameters": {"window_name": "note.txt"}},
            {"type": "command", "parameters": {"command": "echo x > until", "shell": True, "until": {"returncode": 0}}},
        ]
    )
    out["printed"] = (folder / "printed").read_text()
    control = PythonController("127.0.0.1", port)
    control.retry_interval = 0.1
    control.start_recording()
    out["screenshot"] = len(control.get_screenshot())
    actions = [
        {"action_type": "MOVE_TO", "parameters": {"x": 300, "y": 200}},
        {"action_type": "CLICK", "parameters": {"x": 640, "y": 360}},
        {"action_type": "CLICK", "parameters": {"button": "left", "x": 640, "y": 360, "num_clicks": 2}},
        {"action_type": "TYPING", "parameters": {"text": 'It\'s \\ "fast"\n'}},
        {"action_type": "PRESS", "parameters": {"key": "tab"}},
        {"action_type": "SCROLL", "parameters": {"dx": 0, "dy": -1}},
        {"action_type": "KEY_DOWN", "parameters": {"key": "shift"}},
        {"action_type": "KEY_UP", "parameters": {"key": "shift"}},
        {"action_type": "HOTKEY", "parameters": {"keys": ["ctrl", "end"]}},
        {"action_type": "DRAG_TO", "parameters": {"x": 650, "y": 360}},
        {"action_type": "HOTKEY", "parameters": {"keys": ["ctrl", "s"]}},
    ]
    for action in actions:
        control.execute_action(action)
    out["several"] = control.execute_python_command("pyautogui.moveTo(70, 80); time.sleep(0.3)")
    out["file"] = control.get_file("/home/user/note.txt").decode()
    out["no file"] = control.get_file("/home/user/nothing")
    out["tree"] = "mousepad" in control.get_accessibility_tree()
    out["terminal"] = control.get_terminal_output()
    out["platform"] = control.get_vm_platform()
    out["screen"] = control.get_vm_screen_size()
    out["window"] = sorted(control.get_vm_window_size("mousepad"))
    out["folder"] = [each["name"] for each in control.get_vm_directory_tree("/home/user")["children"]]
    out["python"] = control.run_python_script("print(6 * 7)")
    out["bash"] = control.run_bash_script("echo $((6 * 7)); exit 3")
    control.end_recording(str(folder / "recording.mp4"))
    out["recording"] = (folder / "recording.mp4").stat().st_size > 1000
    setup.setup([{"type": "close_window", "parameters": {"window_name": "note.txt"}}])
    print(json.dumps(out))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
