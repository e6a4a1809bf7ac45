"""SDPO: the student learns, token by token, what a teacher that knows more would have said (`stage` has the order)."""
