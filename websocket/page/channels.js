// The channels' page: what a site does with client.js, to look at.
import { Millrace } from "./client.js";

const maxShown = 200; // lines of the list; more only make the page slow
const maxMembers = 50; // shown of those who are in a channel

const $ = (id) => document.getElementById(id);

// The sockets that client.js opens, for the button that breaks the connection.
let socket = null;
globalThis.WebSocket = class extends globalThis.WebSocket {
  constructor(...args) {
    super(...args);
    socket = this;
  }
};

const live = new Millrace();
const subscriptions = new Map(); // channel → what belongs to it
let lost = 0; // when the connection was lost, 0 while it is there
let back = null; // from then on: what has come, until it is clear what of it was missed

const states = { connecting: "connecting", open: "connected", events: "events only", waiting: "coming back", closed: "not connected" };

live.onstate = (state, why) => {
  $("state").textContent = states[state] ?? state;
  $("state").dataset.state = { open: "open", events: "open", closed: "closed" }[state] ?? "connecting";
  $("break").disabled = state !== "open";
  $("gone").hidden = state !== "closed" && state !== "events";
  if (state === "closed") {
    $("gone").textContent = `The server has ended this for good: ${why?.reason || "no reason given"} (code ${why?.code}).`;
  } else if (state === "events") {
    $("gone").textContent = "WebSockets do not get through, so publications come by Server-Sent Events. Publishing from this page needs a key.";
  }
  if (state === "waiting" && !lost) {
    lost = performance.now();
    back ??= new Map();
    line("connection lost; what is published now comes later", "bad");
  }
  if (state === "open" && lost) returned();
};

// returned says what an interruption has cost: what came since and is not newer
// than the channel was at the return had been missed.
async function returned() {
  const seconds = ((performance.now() - lost) / 1000).toFixed(1);
  lost = 0;
  const since = back;
  await null; // the subscriptions are asked for first
  let missed = 0;
  for (const channel of subscriptions.keys()) {
    try {
      const { offset } = await live.history(channel, { limit: 1 });
      for (const [place, shown] of since.get(channel) ?? []) {
        if (place > offset) continue;
        shown.classList.add("missed");
        missed++;
      }
    } catch {
      continue; // the channel's history may not be asked for: then it is not known
    }
    presence(channel);
  }
  if (back === since) back = null;
  line(`back after ${seconds} s; ${missed === 0 ? "nothing" : missed === 1 ? "1 publication" : `${missed} publications`} had been missed${missed ? " and came now" : ""}`, "good");
}

// subscribe asks for who comes and goes as well; where the server does not tell
// that, for publications alone.
function subscribe(channel, joins = true) {
  if (channel === "" || subscriptions.has(channel)) return;
  const one = { members: new Map(), more: 0, joins };
  subscriptions.set(channel, one);
  one.subscription = live.subscribe(channel, show, {
    joins: !joins ? undefined : (member, joined) => {
      if (joined) one.members.set(member.client, member);
      else one.members.delete(member.client);
      members();
    },
    onreset: () => line(`${channel}: something may be missing, more than the server remembers`, "bad"),
    onerror: (error) => {
      unsubscribe(channel);
      if (joins) subscribe(channel, false);
      else refused(`${channel}: ${error.message}`);
    },
  });
  refused("");
  chips();
  if (joins) presence(channel);
}

function unsubscribe(channel) {
  subscriptions.get(channel)?.subscription.unsubscribe();
  subscriptions.delete(channel);
  chips();
  members();
}

function refused(text) {
  $("refused").textContent = text;
  $("refused").hidden = text === "";
}

function chips() {
  $("channels").replaceChildren(...[...subscriptions.keys()].map((channel) => {
    const chip = document.createElement("li");
    const leave = document.createElement("button");
    leave.textContent = "×";
    leave.ariaLabel = `Unsubscribe from ${channel}`;
    leave.addEventListener("click", () => unsubscribe(channel));
    chip.append(channel, leave);
    return chip;
  }));
}

