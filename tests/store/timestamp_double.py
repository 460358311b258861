"""A time-stamping service on the loopback, made of `openssl ts`, which can also misbehave in every way that we know."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CONFIG = (
    "[tsa]\ndefault_tsa = one\n[one]\nserial = serial\nsigner_digest = sha256\ndefault_policy = 1.2.3.4.1\ndigests = sha256\n"
)
NEW = "openssl req -newkey rsa:2048 -nodes -keyout {name}.key"


def make_keys(folder: Path) -> Path:
    """A root with a signer for time-stamping below it, and a stranger with the same names; returns the root's certificate."""
    (folder / "ts.cnf").write_text(CONFIG)
    (folder / "serial").write_text("01\n")
    (folder / "ext").write_text("extendedKeyUsage=critical,timeStamping\n")
    for root, signer in (("ca", "tsa"), ("other_ca", "other")):
        for command in (
            f"{NEW.format(name=root)} -x509 -out {root}.pem -days 30 -subj /CN=ca",
            f"{NEW.format(name=signer)} -out {signer}.csr -subj /CN=tsa",
            f"openssl x509 -req -in {signer}.csr -CA {root}.pem -CAkey {root}.key -CAcreateserial -days 30 -extfile ext -out {signer}.pem",
        ):
            subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder / "ca.pem"


class TimestampDouble:
    """Answers as `mode` says; `good` is what openssl answers."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mode, self.url = folder, "good", ""

    def reply(self, query: bytes, signer: str = "tsa") -> bytes:
        (self.folder / "query").write_bytes(query)
        command = (
            f"openssl ts -reply -config ts.cnf -section one -queryfile query -inkey {signer}.key -signer {signer}.pem -out reply"
        )
        subprocess.run(command.split(), cwd=self.folder, check=True, capture_output=True)
        return (self.folder / "reply").read_bytes()

    def answer(self, query: bytes) -> tuple[int, str, bytes]:
        kind, mode = "application/timestamp-reply", self.mode
        if mode in ("another hash", "another request"):
            place = 30 if mode == "another hash" else len(query) - 5  # a byte of the digest, or of the nonce
            query = query[:place] + bytes([query[place] ^ 1]) + query[place + 1 :]
        if mode == "a stranger signed":
            return 200, kind, self.reply(query, "other")
        body = self.reply(query)
        if mode == "slow":
            time.sleep(2)
        return {
            "broken": (200, kind, b"\x30\x82\xff\xff" + body), "cut short": (200, kind, body[:-40]), "empty": (200, kind, b""),
            "changed": (200, kind, body[:-10] + bytes(10)), "refused": (200, kind, bytes.fromhex("30053003020102")),
            "a page": (200, "text/html", b"<h1>Welcome</h1>"), "an error": (500, kind, body), "moved": (302, kind, b""),
            "endless": (200, kind, body + bytes(2**20)), "another time": (200, kind, body.replace(b"\x18\x0f20", b"\x18\x0f19", 1)),
        }.get(mode, (200, kind, body))  # fmt: skip


MISBEHAVIOUR = (
    "another hash", "another request", "a stranger signed", "slow", "broken", "cut short", "empty", "changed", "refused", "a page",
    "an error", "moved", "endless", "another time",
)  # fmt: skip


@contextmanager
def serving(folder: Path) -> Iterator[TimestampDouble]:
    double = TimestampDouble(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.headers["Content-Type"] == "application/timestamp-query"
            status, kind, body = double.answer(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Location", double.url)
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass  # the client has heard enough

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    double.url = f"http://127.0.0.1:{server.server_port}/tsr"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
