"""A caching proxy in front of the comment API, with Sanic and aiocache.

A subject of the lab's experiment api-cache:

    UPSTREAM=http://127.0.0.1:9000 EXPIRY=300 PORT=8000 WORKERS=4 python sanic_service.py

Each worker has a cache of its own. Only answers with status 200 are kept.
GET /ready names the worker that answers.
"""

import os
import signal
import socket

import httpx
from aiocache import Cache
from sanic import Sanic
from sanic.response import raw, text

UPSTREAM = os.environ.get("UPSTREAM", "")
EXPIRY = float(os.environ.get("EXPIRY", "300"))
PATIENCE = 60  # seconds that an answer of the upstream may take
WAITING = 1000  # connections to the upstream: more than the experiment's clients

app = Sanic("comments", configure_logging=False)
app.config.GRACEFUL_SHUTDOWN_TIMEOUT = 1.0  # seconds


@app.before_server_start
async def begin(app):
    app.ctx.cache = Cache(Cache.MEMORY)
    limits = httpx.Limits(max_connections=WAITING, max_keepalive_connections=WAITING)
    app.ctx.client = httpx.AsyncClient(timeout=PATIENCE, limits=limits, trust_env=False)


@app.after_server_stop
async def end(app):
    await app.ctx.client.aclose()


@app.get("/ready")
async def ready(request):
    return text(str(os.getpid()))


@app.get("/comments/count")
async def count(request):
    page = request.args.get("url", "")
    body = await app.ctx.cache.get(page)
    if body is not None:
        return raw(body, content_type="application/json")
    try:
        answer = await app.ctx.client.get(f"{UPSTREAM}/comments/count", params={"url": page})
    except httpx.HTTPError:
        return raw(b'{"error":"the upstream does not answer"}', status=502, content_type="application/json")
    if answer.status_code == 200:
        await app.ctx.cache.set(page, answer.content, ttl=EXPIRY)
    return raw(answer.content, status=answer.status_code, content_type="application/json")


def serve(listener):
    """Serve from a socket until told to end, as one process."""
    app.run(sock=listener, single_process=True, access_log=False, motd=False)


def fork(listener, workers):
    """Serve from several processes that share a socket, until told to end.

    Sanic did it that way when the published comparison was made. Its present
    manager starts each worker as a new interpreter and, on a busy machine, may
    hang when it is told to end.
    """
    children = []
    for _ in range(workers):
        child = os.fork()
        if child == 0:
            serve(listener)
            os._exit(0)
        children.append(child)

    def end(number, frame):
        for child in children:
            os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    address = ("127.0.0.1", int(os.environ["PORT"]))
    number = int(os.environ.get("WORKERS", "1"))
    with socket.create_server(address, backlog=1024) as shared:
        if number == 1:
            serve(shared)
        else:
            fork(shared, number)