// presence asks who is in a channel. Where the server does not tell, the page
// does without.
async function presence(channel) {
  const one = subscriptions.get(channel);
  if (!one?.joins) return;
  try {
    const there = await live.presence(channel);
    one.members = new Map(there.map((member) => [member.client, member]));
    one.more = there.more;
  } catch {
    one.members.clear();
  }
  members();
}

function members() {
  const channels = [...subscriptions].filter(([, one]) => one.members.size > 0);
  $("presence").hidden = channels.length === 0;
  $("where").textContent = channels.map(([channel, one]) => `${channel}: ${one.members.size + one.more}`).join(", ");
  const all = new Map(channels.flatMap(([, one]) => [...one.members]));
  $("members").replaceChildren(...[...all.values()].slice(0, maxMembers).map((member) => {
    const chip = document.createElement("li");
    chip.className = "plain";
    chip.textContent = member.user ?? `client ${member.client.slice(0, 8)}`;
    chip.title = member.client;
    return chip;
  }));
}

function show(message) {
  const entry = document.createElement("li");
  const what = document.createElement("span");
  const from = document.createElement("span");
  const when = document.createElement("span");
  from.className = "from";
  from.textContent = message.channel;
  what.className = "what";
  what.append(from, typeof message.data === "string" ? message.data : JSON.stringify(message.data));
  when.className = "when";
  when.textContent = `${message.offset ? `${message.offset} · ` : ""}${new Date().toLocaleTimeString("en-GB")}`;
  entry.append(what, when);
  if (back && message.offset) {
    if (!back.has(message.channel)) back.set(message.channel, []);
    back.get(message.channel).push([message.offset, entry]);
  }
  add(entry);
}

function line(text, kind) {
  const entry = document.createElement("li");
  const said = document.createElement("span");
  said.className = `line ${kind}`;
  said.textContent = `${text} (${new Date().toLocaleTimeString("en-GB")})`;
  entry.append(said);
  add(entry);
}

function add(entry) {
  $("empty").hidden = true;
  $("log").prepend(entry);
  while ($("log").childElementCount > maxShown) $("log").lastChild.remove();
}

// dataOf is what was typed: JSON where it looks like that, else text.
function dataOf(text) {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

async function publish(channel, data, key) {
  if (key === "") return live.publish(channel, data);
  const answer = await fetch(`publish?${new URLSearchParams({ channel })}`, {
    method: "POST",
    headers: { "Authorization": `Bearer ${key}`, "Content-Type": "application/json" },
    body: JSON.stringify(data),
  });
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return (await answer.json()).offset ?? 0;
}

function curl() {
  const url = new URL("publish", location.href);
  url.search = new URLSearchParams({ channel: $("to").value });
  url.hash = "";
  const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const key = $("key").value === "" ? "" : ` -H "Authorization: Bearer $KEY"`;
  $("curl").textContent = `curl -d ${quoted($("text").value)}${key} ${quoted(url.href)}`;
}

$("subscriber").addEventListener("submit", (event) => {
  event.preventDefault();
  subscribe($("channel").value.trim());
});
$("publisher").addEventListener("submit", async (event) => {
  event.preventDefault();
  const note = $("published");
  const channel = $("to").value;
  note.className = "note";
  note.textContent = live.state === "open" || $("key").value ? "" : "waits for the connection";
  try {
    const offset = await publish(channel, dataOf($("text").value), $("key").value.trim());
    note.textContent = offset ? `Published, as number ${offset} of ${channel}.` : "Published.";
  } catch (error) {
    note.className = "note bad";
    if (error.code !== "forbidden") {
      note.textContent = `Not published: ${error.message}`;
      return;
    }
    const flag = document.createElement("code");
    flag.textContent = `--allow-publish '${channel}'`;
    note.replaceChildren(`Clients may not publish to ${channel} here. Use a key or curl, or start the server with `, flag, " (in a config: auth.publish).");
  }
});
$("break").addEventListener("click", () => socket?.close(4000, "broken on purpose"));
for (const id of ["to", "text", "key"]) $(id).addEventListener("input", curl);

curl();
subscribe($("channel").value);
