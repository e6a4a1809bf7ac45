"""The accessibility bus of a desktop, and evidence of programs that keep it from answering (`atspi`)."""
