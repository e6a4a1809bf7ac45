"""exec and port-forward without kubectl: `python -m launcher.backends.kubernetes.enter.forward exec|ports ...`.

It is a program of its own, so that `launcher exec` and `launcher forward` start it in the same way as kubectl. The
websocket is the official client's.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from launcher.backends import forwarding
from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.access.login import Login, login
from launcher.errors import SlipwayError

CHUNK: Final = 1 << 16
STDIN, ERROR, RESIZE = 0, 3, 4  # channels of the protocol


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m launcher.backends.kubernetes.enter.forward")
    parser.add_argument("--context")
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("exec", help="run a command in a pod's container")
    run.add_argument("--tty", action="store_true")
    ports = verbs.add_parser("ports", help="forward ports of a pod to this machine")
    for each in (run, ports):
        each.add_argument("namespace")
        each.add_argument("pod")
    run.add_argument("command", nargs="+")
    ports.add_argument("pairs", nargs="+", metavar="HERE:THERE")
    args = parser.parse_args(argv)
    try:
        core = _core(args.context)
        if args.verb == "exec":
            return execute(core, args.namespace, args.pod, args.command, tty=args.tty)
        pairs = [(int(here), int(there)) for here, _, there in (pair.partition(":") for pair in args.pairs)]
        return forward(core, args.namespace, args.pod, pairs)
    except SlipwayError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _core(context: str | None) -> Any:
    from kubernetes.client import ApiClient, CoreV1Api

    to = login(context)
    _renew(to)
    to.configuration.refresh_api_key_hook = lambda _: _renew(to)  # called before each request
    _open_as(to)
    return CoreV1Api(ApiClient(to.configuration))


def _renew(to: Login) -> None:
    """Gives the official client the login of this moment."""
    header, certificate = to.credentials.header(), to.credentials.certificate()
    if header:
        to.configuration.api_key["BearerToken"] = header
    if certificate is not None:
        to.configuration.cert_file, to.configuration.key_file = map(str, certificate)


def _open_as(to: Login) -> None:
    """What every websocket of this process sends and where it goes. The official client passes only its own headers
    on, and the websocket's package asks the environment for a proxy by rules of its own."""
    from kubernetes.stream import ws_client
    from websocket import WebSocket

    own = [f"{name}: {value}" for name, value in to.impersonates]
    proxy = {"http_no_proxy": ["none.invalid"]} if to.configuration.proxy else {"http_no_proxy": ["*"]}

    class As(WebSocket):
        def connect(self, url: str, **options: Any) -> None:
            connect: Any = super().connect
            connect(url, **{**options, **proxy, "header": [*options.get("header", ()), *own]})

    ws_client.WebSocket = As


def execute(core: Any, namespace: str, pod: str, command: Sequence[str], *, tty: bool) -> int:
    """Runs a command with our standard streams; returns its exit code."""
    from kubernetes.client.exceptions import ApiException
    from kubernetes.stream import stream
    from websocket import WebSocketException

    try:
        channel = stream(
            core.connect_get_namespaced_pod_exec,
            pod,
            namespace,
            container=names.CONTAINER,
            command=list(command),
            stdin=True,
            stdout=True,
            stderr=not tty,
            tty=tty,
            binary=True,
            _preload_content=False,
        )
    except ApiException as error:
        raise SlipwayError(f"pod {pod}: {error.reason}") from None
    with _raw_terminal(tty, channel):
        try:
            _pass_on(channel)
        except (WebSocketException, OSError) as error:
            raise SlipwayError(f"pod {pod}: the connection broke: {error}") from None
    return exit_code(channel.read_channel(ERROR), pod)


def _pass_on(channel: Any) -> None:
    """Passes our input to the command and its output to ours, until it ends."""
    reading = True
    while channel.is_open():
        sources = [channel.sock, sys.stdin.fileno()] if reading else [channel.sock]
        ready, _, _ = select.select(sources, [], [], 0.2)
        if reading and sys.stdin.fileno() in ready:
            typed = os.read(sys.stdin.fileno(), CHUNK)
            reading = bool(typed)
            if typed:
                channel.write_stdin(typed)
            elif hasattr(channel, "close_channel"):  # only version 5 of the protocol can close the input
                channel.close_channel(STDIN)
        channel.update(timeout=0)
        for there, here in ((channel.read_stdout, sys.stdout), (channel.read_stderr, sys.stderr)):
            if output := there(timeout=0):
                here.buffer.write(output if isinstance(output, bytes) else output.encode())
                here.buffer.flush()


def exit_code(said: bytes | str, pod: str) -> int:
    """The exit code of a command, from the metav1.Status on the error channel. Raises SlipwayError when it never ran,
    or when its end was not reported."""
    try:
        status = json.loads(said)
        if status["status"] == "Success":
            return 0
        causes = (status.get("details") or {}).get("causes") or ()
        codes = [int(cause["message"]) for cause in causes if cause.get("reason") == "ExitCode"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SlipwayError(f"pod {pod}: the connection ended before the command did") from None
    if not codes:
        raise SlipwayError(f"pod {pod}: {status.get('message') or 'the command could not be run'}")
    return codes[0]


@contextlib.contextmanager
def _raw_terminal(tty: bool, channel: Any) -> Iterator[None]:
    """Sets the terminal to raw mode: each key is sent at once, Ctrl-C too. Sends the window's size."""
    if not tty or not sys.stdin.isatty():
        yield
        return
    import termios
    import tty as terminal

    def resized(*_: object) -> None:
        size = os.get_terminal_size()
        channel.write_channel(RESIZE, json.dumps({"Width": size.columns, "Height": size.lines}))

    before = termios.tcgetattr(sys.stdin.fileno())
    try:
        terminal.setraw(sys.stdin.fileno())
        signal.signal(signal.SIGWINCH, resized)
        resized()
        yield
    finally:
        signal.signal(signal.SIGWINCH, signal.SIG_DFL)
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)


def forward(core: Any, namespace: str, pod: str, pairs: Sequence[tuple[int, int]]) -> int:
    """Listens on this machine's loopback and connects each caller to the pod, until interrupted."""
    forwarding.serve(pairs, functools.partial(_connect, core, namespace, pod))
    return 0


def _connect(core: Any, namespace: str, pod: str, port: int, caller: socket.socket) -> None:
    """Passes one connection both ways until either side ends it."""
    from kubernetes.stream import portforward

    with caller:
        try:
            channel = portforward(core.connect_get_namespaced_pod_portforward, pod, namespace, ports=str(port))
        except Exception as error:  # the client raises whatever its websocket raises
            print(f"port {port} of pod {pod}: {error}", file=sys.stderr, flush=True)
            return
        with contextlib.suppress(OSError), contextlib.closing(channel.socket(port)) as there:
            there.setblocking(True)
            ends = {caller: there, there: caller}
            while ends:
                for end in select.select(list(ends), [], [])[0]:
                    data = end.recv(CHUNK)
                    if not data:
                        return
                    ends[end].sendall(data)
        if said := channel.error(port):
            print(f"port {port} of pod {pod}: {said}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
