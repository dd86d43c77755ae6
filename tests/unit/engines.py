"""A stand-in for a container engine: it answers on a socket, and keeps what it was asked."""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

INFO = {"ServerVersion": "28.1.0", "DockerRootDir": "/var/lib/docker", "Runtimes": {"nvidia": {}}}
IMAGES = [
    {"Id": "sha256:1", "RepoTags": ["a/b:1", "a/b:latest"], "RepoDigests": ["a/b@sha256:0"]},
    {"Id": "sha256:2", "RepoTags": None, "RepoDigests": None},
]
ANSWERS: Mapping[str, Any] = {"/info": INFO, "/images/json": IMAGES}
VERSION = {"ApiVersion": "1.41"}


@contextmanager
def serving(path: Path, answers: Mapping[str, Any] = ANSWERS) -> Iterator[list[str]]:
    """Answer on a socket; bytes are sent as they are, all else as JSON, the unknown with an error."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = re.sub(r"^/v1\.\d+|\?.*", "", self.path)
            asked.append(path)
            found = VERSION if path == "/version" else answers.get(path)
            failed = found is None or isinstance(found, Exception)
            said = {"message": str(found)} if failed else found
            body = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(500 if failed else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with ThreadingUnixStreamServer(str(path), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield asked
        finally:
            server.shutdown()
