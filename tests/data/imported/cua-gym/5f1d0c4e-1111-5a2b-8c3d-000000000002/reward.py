import requests

state = requests.get("__CUA_GYM_GMAIL_URL__/go?sid=task", timeout=10).json()
print("REWARD:", float(any(each["to"] == "Ada" for each in state["current_state"]["messages"])))
