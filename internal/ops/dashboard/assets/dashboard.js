// Keeps the page up to date. Everything here also works without this script, by
// reloading the page: the server renders each panel, and this puts what has changed
// in its place.

const byID = (id) => document.getElementById(id);

// morph makes one element's content that of another, and touches only what differs:
// focus, selection, scrolling and what is unfolded stay as they are.
function morph(to, from) {
  const have = [...to.childNodes], want = [...from.childNodes];
  want.forEach((next, i) => {
    const now = have[i];
    if (!now) {
      to.append(document.importNode(next, true));
    } else if (now.nodeName !== next.nodeName) {
      now.replaceWith(document.importNode(next, true));
    } else if (now.nodeType !== Node.ELEMENT_NODE) {
      if (now.data !== next.data) now.data = next.data;
    } else {
      for (const { name } of [...now.attributes]) if (!next.hasAttribute(name) && name !== "open") now.removeAttribute(name);
      for (const { name, value } of next.attributes) if (now.getAttribute(name) !== value) now.setAttribute(name, value);
      morph(now, next);
    }
  });
  have.slice(want.length).forEach((gone) => gone.remove());
}

function show(id, html) {
  const live = document.querySelector(`[data-live="${CSS.escape(id)}"]`);
  if (!live) return;
  morph(live, new DOMParser().parseFromString(html, "text/html").body);
  if (document.querySelector('nav [aria-current]')) return; // a page of one panel, which stays
  byID(id).hidden = html === "";
  for (const link of document.querySelectorAll(`nav [data-for="${CSS.escape(id)}"]`)) link.hidden = html === "";
}

// The line at the top: when the figures are from, and a switch to keep them as they are.
const state = byID("state");
const time = state.querySelector("time");
const live = document.querySelector("[data-live]") !== null; // else the page is of one moment
const pause = document.createElement("input");
pause.type = "checkbox";
pause.checked = !live;
const label = document.createElement("label");
label.append(pause, " pause");
if (live) state.append(label);
pause.addEventListener("change", () => (pause.checked ? disconnect() : connect()));

function alive(yes) {
  state.classList.toggle("lost", !yes);
  if (!yes) {
    state.firstChild.data = "connection lost, trying again; as of ";
    return;
  }
  state.firstChild.data = "live, as of ";
  const now = new Date();
  time.dateTime = now.toISOString();
  time.textContent = now.toTimeString().slice(0, 8);
}

let events;
function connect() {
  disconnect();
  events = new EventSource("/dashboard/events");
  events.onmessage = ({ data }) => {
    alive(true);
    for (const [id, html] of Object.entries(JSON.parse(data))) {
      if (id !== "log" || !filter?.value) show(id, html);
    }
    if (filter?.value) search();
  };
  events.onerror = () => {
    alive(false);
    if (events.readyState === EventSource.CLOSED) setTimeout(() => pause.checked || connect(), 5000);
  };
}
function disconnect() {
  events?.close();
  if (pause.checked) state.firstChild.data = "paused, as of ";
}
// A page in the background costs the server nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) events?.close();
  else if (!pause.checked) connect();
});

// The log's filter. One question at a time; the last one that was typed wins.
const filter = byID("filter");
let asking = false;
async function search() {
  if (asking) return;
  asking = true;
  const words = filter.value;
  try {
    const answer = await fetch("/dashboard/log.rows?filter=" + encodeURIComponent(words));
    if (answer.ok) show("log", await answer.text());
  } catch {
    alive(false);
  }
  asking = false;
  if (filter.value !== words) search();
}
if (live) {
  filter?.addEventListener("input", search);
  filter?.form.addEventListener("submit", (e) => {
    e.preventDefault();
    search();
  });
}

// The buttons: the page stays, and says how it ended.
document.addEventListener("submit", async (e) => {
  const form = e.target, button = e.submitter;
  if (form.method !== "post" || form.dataset.plain !== undefined) return;
  e.preventDefault();
  if (button?.dataset.sure && !confirm(button.dataset.sure)) return;
  const said = byID("said");
  said.className = "said";
  said.textContent = "…";
  try {
    const answer = await fetch(form.action, {
      method: "POST",
      headers: { Accept: "application/json" },
      body: new URLSearchParams(new FormData(form)),
    });
    if (answer.headers.get("Content-Type") !== "application/json") throw new Error(await answer.text());
    const { did, error } = await answer.json();
    if (error) throw new Error(`${did}: ${error}`);
    said.textContent = `Done: ${did}.`;
    if (form.elements.do.value === "close" || form.elements.do.value === "open") location.reload();
  } catch (err) {
    said.className = "said bad";
    said.textContent = `Not done. ${err.message}`;
  }
});

if (live) connect();
