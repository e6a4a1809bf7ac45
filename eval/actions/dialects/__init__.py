"""Ways to write an Action: base (the protocol), dsl (our own), pyautogui (AgentNet, OpenCUA), registry (by name).

Those of published agents are made on turns: computer_13, anthropic, openai, ui_tars, qwen, waa, and place (models that
only say where something is). strict_json and calls read what models write, with limits; none of them runs it.
"""
