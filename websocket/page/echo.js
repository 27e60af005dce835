// The echo's page: one WebSocket, and how long each message takes to come back.

const maxShown = 200; // lines of the list; more only make the page slow
const roundTrips = 1000;
const roundTripText = "0123456789abcdef"; // 16 bytes

const $ = (id) => document.getElementById(id);

let socket = null;
let waiting = []; // for the echoes of what was sent: [text, time, done]
let echoes = 0;
let running = false;

// ownAddress is where this page's echo is: at any path of the route.
function ownAddress() {
  const url = new URL(location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.search = url.hash = "";
  if (url.pathname.endsWith("/")) url.pathname += "echo";
  return url.href;
}

function show(state, about = "") {
  $("state").dataset.state = state;
  $("state").textContent = { connecting: "connecting", open: "connected", closed: "not connected" }[state];
  const open = state === "open";
  $("send").disabled = $("run").disabled = !open || running;
  $("toggle").textContent = state === "closed" ? "Connect" : "Disconnect";
  $("about").textContent = about;
}

// closedBecause says what a close code means (RFC 6455, 7.4.1).
function closedBecause(event, opened) {
  if (!opened) return "The server did not take the connection. Is it running, and may pages of this site connect (--origin)?";
  const known = { 1000: "closed in good order", 1001: "the server is going away", 1009: "the message was too big", 1012: "the server restarts", 1013: "the server is too busy" };
  const why = event.reason || known[event.code] || (event.code === 1006 ? "the connection was lost" : "closed");
  return `Ended: ${why} (code ${event.code}).`;
}

function connect() {
  let opened = 0;
  const began = performance.now();
  let ws;
  try {
    ws = new WebSocket($("url").value.trim());
  } catch (error) {
    show("closed", `This is not an address of a WebSocket: ${error.message}`);
    return;
  }
  socket = ws;
  show("connecting");
  ws.onopen = () => {
    opened = performance.now();
    const extras = ws.extensions ? `, with ${ws.extensions.split(";")[0]}` : "";
    show("open", `Open after ${milliseconds(opened - began)}${extras}.`);
    $("text").focus({ preventScroll: true });
  };
  ws.onmessage = (event) => {
    const now = performance.now();
    const first = waiting.shift();
    if (first) first.done(now - first.at, event.data);
  };
  ws.onclose = (event) => {
    if (socket !== ws) return;
    socket = null;
    for (const one of waiting.splice(0)) one.done(NaN);
    show("closed", closedBecause(event, opened));
  };
}

// send sends a text and waits for its echo: the time that it took in
// milliseconds, NaN if it did not come.
function send(text) {
  return new Promise((resolve) => {
    waiting.push({ at: performance.now(), done: (time, back) => resolve({ time, same: back === text }) });
    socket.send(text);
  });
}

function milliseconds(ms) {
  if (Number.isNaN(ms)) return "–";
  return ms < 1 ? `${Math.round(ms * 1000)} µs` : `${ms < 10 ? ms.toFixed(2) : ms < 100 ? ms.toFixed(1) : Math.round(ms)} ms`;
}

function list(text, { time, same }) {
  const line = document.createElement("li");
  const what = document.createElement("span");
  const when = document.createElement("span");
  what.className = "what";
  what.textContent = text === "" ? "(nothing)" : text;
  when.className = "when";
  when.textContent = milliseconds(time);
  line.append(what, when);
  if (!same) {
    const said = document.createElement("span");
    said.className = "said bad";
    said.textContent = Number.isNaN(time) ? "did not come back" : "came back as something else";
    line.append(said);
  } else {
    echoes++;
  }
  $("empty").hidden = true;
  $("count").textContent = echoes.toLocaleString("en");
  $("log").prepend(line);
  while ($("log").childElementCount > maxShown) $("log").lastChild.remove();
}

async function measure() {
  running = true;
  show("open", $("about").textContent);
  const times = [];
  const began = performance.now();
  let wrong = false;
  while (times.length < roundTrips && socket) {
    const { time, same } = await send(roundTripText);
    if (!same) {
      wrong = true;
      break;
    }
    times.push(time);
    if (times.length % 50 === 0) $("progress").value = times.length;
  }
  const seconds = (performance.now() - began) / 1000;
  running = false;
  $("progress").value = wrong ? 0 : times.length;
  if (socket) show("open", $("about").textContent);
  if (wrong || times.length === 0) {
    $("measured").textContent = "The connection ended before all came back.";
    $("measured").className = "note bad";
    return;
  }
  echoes += times.length;
  $("count").textContent = echoes.toLocaleString("en");
  times.sort((a, b) => a - b);
  const at = (share) => times[Math.min(times.length - 1, Math.floor(times.length * share))];
  $("rate").textContent = Math.round(times.length / seconds).toLocaleString("en");
  $("median").textContent = milliseconds(at(0.5));
  $("p99").textContent = milliseconds(at(0.99));
  $("longest").textContent = milliseconds(times[times.length - 1]);
}

$("connection").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!socket) return connect();
  socket.close(1000);
});
$("sender").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!socket || socket.readyState !== WebSocket.OPEN || running) return;
  const text = $("text").value;
  list(text, await send(text));
});
$("run").addEventListener("click", measure);

$("url").value = ownAddress();
connect();
