#!/usr/bin/env python3
"""A slow API to put a cache in front of: python3 examples/api/api.py

It takes 100 ms for every answer, one at a time, and counts them. It keeps its
few comments in memory, and needs nothing but Python 3.
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

COMMENTS = {"/posts/7": ["First!"], "/posts/8": []}
GREETINGS = {"en": "Hello", "de": "Guten Tag", "fr": "Bonjour"}


class API(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open
    answered = 0
    worker = threading.Lock()  # there is one

    def log_message(self, *args):
        """Be quiet."""

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/comments":
            post = parse_qs(url.query).get("post", [""])[0]
            if post not in COMMENTS:
                return self.answer(404, {"error": "no such post"})
            # The tags by which a cache can be told what has changed.
            return self.answer(200, {"post": post, "comments": COMMENTS[post]}, {"Surrogate-Key": f"comments {post}"})
        if url.path == "/greeting":
            # It looks at a cookie, and does not say so by Vary: a cache must be told.
            return self.answer(200, {"greeting": GREETINGS.get(self.cookie("lang"), GREETINGS["en"])})
        if url.path == "/account":
            # What is one user's alone says so.
            return self.answer(200, {"session": self.cookie("session")}, {"Cache-Control": "private"})
        if url.path == "/app.3f9a1c2b.js":
            return self.answer(200, "console.log('hello')\n", {"Content-Type": "text/javascript"})
        self.answer(404, {"error": "not found"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        post = parse_qs(url.query).get("post", [""])[0]
        if url.path != "/comments" or post not in COMMENTS:
            return self.answer(404, {"error": "no such post"})
        COMMENTS[post].append(json.loads(body)["text"])
        self.answer(201, {"post": post, "comments": COMMENTS[post]})

    def answer(self, status, what, headers=None):
        with API.worker:
            time.sleep(0.1)  # a database, a template, another API
            API.answered += 1
        if isinstance(what, dict):
            what = json.dumps(what | {"answer": API.answered}) + "\n"
        body = what.encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))} | (headers or {})
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def cookie(self, name):
        for pair in self.headers.get("Cookie", "").split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name:
                return value
        return ""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 5000), API).serve_forever()
