"""A model hub on the loopback device: just enough of the protocol to be pulled from."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REPOSITORY = "someone/tiny"


class FakeHub:
    """Serves the files of one folder as the repository ``someone/tiny``.

    Attributes:
        fetched: How many times each file was asked for.
        stall: Name of a file of which only the first half arrives, and then nothing more.
        stalled: Set once that has happened.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fetched: Counter[str] = Counter()
        self.stall: str | None = None
        self.stalled = threading.Event()
        self.released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def revision(self) -> str:
        return hashlib.sha1(b"".join(p.read_bytes() for p in self._files())).hexdigest()

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def _files(self) -> list[Path]:
        return sorted(p for p in self.folder.iterdir() if p.is_file())

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        path = path.partition("?")[0]
        if path == f"/api/models/{REPOSITORY}":
            siblings = [{"rfilename": p.name, "size": p.stat().st_size} for p in self._files()]
            info = {"id": REPOSITORY, "sha": self.revision, "siblings": siblings}
            return 200, {}, json.dumps(info).encode()
        if path == f"/api/models/{REPOSITORY}/tree/{self.revision}":
            tree = [
                {"type": "file", "path": p.name, "size": p.stat().st_size, "oid": _etag(p)}
                for p in self._files()
            ]
            return 200, {}, json.dumps(tree).encode()
        prefix = f"/{REPOSITORY}/resolve/{self.revision}/"
        if path.startswith(prefix) and (self.folder / path.removeprefix(prefix)).is_file():
            file = self.folder / path.removeprefix(prefix)
            headers = {"ETag": f'"{_etag(file)}"', "X-Repo-Commit": self.revision}
            return 200, headers, file.read_bytes()
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"

    def _handler(hub) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.respond(body=False)

            def do_GET(self) -> None:
                self.respond(body=True)

            def respond(self, *, body: bool) -> None:
                status, headers, content = hub.answer(self.path)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if not body:
                    return
                name = self.path.rpartition("/")[2]
                if "/resolve/" in self.path:
                    hub.fetched[name] += 1
                if name == hub.stall:
                    self.wfile.write(content[: len(content) // 2])
                    self.wfile.flush()
                    hub.stalled.set()
                    hub.released.wait()
                    return
                self.wfile.write(content)

            def log_message(self, *args: object) -> None:
                pass

        return Handler


def _etag(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()
