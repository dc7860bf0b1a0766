"""A process that connects as fast as it can, and goes again, until it is stopped: `python flood.py SOCKET`.

Some say nothing, some something that is no hello, some break framing, some are a good hello.
"""

import contextlib
import socket
import struct
import sys

SAID = (
    b"",
    struct.pack(">I", 15) + b"\x82\xa2op\xa6relays\xa2id\x07",
    bytes(4),
    struct.pack(">I", 38) + b"\x84\xa2op\xa5hello\xa2id\x01\xa8versions\x91\x01\xa6client\xa5flood",
)


def main() -> None:
    at = 0
    while True:
        at += 1
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer, contextlib.suppress(OSError):
            peer.connect(sys.argv[1])
            peer.sendall(SAID[at % len(SAID)])


if __name__ == "__main__":
    main()
