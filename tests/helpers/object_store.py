"""An object store on this machine that speaks as much of S3's protocol as reading takes."""

import contextlib
import http.server
import re
import threading
from email.utils import formatdate
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class Store:
    """Objects by bucket/key, and what was asked for."""

    def __init__(self):
        self.objects = {}
        self.written = {}  # seconds
        self.asked = []

    def put(self, name, body, written=1_700_000_000):
        self.objects[name], self.written[name] = body, written


@contextlib.contextmanager
def serving():
    """A store and the options by which a URI reaches it."""
    store = Store()

    class Handler(_Handler):
        pass

    Handler.store = store
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield store, f"?endpoint_override=127.0.0.1:{server.server_port}&scheme=http&region=nowhere"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self._answer(with_body=False)

    def do_GET(self):
        self._answer(with_body=True)

    def _answer(self, with_body):
        parts = urlsplit(self.path)
        name, query = unquote(parts.path).strip("/"), parse_qs(parts.query)
        self.store.asked.append((self.command, name, self.headers.get("Range")))
        if "list-type" in query:
            return self._send(200, self._listing(name, query), {"Content-Type": "application/xml"})
        if name not in self.store.objects:
            buckets = {key.partition("/")[0] for key in self.store.objects}
            missing = b"<Error><Code>NoSuchKey</Code><Message>not here</Message></Error>"
            return self._send(200 if name in buckets else 404, b"" if name in buckets or not with_body else missing)
        body = self.store.objects[name]
        headers = {
            "Last-Modified": formatdate(self.store.written[name], usegmt=True),
            "ETag": '"x"',
            "Accept-Ranges": "bytes",
        }
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if span is None:
            return self._send(200, body, headers, with_body)
        first, last = int(span[1]), min(int(span[2]), len(body) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
        return self._send(206, body[first : last + 1], headers, with_body)

    def _listing(self, bucket, query):
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        keys = sorted(name.removeprefix(f"{bucket}/") for name in self.store.objects if name.startswith(f"{bucket}/"))
        found, folders = [], []
        for key in (key for key in keys if key.startswith(prefix)):
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.append(prefix + rest.partition(delimiter)[0] + delimiter)
            else:
                found.append(key)
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.store.objects[f'{bucket}/{key}'])}</Size>"
            "<LastModified>2023-11-14T22:13:20.000Z</LastModified></Contents>"
            for key in found
        )
        common = "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in sorted(set(folders)))
        count = len(found) + len(set(folders))
        return (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{count}</KeyCount>"
            f"<IsTruncated>false</IsTruncated>{contents}{common}</ListBucketResult>"
        ).encode()

    def _send(self, code, body, headers=None, with_body=True):
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)
