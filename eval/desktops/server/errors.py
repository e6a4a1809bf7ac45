"""What a request to the server can fail with, beside what the desktop itself raises."""

from __future__ import annotations


class Refused(Exception):
    """A request that the server does not carry out. `status` is the answer's HTTP status, `kind` a word for clients."""

    status = 400
    kind = "bad_request"


class NotAllowed(Refused):
    """Switched off here, or a path outside of what may be read and written."""

    status = 403
    kind = "not_allowed"


class NoPlainFile(NotAllowed):
    """A link, a folder or something else where a file or a folder should be: the desktop's programs made it."""

    kind = "no_plain_file"


class NoSuchThing(Refused):
    """No such file, window or program."""

    status = 404
    kind = "not_found"


class RequestConflict(Refused):
    """A request for a desktop that has been reset since, or a request id that was given to other actions."""

    status = 409
    kind = "conflict"


class TooLarge(Refused):
    """More bytes than the server takes or gives."""

    status = 413
    kind = "too_large"


class Failed(Refused):
    """What was asked was tried, and did not work."""

    status = 500
    kind = "failed"


class NotOfferedHere(Refused):
    """This server does not have what was asked for."""

    status = 501
    kind = "not_offered"
