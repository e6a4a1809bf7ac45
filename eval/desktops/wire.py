"""What our server and its client say to each other under /v1: the client JSON, the server msgpack or JSON."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

MSGPACK: Final = "application/msgpack"
# rgb: the pixels as they are, for a client on the same machine, which saves both sides a codec
PictureForm = Literal["png", "webp", "jpeg", "rgb"]
# what decoding a body of others can raise
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
MAX_ACTIONS: Final = 1000
FILE_LIMIT: Final = 64 << 20  # bytes of one file
MAX_WAIT_S: Final = 60.0


class WantedPicture(msgspec.Struct, forbid_unknown_fields=True):
    """How to look at the screen.

    form     of the picture
    quality  1 to 100, of jpeg and webp
    settle   wait until the screen rests after the last action, at most `limit` seconds
    known    the id of the frame that the client has; if the screen still shows it, no picture is sent
    """

    form: PictureForm = "png"
    quality: int = 85
    settle: bool = True
    limit: float = 2.0
    known: str | None = None


class ActionBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Actions, done one after the other, and the look that follows them.

    request_id  a repeated id gets the first answer, and nothing is done again; None: no repeating
    epoch       the desktop that is meant, as an answer named it; refused when it was reset or started anew since.
                None: whichever there is
    look        None: no look
    """

    actions: list[dict[str, Any]] = []
    request_id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    epoch: str | None = None
    look: WantedPicture | None = None


class Seen(msgspec.Struct):
    """One look. `picture` is None where the client has it already.

    frame    the id of the frame
    changed  whether it differs from the look before, whoever looked
    size     width and height in pixels; pointer: where its hot spot is, in pixels
    """

    frame: str
    changed: bool
    settled: bool
    size: tuple[int, int]
    pointer: tuple[int, int]
    form: PictureForm
    picture: bytes | None = None


class Answer(msgspec.Struct):
    """What became of a batch: how many actions were done, and why the one after them was refused, if it was."""

    epoch: str
    done: int
    refused: str | None = None
    seen: Seen | None = None


class DesktopStatus(msgspec.Struct):
    """The desktop: which it is, its screen in pixels, what is switched on."""

    epoch: str
    screen: tuple[int, int]
    commands: bool
    files: str
    isolation: dict[str, Any] = {}


class Ran(msgspec.Struct):
    """What a command printed. `status`: its exit code, minus the signal that ended it; None: it ran past its time."""

    stdout: str
    stderr: str
    status: int | None


class ErrorReply(msgspec.Struct):
    """The body of every answer that is no success. `error` and `message` say the same, for clients of both habits."""

    kind: str
    message: str
    error: str = ""
    status: str = "error"
