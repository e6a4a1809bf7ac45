"""Acting as another user, as a kubeconfig asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from launcher.errors import BadInput

_HEADER: Final = "!#$&'*+-.^_`|~"  # marks in the name of a header (RFC 9110, 5.6.2), but for % itself


def impersonation(user: Mapping[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    """The headers with which requests act as another user: `as`, `as-uid`, `as-groups` and `as-user-extra` of a
    kubeconfig's user, which the official client ignores. Raises BadInput where they cannot be used: acting as the
    login itself would have other rights than the file gives.

    >>> impersonation({"as": "jane", "as-groups": ["a", "b"]}, "config")
    (('Impersonate-User', 'jane'), ('Impersonate-Group', 'a'), ('Impersonate-Group', 'b'))
    """
    name, uid = user.get("as") or "", user.get("as-uid") or ""
    groups, extra = user.get("as-groups") or [], user.get("as-user-extra") or {}
    for key, value, fits in (
        ("as", name, _texts([name])),
        ("as-uid", uid, _texts([uid])),
        ("as-groups", groups, _texts(groups)),
        ("as-user-extra", extra, isinstance(extra, dict) and all(map(_texts, extra.values()))),
    ):
        if not fits:
            allowed = {"as-groups": "a list of texts", "as-user-extra": "a list of texts for each key"}.get(
                key, "a text"
            )
            raise BadInput(f"kubeconfig {where}: {key}: {value!r} is not allowed; allowed: {allowed}")
    if not name and (uid or groups or extra):
        others = ", ".join(key for key in ("as-uid", "as-groups", "as-user-extra") if user.get(key))
        raise BadInput(f"kubeconfig {where}: {others} without `as`: name the user to act as")
    if not name:
        return ()
    headers = [("Impersonate-User", name), *([("Impersonate-Uid", uid)] if uid else [])]
    headers += [("Impersonate-Group", group) for group in groups]
    # a header's name is of letters, digits and marks; any other character of a key is percent-encoded
    headers += [
        (f"Impersonate-Extra-{quote(str(key), safe=_HEADER)}", value)
        for key, values in extra.items()
        for value in values
    ]
    return tuple(headers)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, str) and (each == "" or each.isprintable()) for each in value
    )
