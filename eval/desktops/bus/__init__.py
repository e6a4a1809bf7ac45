"""The accessibility bus of a desktop (`atspi`), and programs that keep it from answering (`flooding`)."""
