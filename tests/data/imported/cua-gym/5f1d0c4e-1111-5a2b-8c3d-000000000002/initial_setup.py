import requests

requests.post("__CUA_GYM_GMAIL_URL__/post?sid=task", json={"messages": []}, timeout=10)
