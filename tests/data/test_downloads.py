import hashlib
import http.server
import threading

import pytest

from steinscope import InputError
from steinscope.data import download
from steinscope.data import downloads as module
from steinscope.errors import DownloadError

CONTENT = {name: bytes(range(256)) * size for size, name in enumerate(module.SHA256["mnist"], start=400)}


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT with ranges. `faults` maps a name to what goes wrong, one fault for each request."""

    def do_GET(self):
        name = self.path.rsplit("/", 1)[1]
        self.server.requests.append((name, self.headers.get("Range")))
        fault = self.server.faults[name].pop(0) if self.server.faults.get(name) else None
        body = CONTENT.get(name)
        if body is None or fault == "missing":
            self.send_error(404)
            return
        start = 0
        if (wanted := self.headers.get("Range")) and fault != "no ranges":
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                self.send_error(416)
                return
        part = body[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if fault == "truncated":
            part = part[: len(part) // 2]
        if fault == "corrupted":
            part = b"\xff" + part[1:]
        self.wfile.write(part)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    checksums = {name: hashlib.sha256(body).hexdigest() for name, body in CONTENT.items()}
    monkeypatch.setitem(module.SHA256, "mnist", checksums)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.faults, server.requests = {}, []
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        server.address = f"http://127.0.0.1:{server.server_address[1]}/mnist/"
        yield server
        server.shutdown()


FIRST = next(iter(CONTENT))


def files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_all_files_arrive(server, tmp_path):
    assert download("mnist", tmp_path, source=server.address) == tmp_path / "mnist"
    assert files(tmp_path / "mnist") == CONTENT
    server.requests.clear()
    download("mnist", tmp_path, source=server.address)
    assert server.requests == []


@pytest.mark.parametrize(
    "faults", [["truncated"], ["truncated", "truncated"], ["corrupted"], ["truncated", "no ranges"]]
)
def test_a_bad_connection_is_mended(faults, server, tmp_path):
    server.faults[FIRST] = list(faults)
    download("mnist", tmp_path, source=server.address)
    assert files(tmp_path / "mnist") == CONTENT
    wanted = [wanted for name, wanted in server.requests if name == FIRST]
    # A server that does not know ranges sends all of it, which is no fault.
    assert len(wanted) == len(faults) + ("no ranges" not in faults)
    if faults[0] == "truncated":
        assert wanted[1] == f"bytes={len(CONTENT[FIRST]) // 2}-"


def test_a_planted_link_is_not_followed(server, tmp_path):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "victim").write_bytes(b"")
    (tmp_path / "mnist" / f".{FIRST}.part").symlink_to(tmp_path / "victim")
    with pytest.raises(DownloadError, match="gave up after 4 tries: .*symbolic links"):
        download("mnist", tmp_path, source=server.address)
    assert (tmp_path / "victim").read_bytes() == b""


def test_what_has_arrived_is_kept_for_the_next_call(server, tmp_path):
    server.faults[FIRST] = ["truncated"] * module._TRIES
    with pytest.raises(DownloadError, match=r"gave up after 4 tries: the connection ended .* bytes are kept"):
        download("mnist", tmp_path, source=server.address)
    ((name, arrived),) = files(tmp_path / "mnist").items()
    assert name == f".{FIRST}.part" and 0 < len(arrived) < len(CONTENT[FIRST])
    server.requests.clear()
    download("mnist", tmp_path, source=server.address)
    assert files(tmp_path / "mnist") == CONTENT
    assert server.requests[0] == (FIRST, f"bytes={len(arrived)}-")


def test_a_corrupted_file_never_gets_its_name(server, tmp_path):
    server.faults[FIRST] = ["corrupted"] * module._TRIES
    with pytest.raises(DownloadError, match="has a wrong checksum"):
        download("mnist", tmp_path, source=server.address)
    assert files(tmp_path / "mnist") == {}


def test_a_file_that_was_damaged_later_is_fetched_again(server, tmp_path):
    download("mnist", tmp_path, source=server.address)
    (tmp_path / "mnist" / FIRST).write_bytes(b"damaged")
    download("mnist", tmp_path, source=server.address)
    assert files(tmp_path / "mnist") == CONTENT


def test_too_much_has_arrived(server, tmp_path):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / f".{FIRST}.part").write_bytes(bytes(10**6))
    download("mnist", tmp_path, source=server.address)
    assert files(tmp_path / "mnist") == CONTENT


def test_nothing_there(server, tmp_path):
    server.faults[FIRST] = ["missing"]
    with pytest.raises(DownloadError, match="the server answers 404"):
        download("mnist", tmp_path, source=server.address)
    with pytest.raises(DownloadError, match="gave up after 4 tries: .*refused"):
        download("mnist", tmp_path, source="http://127.0.0.1:1/")
    with pytest.raises(InputError, match='data_set: expected "mnist" or "fashion-mnist", got .cifar.'):
        download("cifar", tmp_path)
