"""A caching proxy in front of the comment API, with Flask and Flask-Caching.

A subject of the lab's experiment api-cache. Run by gunicorn:

    UPSTREAM=http://127.0.0.1:9000 EXPIRY=300 \
        gunicorn -b 127.0.0.1:8000 -w 4 -k gthread --threads 100 flask_service:app

Each worker has a cache of its own. Only answers with status 200 are kept.
GET /ready names the worker that answers.
"""

import os
import urllib.error
import urllib.parse
import urllib.request

from flask import Flask, Response, request
from flask_caching import Cache

UPSTREAM = os.environ["UPSTREAM"]
EXPIRY = float(os.environ.get("EXPIRY", "300"))
PATIENCE = 60  # seconds that an answer of the upstream may take

app = Flask(__name__)
# The threshold is the number of answers kept: far more than the experiment has.
cache = Cache(app, config={"CACHE_TYPE": "SimpleCache", "CACHE_DEFAULT_TIMEOUT": EXPIRY, "CACHE_THRESHOLD": 10_000})


def ask(page):
    """Ask the upstream. Returns status and body; 502 when it does not answer."""
    target = f"{UPSTREAM}/comments/count?url={urllib.parse.quote(page, safe='')}"
    try:
        with urllib.request.urlopen(target, timeout=PATIENCE) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 502, b'{"error":"the upstream does not answer"}'


@app.get("/ready")
def ready():
    return Response(str(os.getpid()), mimetype="text/plain")


@app.get("/comments/count")
def count():
    page = request.args.get("url", "")
    body = cache.get(page)
    if body is not None:
        return Response(body, mimetype="application/json")
    status, body = ask(page)
    if status == 200:
        cache.set(page, body)
    return Response(body, status=status, mimetype="application/json")
