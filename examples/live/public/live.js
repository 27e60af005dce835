// What a live page needs: a connection that comes back by itself, two
// channels, and what was there before.
import { Millrace } from "/live/client.js";

const most = 100; // lines that a list shows
const $ = (id) => document.getElementById(id);
const live = new Millrace(); // ws://…/live/ws, beside client.js

live.onstate = (state) => {
  $("state").textContent = state === "open" ? "connected" : state;
  document.documentElement.dataset.state = state;
  if (state === "open") count();
};

// show adds a line to a list. It is text, whatever somebody has sent.
function show(list, when, who, text) {
  const line = document.createElement("li");
  const time = document.createElement("time");
  time.dateTime = when.toISOString();
  time.textContent = when.toLocaleTimeString();
  line.append(time);
  if (who) {
    const name = document.createElement("b");
    name.textContent = String(who);
    line.append(name);
  }
  line.append(typeof text === "string" ? text : JSON.stringify(text));
  const lines = $(list);
  const below = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 40; // whoever scrolled up reads on
  lines.append(line);
  if (lines.childElementCount > most) lines.firstElementChild.remove();
  if (below) lines.scrollTop = lines.scrollHeight;
}

const showNews = (data, when) => show("news", when, "", data?.title ?? data);
const showChat = (data, when) => show("chat", when, data?.name, data?.text ?? data);

// A channel's history first, then what comes. The subscription is asked for
// before the history, so nothing falls between the two; what is in both has the
// same offset, and is shown once.
function follow(channel, show, options) {
  let shown = 0; // the latest offset in the list
  let waiting = []; // what came before the history did
  const one = (m, when) => {
    if (m.offset && m.offset <= shown) return;
    shown = m.offset ?? shown;
    show(m.data, when);
  };
  const load = () => live.history(channel).then(
    (h) => h.messages.forEach((m) => one(m, new Date(m.time))),
    () => {}, // not now: what comes is shown all the same
  ).finally(() => {
    waiting?.forEach((m) => one(m, new Date()));
    waiting = null;
  });
  live.subscribe(channel, (m) => (waiting ? waiting.push(m) : one(m, new Date())), {
    // More was missed than the server remembers, or it was started anew: what
    // it still has is what there is to show.
    onreset: () => {
      $(channel).replaceChildren();
      shown = 0;
      waiting = [];
      load();
    },
    ...options,
  });
  load();
}

follow("news", showNews);
follow("chat", showChat, { joins: count });

async function count() {
  try {
    const there = await live.presence("chat");
    const others = there.length + there.more - 1;
    $("there").textContent = others < 1 ? "nobody else here" : `${others} more here`;
  } catch {
    $("there").textContent = ""; // not now
  }
}

$("say").addEventListener("submit", async (event) => {
  event.preventDefault();
  $("failed").hidden = true;
  try {
    await live.publish("chat", { name: $("name").value, text: $("text").value });
    $("text").value = "";
  } catch (error) {
    $("failed").textContent = error.message;
    $("failed").hidden = false;
  }
});
