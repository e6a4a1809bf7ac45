"""Ways to write an Action: base (the protocol), pyautogui (AgentNet, OpenCUA). Our own DSL is eval.dsl."""
