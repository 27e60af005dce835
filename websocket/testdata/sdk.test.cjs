// A session of the JavaScript SDK over one transport:
//   node sdk.test.cjs MODULES BASE TRANSPORT FORM TOKEN
// It prints what has happened, a line for each event, and ends with "done".
"use strict";
const [modules, base, transport, form, token] = process.argv.slice(2);
const load = (name) => require(require.resolve(name, { paths: [modules] }));
const { Centrifuge } = load(form === "protobuf" ? "centrifuge/build/protobuf" : "centrifuge");

const say = (...words) => console.log(words.join(" "));
const paths = { websocket: "connection/websocket", http_stream: "connection/http_stream", sse: "connection/sse" };
const address = (transport === "websocket" ? base.replace(/^http/, "ws") : base) + paths[transport];
const client = new Centrifuge([{ transport, endpoint: address }], {
  token,
  websocket: load("ws"),
  eventsource: load("eventsource"),
  fetch,
  readableStream: ReadableStream,
  emulationEndpoint: base + "emulation",
  maxServerPingDelay: 3000,
});
const encode = (v) => (form === "protobuf" ? new TextEncoder().encode(JSON.stringify(v)) : v);
const decode = (v) => JSON.stringify(form === "protobuf" ? JSON.parse(new TextDecoder().decode(v)) : v);
const once = (emitter, event) => new Promise((resolve) => emitter.once(event, resolve));

client.on("disconnected", (e) => say("disconnected", e.code, e.reason));
client.on("error", (e) => say("error", JSON.stringify(e)));
client.on("publication", (e) => say("given", e.channel, decode(e.data)));

async function session() {
  const given = once(client, "subscribed");
  const connected = once(client, "connected");
  client.connect();
  say("connected by", (await connected).transport);
  say("given", (await given).channel);
  const sub = client.newSubscription("news", { recoverable: true });
  const seen = [];
  sub.on("publication", (e) => seen.push(decode(e.data)));
  sub.subscribe();
  await sub.ready();
  for (let i = 0; i < 3; i++) await sub.publish(encode({ n: i }));
  const { clients } = await sub.presence();
  say("present", Object.values(clients).map((c) => c.user).join());
  const stats = await sub.presenceStats();
  say("counted", stats.numClients, stats.numUsers);
  const page = await sub.history({ limit: 2, reverse: true });
  say("history", page.publications.map((p) => decode(p.data)).join(), page.offset);
  try {
    await client.rpc("x", encode({}));
  } catch (e) {
    say("rpc", e.code);
  }
  // The server ends every connection; what is published while nobody is there is recovered.
  const back = once(client, "connected");
  const again = once(sub, "subscribed");
  await fetch(base + "break", { method: "POST" });
  await back;
  say("recovered", (await again).recovered);
  for (const end = Date.now() + 10000; seen.length < 4 && Date.now() < end; ) await new Promise((r) => setTimeout(r, 20));
  say("seen", seen.join());
  await new Promise((r) => setTimeout(r, 2500)); // pings
  say(client.state);
  sub.unsubscribe();
  client.disconnect();
  say("done");
}
session().catch((e) => {
  say("failed", e && (e.stack || JSON.stringify(e)));
  process.exit(1);
}).then(() => process.exit(0));
