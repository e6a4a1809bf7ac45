"""Android phones and emulators, driven through the `adb` client."""
