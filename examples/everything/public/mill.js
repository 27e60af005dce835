// What the page shows of its server: which picture came as what, how long the
// API took, and what is published while the page is open.
import { Millrace } from "/live/client.js";

const $ = (id) => document.getElementById(id);
const kilobytes = (bytes) => `${(bytes / 1000).toFixed(bytes < 10_000 ? 1 : 0)} KB`;

// Pictures. The same URL is another file for another browser, so we ask again
// as this one would, and as one that knows JPEG alone.
const names = { "image/avif": "AVIF", "image/webp": "WebP", "image/jpeg": "JPEG" };

async function ask(src, accept) {
  const answer = await fetch(src, { method: "HEAD", headers: { Accept: accept }, cache: "no-store" });
  const says = answer.headers;
  return { name: names[says.get("Content-Type")], bytes: Number(says.get("Content-Length")), why: says.get("Millrace-Image") };
}

async function caption(img) {
  const label = img.parentElement.querySelector("span");
  try {
    const [plain, ...better] = await Promise.all([
      ask(img.src, "image/jpeg"), ask(img.src, "image/webp"), ask(img.src, "image/avif,image/webp"),
    ]);
    // What has come is told by its size: no header of a picture reaches a script.
    const came = performance.getEntriesByName(img.src)[0]?.encodedBodySize;
    const best = better[1];
    const is = [plain, ...better].find((one) => one.bytes === came) ?? best;
    label.textContent = is.name === "JPEG"
      ? `JPEG, ${kilobytes(plain.bytes)}`
      : `${is.name}, ${kilobytes(is.bytes)} instead of ${kilobytes(plain.bytes)}`;
    label.title = best.name !== is.name && best.name !== "JPEG"
      ? `The next visitor gets ${best.name} of ${kilobytes(best.bytes)}: it was converted meanwhile.`
      : `Millrace-Image: ${best.why}`;
  } catch {
    label.textContent = "The server does not answer";
  }
}

for (const img of document.querySelectorAll("figure img")) {
  if (img.complete) caption(img);
  else img.addEventListener("load", () => caption(img), { once: true });
}

// The API, through the cache.
const slow = 320; // ms that fill a bar
const most = 4; // bars

async function river() {
  $("ask").disabled = true;
  const began = performance.now();
  try {
    const answer = await fetch("/api/river", { cache: "no-store" });
    if (!answer.ok) throw new Error(`the API is not there (${answer.status}): go run examples/everything/api.go`);
    const { level, unit, asked } = await answer.json();
    // The network's own time, without what the page was busy with meanwhile.
    const entry = performance.getEntriesByName(answer.url).at(-1);
    const took = entry?.responseEnd > began ? entry.responseEnd - entry.requestStart : performance.now() - began;
    const status = answer.headers.get("Cache-Status") ?? "";
    const how = /; hit/.test(status) ? "from the cache" : "from the API";
    $("level").textContent = level;
    $("unit").textContent = unit;
    $("took").textContent = `${how[0].toUpperCase()}${how.slice(1)}. The API has been asked ${asked === 1 ? "once" : `${asked} times`} so far.`;
    $("took").title = `Cache-Status: ${status}`;
    const bar = document.createElement("li");
    bar.textContent = `${took.toFixed(took < 10 ? 1 : 0)} ms`;
    bar.style.setProperty("--part", `${Math.min(100, (took / slow) * 100)}%`);
    $("times").prepend(bar);
    while ($("times").childElementCount > most) $("times").lastElementChild.remove();
  } catch (error) {
    $("took").textContent = error.message;
  }
  $("ask").disabled = false;
}

$("ask").addEventListener("click", river);
await river();
river(); // the same again: this time the cache has it

// The log: what was before, then what comes. The client comes back by itself.
const live = new Millrace(); // …/live/ws, beside client.js
const lines = 100; // that are shown
let shown = 0; // the latest offset in the list

live.onstate = (state) => { $("state").textContent = state === "open" ? "live" : state; };

function show(message, when) {
  if (message.offset && message.offset <= shown) return; // it was in the history
  shown = message.offset ?? shown;
  const line = document.createElement("li");
  const time = document.createElement("time");
  time.dateTime = when.toISOString();
  time.textContent = when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  // Text, whatever somebody has sent.
  line.append(time, typeof message.data === "string" ? message.data : JSON.stringify(message.data));
  $("log").append(line);
  if ($("log").childElementCount > lines) $("log").firstElementChild.remove();
  $("log").scrollTop = $("log").scrollHeight;
}

// What comes before the history is there waits for it, or it would be taken for
// the later part.
let waiting = null;
async function before() {
  waiting = [];
  try {
    for (const m of (await live.history("log")).messages) show(m, new Date(m.time));
  } catch { /* not now: what comes is shown all the same */ }
  for (const m of waiting) show(m, new Date());
  waiting = null;
}

live.subscribe("log", (m) => (waiting ? waiting.push(m) : show(m, new Date())), {
  onreset: () => { // more was missed than the server remembers
    $("log").replaceChildren();
    shown = 0;
    before();
  },
});
before();

$("command").textContent = `curl -d 'the wheel turns' '${new URL("/live/publish?channel=log", location.href)}'`;
$("write").addEventListener("submit", async (event) => {
  event.preventDefault();
  $("failed").hidden = true;
  try {
    await live.publish("log", $("text").value);
    $("text").value = "";
  } catch (error) {
    $("failed").textContent = error.message;
    $("failed").hidden = false;
  }
});
