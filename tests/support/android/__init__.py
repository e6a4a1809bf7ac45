"""A small phone of ours that speaks adb's protocol, for tests with the real `adb` client."""
