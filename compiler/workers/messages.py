"""What the compiler and its workers say to each other: pickled values, each behind its length."""

from __future__ import annotations

import io
import pickle
import socket
import struct
import time
from typing import Any

from tilewright.compiler.ir import context, ir

_LENGTH = struct.Struct("<Q")


class Closed(Exception):
    """The other side is gone."""


def encode(value: Any) -> bytes:
    """A value as bytes; exceptions keep their class, fields and notes, and places in IR their text."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def decode(data: bytes) -> Any:
    """What `encode` was given; the other side is trusted, it is of the same program."""
    return pickle.loads(data)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, ir.Location):
            return _location, (str(value),)
        if isinstance(value, BaseException):
            return _exception, (type(value), value.args, value.__dict__)
        return NotImplemented


def _exception(
    kind: type[BaseException], arguments: tuple[Any, ...], fields: dict[str, Any]
) -> BaseException:
    """An exception as it was, without running its constructor, which may take other arguments."""
    made = kind.__new__(kind, *arguments)
    made.args = arguments
    made.__dict__.update(fields)
    return made


def _location(text: str) -> Any:
    try:
        return ir.Module.parse(f"module {{}} {text}", context()).operation.location
    except ir.MLIRError:
        return ir.Location.unknown(context())


def send(connection: socket.socket, data: bytes) -> None:
    """Sends one message; raises Closed."""
    try:
        connection.sendall(_LENGTH.pack(len(data)))
        connection.sendall(data)
    except OSError as error:
        raise Closed(str(error)) from None


def receive(connection: socket.socket, timeout_s: float | None) -> bytes:
    """The next message; raises Closed at its end, TimeoutError where it is not whole within `timeout_s`."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, deadline))
    return bytes(_exactly(connection, length, deadline))


def _exactly(connection: socket.socket, size: int, deadline: float | None) -> bytearray:
    data = bytearray(size)
    view, filled = memoryview(data), 0
    while filled < size:
        if deadline is not None:
            connection.settimeout(max(1e-3, deadline - time.monotonic()))
        try:
            count = connection.recv_into(view[filled:])
        except TimeoutError:
            raise
        except OSError as error:
            raise Closed(str(error)) from None
        if not count:
            raise Closed("the connection was closed")
        filled += count
    return data
