// Run by TestModule, which puts the module beside this file.
import assert from "node:assert/strict";
import test from "node:test";

import { Millrace, MillraceError } from "./millrace.mjs";
import { World } from "./world.mjs";

const base = "https://site.example/live/ws";

// start is a connection that is open, with a channel if it is named.
async function start({ channel, options, subscribe } = {}) {
  const world = new World();
  const live = new Millrace(base, options);
  const states = [];
  live.onstate = (state, why) => states.push(why ? [state, why.code] : state);
  const got = [];
  const resets = [];
  let sub;
  if (channel) sub = live.subscribe(channel, (m) => got.push(m.data), { onreset: (c) => resets.push(c), ...subscribe });
  await world.settle();
  world.socket.open();
  if (channel) world.socket.answer("subscribe", { subscribed: channel, epoch: "E", offset: 10 });
  return { world, live, states, got, resets, sub };
}

// back lets a connection break and the next one open.
async function back({ world }, code) {
  world.socket.end(code);
  await world.pass(30_000);
  world.socket.open();
  return world.socket;
}

const message = (offset, channel = "news") => ({ message: channel, offset, data: `${channel}${offset}` });

async function code(promise) {
  try {
    await promise;
  } catch (e) {
    assert.ok(e instanceof MillraceError, e);
    return e.code;
  }
  return "done";
}

test("the scheme says whether it is secure, relative addresses are the page's", async () => {
  for (const [page, url, socket, stream] of [
    [, "ws://a.example/live/ws", "ws://a.example/live/ws", "http://a.example/live/sse"],
    [, "wss://a.example/live/ws", "wss://a.example/live/ws", "https://a.example/live/sse"],
    [, "http://a.example:8080/live/ws", "ws://a.example:8080/live/ws", "http://a.example:8080/live/sse"],
    [, "https://a.example/live/ws", "wss://a.example/live/ws", "https://a.example/live/sse"],
    [, new URL("WS://A.example/ws"), "ws://a.example/ws", "http://a.example/sse"],
    ["http://b.example/page/", "/live/ws", "ws://b.example/live/ws", "http://b.example/live/sse"],
    ["https://b.example/page/", "live/ws", "wss://b.example/page/live/ws", "https://b.example/page/live/sse"],
    ["https://b.example/page/", "//c.example/ws", "wss://c.example/ws", "https://c.example/sse"],
    ["https://b.example/page/", "ws://localhost/ws", "ws://localhost/ws", "http://localhost/sse"],
  ]) {
    const world = new World();
    globalThis.location = page && { href: page };
    try {
      const live = new Millrace(url);
      live.subscribe("news", () => {});
      await world.settle();
      assert.equal(world.socket.url, socket);
      world.status = 200;
      world.socket.end();
      for (let i = 0; i < 100 && !world.streams.length; i++) { // no WebSocket gets through
        await world.pass(1000);
        if (!world.socket.closed) world.socket.end();
      }
      assert.equal(world.streams[0].url.split("?")[0], stream);
      live.close();
    } finally {
      delete globalThis.location;
    }
  }
  assert.throws(() => new Millrace("live/ws")); // no page that it would be relative to
});

test("publications come in order and once", async () => {
  const t = await start({ channel: "news" });
  t.world.socket.say(message(11), message(12), message(12), message(11), message(14), message(1, "other"));
  assert.deepEqual(t.got, ["news11", "news12", "news14"]);
  assert.deepEqual(t.states, ["connecting", "open"]);
});

test("nothing comes before the subscription is answered", async () => {
  const t = await start({ channel: "news" });
  t.sub.unsubscribe();
  t.live.subscribe("news", (m) => t.got.push("again " + m.data));
  t.world.socket.say(message(11)); // of the subscription that has ended
  t.world.socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 12 });
  t.world.socket.say(message(13));
  assert.deepEqual(t.got, ["again news13"]);
});

test("what was missed comes after an interruption, nothing twice", async () => {
  const t = await start({ channel: "news" });
  t.world.socket.say(message(11));
  const socket = await back(t);
  const { epoch, offset } = socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 14, recovered: true });
  assert.deepEqual({ epoch, offset }, { epoch: "E", offset: 11 });
  socket.say(message(11), message(12));
  // It breaks again before all of it has come.
  const third = await back(t);
  assert.equal(third.answer("subscribe", { subscribed: "news", epoch: "E", offset: 14, recovered: true }).offset, 12);
  third.say(message(13), message(14), message(15));
  assert.deepEqual(t.got, ["news11", "news12", "news13", "news14", "news15"]);
  assert.deepEqual(t.resets, []);
});

test("onreset tells that something was missed", async () => {
  const t = await start({ channel: "news" });
  t.world.socket.say(message(11));
  const socket = await back(t);
  socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 50, recovered: false });
  assert.deepEqual(t.resets, ["news"]);
  socket.say(message(11), message(50), message(51));
  assert.deepEqual(t.got, ["news11", "news50", "news51"]);
  // Another epoch: its offsets begin anew.
  const third = await back(t);
  assert.equal(third.answer("subscribe", { subscribed: "news", epoch: "F", offset: 2, recovered: false }).offset, 51);
  third.say(message(2), message(3));
  assert.deepEqual(t.got.slice(3), ["news2", "news3"]);
  assert.deepEqual(t.resets, ["news", "news"]);
  const fourth = await back(t);
  assert.equal(fourth.answer("subscribe", { subscribed: "news", epoch: "F", offset: 3, recovered: true }).epoch, "F");
  assert.equal(t.resets.length, 2);
});

test("a break while what is left comes does not go back", async () => {
  const t = await start({ channel: "news" });
  let socket = await back(t);
  socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 50, recovered: false });
  socket.say(message(40)); // 41 to 50 are lost with the connection: onreset was called
  socket = await back(t);
  assert.equal(socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 50, recovered: true }).offset, 50);
  assert.equal(t.resets.length, 1);
});

test("reset asks the server again", async () => {
  const t = await start({ channel: "news" });
  t.world.socket.say(message(11), { reset: "news" });
  // 12 is missing, and what follows must not hide it.
  t.world.socket.say(message(13), { placed: "news", id: "never seen", offset: 14 });
  assert.equal(t.world.socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 13, recovered: true }).offset, 11);
  t.world.socket.say(message(12), message(13), message(14));
  assert.deepEqual([t.got, t.resets], [["news11", "news12", "news13", "news14"], []]);
  t.world.socket.say({ reset: "news" });
  t.world.socket.answer("subscribe", { subscribed: "news", epoch: "F", offset: 0, recovered: false });
  assert.deepEqual(t.resets, ["news"]);
});

test("a break between a reset and its answer loses nothing", async () => {
  const t = await start({ channel: "news" });
  t.world.socket.say(message(11), { reset: "news" }, message(13));
  const socket = await back(t);
  assert.equal(socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 13, recovered: true }).offset, 11);
  socket.say(message(12), message(13));
  assert.deepEqual(t.got, ["news11", "news12", "news13"]);
});

test("a server that cannot know what was missed says so later", async () => {
  const t = await start({ channel: "news" });
  const socket = await back(t);
  socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 10, recovered: false, down: true });
  socket.say({ message: "news", id: "a", data: "a" });
  assert.deepEqual([t.got, t.resets], [["a"], []]);
  socket.say({ reset: "news" });
  assert.equal(socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 12, recovered: true }).offset, 10);
  socket.say({ ...message(11), id: "b" }, { ...message(12), id: "a" });
  assert.deepEqual([t.got, t.resets], [["a", "news11"], []]);
});

test("who comes first while the servers are apart begins anew behind it", async () => {
  const t = await start();
  const got = [], resets = [];
  t.live.subscribe("news", (m) => got.push(m.data), { onreset: (c) => resets.push(c) });
  const { socket } = t.world;
  socket.answer("subscribe", { subscribed: "news", epoch: "", offset: 0, down: true });
  socket.say({ message: "news", id: "a", data: "a" }, { reset: "news" });
  const command = socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 12 });
  assert.ok(!("epoch" in command));
  socket.say(message(12), message(13));
  assert.deepEqual([got, resets], [["a", "news13"], ["news"]]);
});

test("recover: false begins anew", async () => {
  const t = await start({ channel: "news", subscribe: { recover: false } });
  const socket = await back(t);
  const command = socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 20 });
  assert.ok(!("offset" in command) && !("epoch" in command));
  socket.say(message(20), message(21));
  assert.deepEqual([t.got, t.resets], [["news21"], []]);
});

test("publications without a place are known by their ids, and by the place they get", async () => {
  const t = await start({ channel: "news" });
  const without = (id) => ({ message: "news", id, data: id });
  t.world.socket.say(without("a"), without("b"), without("a"), { placed: "news", id: "a", offset: 12 }, { placed: "news", id: "never seen", offset: 13 });
  const socket = await back(t);
  assert.equal(socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 13, recovered: true }).offset, 10);
  socket.say(message(11), message(12), message(13), without("b"), { ...message(14), id: "b" }, { ...message(15), id: "c" });
  assert.deepEqual(t.got, ["a", "b", "news11", "news13", "news15"]);
  // A server that has not heard of its place tells it again.
  socket.say({ ...message(16), id: "d" }, without("d"), without("e"), { ...message(17), id: "e" });
  assert.deepEqual(t.got.splice(5), ["news16", "e"]);
  // In another order, too.
  const third = await back(t);
  third.answer("subscribe", { subscribed: "news", epoch: "F", offset: 3, recovered: false });
  third.say({ ...message(1), id: "a" }, { ...message(2), id: "b" }, { ...message(3), id: "f" });
  assert.deepEqual(t.got.slice(5), ["news3"]);
});

test("several subscriptions to a channel are one", async () => {
  const t = await start({ channel: "news" });
  const second = t.live.subscribe("news", (m) => t.got.push("second " + m.data));
  assert.deepEqual(t.world.socket.take(), []);
  t.world.socket.say(message(11));
  t.sub.unsubscribe();
  t.sub.unsubscribe();
  assert.deepEqual(t.world.socket.take(), []);
  t.world.socket.say(message(12));
  second.unsubscribe();
  assert.equal(t.world.socket.answer("unsubscribe", { unsubscribed: "news" }).unsubscribe, "news");
  t.world.socket.say(message(13));
  assert.deepEqual(t.got, ["news11", "second news11", "second news12"]);
  const socket = await back(t);
  assert.deepEqual(socket.take(), []);
});

test("joins are asked for and told", async () => {
  const t = await start({ channel: "news" });
  const seen = [];
  t.live.subscribe("news", () => {}, { joins: (member, joined) => seen.push([member.client, joined]) });
  const command = t.world.socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 10, recovered: true });
  assert.deepEqual([command.joins, command.offset], [true, 10]);
  t.world.socket.say({ join: "news", member: { client: "c" } }, { leave: "news", member: { client: "c" } });
  assert.deepEqual(seen, [["c", true], ["c", false]]);
});

test("joins that are refused end nothing else", async () => {
  const t = await start({ channel: "news" });
  const errors = [];
  t.live.subscribe("news", (m) => t.got.push("second " + m.data), { joins: () => {}, onerror: (e) => errors.push(e.code) });
  t.world.socket.answer("subscribe", { error: "no", code: "not_found", channel: "news" });
  t.world.socket.say(message(11));
  assert.deepEqual([errors, t.got], [["not_found"], ["news11", "second news11"]]);
  const socket = await back(t);
  assert.ok(!("joins" in socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 11, recovered: true })));
});

test("a function of the page that throws harms nobody else", async () => {
  const t = await start({ channel: "news" });
  const later = [];
  const real = globalThis.queueMicrotask;
  globalThis.queueMicrotask = (f) => later.push(f);
  t.live.subscribe("news", () => { throw new Error("page"); });
  t.live.subscribe("news", (m) => t.got.push("third " + m.data));
  t.world.socket.say(message(11));
  globalThis.queueMicrotask = real;
  assert.deepEqual(t.got, ["news11", "third news11"]);
  assert.equal(later.length, 1);
  assert.throws(later[0], { message: "page" }); // the console hears of it
});

test("commands are answered", async () => {
  const t = await start();
  const all = Promise.all([t.live.publish("a", { x: 1 }), t.live.presence("a"), t.live.history("a", { limit: 5 }), t.live.renew("T")]);
  const { socket } = t.world;
  assert.deepEqual(socket.answer("history", { history: "a", epoch: "E", offset: 3, complete: false, messages: [] }).limit, 5);
  assert.deepEqual(socket.answer("publish", { published: "a", offset: 3 }).data, { x: 1 });
  socket.answer("presence", { presence: "a", members: [{ client: "c" }], more: 2 });
  assert.equal(socket.answer("token", { token: "ok", expires: 99 }).token, "T");
  const [offset, members, history, expires] = await all;
  assert.deepEqual([offset, [...members], members.more, history.offset, expires], [3, [{ client: "c" }], 2, 3, 99]);
});

test("undefined is published as null", async () => {
  const t = await start();
  t.live.publish("a");
  assert.equal(t.world.socket.answer("publish", { published: "a", offset: 1 }).data, null);
});

test("errors have the server's code", async () => {
  const t = await start();
  const failed = t.live.publish("a", 1);
  t.world.socket.answer("publish", { error: "no", code: "forbidden", channel: "a" });
  await assert.rejects(failed, { name: "MillraceError", message: "no", code: "forbidden", channel: "a" });
});

test("publishing waits for a connection, up to a bound", async () => {
  const world = new World();
  const live = new Millrace(base, { queue: 2 });
  live.subscribe("a", () => {});
  const first = live.publish("a", 1);
  const second = live.publish("a", 2);
  assert.equal(await code(live.publish("a", 3)), "unavailable");
  await world.settle();
  world.socket.end();
  await world.pass(1000);
  world.socket.open();
  assert.deepEqual(world.socket.sent.map((c) => c.subscribe ?? c.data), ["a", 1, 2]); // in this order
  world.socket.answer("subscribe", { subscribed: "a", epoch: "E", offset: 0 });
  world.socket.answer("publish", { published: "a", offset: 1 });
  world.socket.answer("publish", { published: "a", offset: 2 });
  assert.deepEqual(await Promise.all([first, second]), [1, 2]);
});

test("a publication without a place yet has the offset 0", async () => {
  const t = await start();
  const offset = t.live.publish("a", 1);
  t.world.socket.answer("publish", { published: "a", id: "i" });
  assert.equal(await offset, 0);
});

test("commands without an answer are bounded and fail with the connection", async () => {
  const t = await start();
  const asked = [];
  for (let i = 0; i < 1000; i++) asked.push(code(t.live.publish("a", i)));
  assert.equal(await code(t.live.publish("a", -1)), "too_many");
  t.world.socket.end();
  assert.deepEqual(new Set(await Promise.all(asked)), new Set(["lost"]));
  await t.world.pass(30_000);
  t.world.socket.open();
  assert.deepEqual(t.world.socket.take(), []); // what may have been done is not done again
});

test("waits double up to thirty seconds, with jitter", async () => {
  const t = await start();
  t.world.status = 0;
  const waits = [];
  for (let i = 0; i < 9; i++) {
    const before = t.world.sockets.length;
    t.world.socket.end();
    await t.world.settle();
    let waited = 0;
    while (t.world.sockets.length == before) {
      await t.world.pass(100);
      waited += 100;
    }
    waits.push(waited);
  }
  assert.deepEqual(waits, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]);
  t.world.random = 0;
  t.world.socket.end();
  await t.world.pass(1);
  t.world.socket.open();
  await t.world.pass(10_000); // a connection that lasts
  t.world.random = 0.5;
  t.world.socket.end();
  const before = t.world.sockets.length;
  await t.world.pass(249);
  assert.equal(t.world.sockets.length, before);
  await t.world.pass(2);
  assert.equal(t.world.sockets.length, before + 1);
});

test("the server says when to come back", async () => {
  const t = await start();
  t.world.socket.say({ reconnect: 7.5 });
  t.world.socket.end(1012);
  await t.world.pass(7499);
  assert.equal(t.world.sockets.length, 1);
  await t.world.pass(2);
  assert.equal(t.world.sockets.length, 2);
  assert.deepEqual(t.states, ["connecting", "open", "waiting", "connecting"]);
  t.world.socket.end(); // what it said was for once
  await t.world.pass(1000);
  assert.equal(t.world.sockets.length, 3);
});

test("a network that is there again is not waited for", async () => {
  const t = await start();
  t.world.online();
  assert.equal(t.world.sockets.length, 1); // it is connected
  t.world.socket.end();
  t.world.online();
  await t.world.settle();
  assert.equal(t.world.sockets.length, 2);
  t.world.socket.open();
  await t.world.pass(40_000); // the wait that there was is over
  assert.equal(t.world.sockets.length, 2);
  t.live.close();
  assert.equal(t.world.heard.size, 0);
});

test("the token is sent, and got anew for every connection", async () => {
  const calls = [];
  const t = await start({ options: { token: async (refused) => (calls.push(refused), "T" + calls.length) } });
  assert.equal(t.world.socket.url, "wss://site.example/live/ws?token=T1");
  await back(t);
  assert.equal(t.world.socket.url, "wss://site.example/live/ws?token=T2");
  assert.deepEqual(calls, [false, false]);
});

test("after 3000 only another token comes back", async () => {
  let token = "old";
  const calls = [];
  const t = await start({ channel: "news", options: { token: (refused) => (calls.push(refused), token) } });
  token = "new";
  const socket = await back(t, 3000);
  assert.match(socket.url, /token=new$/);
  assert.equal(socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 10, recovered: true }).offset, 10);
  socket.end(3000);
  await t.world.pass(60_000);
  assert.equal(t.world.sockets.length, 2);
  assert.deepEqual(t.states.at(-1), ["closed", 3000]);
  assert.deepEqual(calls, [false, true, true]);
  assert.equal(await code(t.live.publish("a", 1)), "closed");
});

test("after 3000 renew opens again", async () => {
  const t = await start({ channel: "news", options: { token: "old" } });
  t.world.socket.end(3000);
  await t.world.pass(60_000);
  assert.deepEqual(t.states.at(-1), ["closed", 3000]);
  assert.equal(await t.live.renew("new"), null);
  await t.world.settle();
  t.world.socket.open();
  assert.match(t.world.socket.url, /token=new$/);
  assert.equal(t.world.socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 10, recovered: true }).offset, 10);
});

test("without any token 3000 is not the end: a cookie may be good still", async () => {
  const t = await start();
  t.world.socket.end(3000);
  await t.world.pass(60_000);
  assert.equal(t.world.sockets.length, 2);
});

test("close while a token is being got", async () => {
  const world = new World();
  let give;
  const live = new Millrace(base, { token: () => new Promise((resolve) => (give = resolve)) });
  await world.settle();
  live.close();
  give("T");
  await world.settle();
  assert.deepEqual([world.sockets.length, live.state], [0, "closed"]);
});

test("3003 is the end", async () => {
  const t = await start({ options: { token: () => "T" + Math.random() } });
  t.world.socket.end(3003, "go away");
  await t.world.pass(60_000);
  assert.equal(t.world.sockets.length, 1);
  assert.deepEqual(t.states.at(-1), ["closed", 3003]);
});

test("a token that cannot be got is tried for again", async () => {
  const world = new World();
  let calls = 0;
  new Millrace(base, { token: () => { if (++calls < 3) throw new Error("offline"); return "T"; } });
  await world.settle();
  assert.equal(world.sockets.length, 0);
  await world.pass(5000);
  assert.equal(world.sockets.length, 1);
  assert.equal(calls, 3);
});

test("close ends everything", async () => {
  const t = await start({ channel: "news" });
  const asked = code(t.live.publish("a", 1));
  const { socket } = t.world;
  t.live.close();
  t.live.close();
  assert.equal(await asked, "lost");
  assert.ok(socket.closed);
  socket.say(message(11));
  socket.end(1000);
  await t.world.pass(600_000);
  assert.deepEqual([t.got, t.world.sockets.length, t.world.timers], [[], 1, 0]);
  assert.deepEqual(t.states, ["connecting", "open", ["closed", 1000]]);
});

test("close before anything is open", async () => {
  const world = new World();
  const live = new Millrace(base);
  const waiting = code(live.publish("a", 1));
  live.close();
  await world.pass(60_000);
  assert.deepEqual([world.sockets.length, await waiting], [0, "closed"]);
});

test("a server that is silent is asked, and then left", async () => {
  const t = await start({ options: { ping: 60 } });
  await t.world.pass(60_000);
  t.world.socket.answer("ping", { pong: true });
  await t.world.pass(60_000);
  t.world.socket.answer("ping", { pong: true });
  assert.equal(t.world.sockets.length, 1);
  await t.world.pass(150_000);
  assert.ok(t.world.sockets[0].closed);
  assert.equal(t.world.sockets.length, 2);
});

test("a refused subscription is told and not tried again, one that cannot be had now is", async () => {
  const errors = [];
  const t = await start();
  t.live.subscribe("secret", () => {}, { onerror: (e) => errors.push([e.code, e.channel]) });
  t.live.subscribe("busy", (m) => t.got.push(m.data), { onerror: (e) => errors.push(e) });
  t.world.socket.answer("subscribe", { error: "no", code: "forbidden", channel: "secret" });
  t.world.socket.answer("subscribe", { error: "not now", code: "unavailable", channel: "busy" });
  assert.deepEqual(errors, [["forbidden", "secret"]]);
  await t.world.pass(10_000);
  assert.equal(t.world.socket.answer("subscribe", { subscribed: "busy", epoch: "E", offset: 0 }).subscribe, "busy");
  t.world.socket.say(message(1, "busy"));
  assert.deepEqual(t.got, ["busy1"]);
  t.world.socket.say({ unsubscribed: "busy" }); // by a new token
  assert.equal(errors.at(-1).code, "forbidden");
  const socket = await back(t);
  assert.deepEqual(socket.take(), []);
});

// events is a client that gets event streams only.
async function events(t) {
  t.world.status = 200;
  t.world.socket.end();
  while (!t.world.streams.length) {
    await t.world.pass(1000);
    if (!t.world.streams.length && !t.world.socket.closed) t.world.socket.end();
  }
  t.world.stream.open();
}

test("events come where WebSockets do not get through", async () => {
  const t = await start({ channel: "news", options: { token: "T" } });
  await events(t);
  assert.equal(t.live.state, "events");
  assert.equal(t.world.stream.url, "https://site.example/live/sse?token=T&channel=news");
  assert.deepEqual(t.world.fetched, [t.world.stream.url]);
  assert.deepEqual(t.resets, ["news"]); // between the two something may be missing
  t.world.stream.say("message", "i1", message(5));
  t.world.stream.fail(0); // the browser comes back by itself
  t.world.stream.open();
  t.world.stream.say("message", "i2", message(5));
  t.world.stream.say("message", "i3", message(6));
  assert.equal(await code(t.live.publish("news", 1)), "unavailable");
  t.world.stream.say("reset", "i4", { reset: "news" });
  t.world.stream.say("message", "i5", message(1));
  assert.deepEqual([t.got, t.resets.length], [["news5", "news6", "news1"], 2]);
  // Another channel needs another stream, which goes on where the first was.
  t.live.subscribe("chat", (m) => t.got.push(m.data));
  assert.equal(t.world.streams.length, 2);
  assert.ok(t.world.streams[0].readyState == 2);
  assert.match(t.world.stream.url, /channel=news&channel=chat&last_event_id=i5$/);
  t.world.stream.open();
  t.world.stream.say("message", "i6", message(9, "chat"));
  assert.equal(t.got.at(-1), "chat9");
  // It breaks for good: then WebSockets get another chance.
  const before = t.world.sockets.length;
  t.world.stream.fail(2);
  await t.world.pass(1000);
  assert.equal(t.world.sockets.length, before + 1);
  t.world.socket.open();
  assert.ok(!("offset" in t.world.socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 20 })));
  assert.equal(t.resets.length, 3);
});

test("events go on after a stream that ended for good, but not after a WebSocket", async () => {
  const t = await start({ channel: "news" });
  await events(t);
  t.world.stream.say("message", "i1", message(5));
  t.world.stream.fail(2);
  for (let i = 0; i < 2; i++) {
    await t.world.pass(31_000);
    t.world.socket.end();
  }
  await t.world.settle();
  assert.equal(t.world.streams.length, 2);
  assert.match(t.world.stream.url, /last_event_id=i1$/);
  assert.equal(t.resets.length, 1); // of the first change
  t.world.stream.open();
  t.world.stream.fail(2);
  await t.world.pass(31_000);
  t.world.socket.open();
  t.world.socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 20 });
  assert.equal(t.resets.length, 2);
  t.world.socket.end();
  for (let i = 0; i < 2; i++) {
    await t.world.pass(31_000);
    t.world.socket.end();
  }
  await t.world.settle();
  assert.equal(t.world.streams.length, 3);
  assert.doesNotMatch(t.world.stream.url, /last_event_id/);
  assert.equal(t.resets.length, 3);
});

test("one failure between good connections is no reason for events", async () => {
  const t = await start({ channel: "news" });
  t.world.status = 200;
  for (let i = 0; i < 3; i++) {
    t.world.socket.end();
    await t.world.pass(31_000);
    t.world.socket.end(); // this one was never open
    await t.world.pass(31_000);
    t.world.socket.open();
  }
  assert.deepEqual([t.world.streams.length, t.world.fetched.length], [0, 0]);
});

test("without HTTP there are no event streams either", async () => {
  const t = await start({ channel: "news" });
  for (let i = 0; i < 5; i++) {
    t.world.socket.end();
    await t.world.pass(31_000);
  }
  assert.equal(t.world.streams.length, 0);
  assert.ok(t.world.fetched.length >= 3);
});

test("a refusal that a WebSocket cannot tell is found out", async () => {
  const t = await start({ channel: "news", options: { token: "T" } });
  t.world.status = 401;
  for (let i = 0; i < 3; i++) {
    t.world.socket.end();
    await t.world.pass(31_000);
  }
  assert.deepEqual(t.states.at(-1), ["closed", 3000]);
  assert.equal(t.world.streams.length, 0);
});

test("commands that wait are told when there are only events", async () => {
  const t = await start({ channel: "news" });
  t.world.socket.end();
  const waiting = code(t.live.publish("news", 1));
  await events(t);
  assert.equal(await waiting, "unavailable");
});

test("a publication without a place is answered, too", async () => {
  const t = await start({ channel: "news" });
  const published = t.live.publish("news", "a");
  t.world.socket.answer("publish", { published: "news", message_id: "m-1" });
  assert.equal(await published, 0);
});

test("events go on until a WebSocket gets through again", async () => {
  const t = await start({ channel: "news" });
  await events(t);
  t.world.stream.say("message", "i1", message(5));
  const before = t.world.sockets.length;
  for (let i = 1; i <= 3; i++) {
    await t.world.pass(120_000);
    assert.equal(t.world.sockets.length, before + i);
    t.world.socket.end(); // not yet
    t.world.stream.say("message", `i${i + 1}`, message(5 + i));
    assert.deepEqual([t.live.state, t.world.stream.readyState], ["events", 1]);
  }
  assert.deepEqual([t.got, t.resets.length], [["news5", "news6", "news7", "news8"], 1]);
  t.world.online(); // another network, perhaps
  await t.world.settle();
  t.live.subscribe("chat", (m) => t.got.push(m.data)); // while it is on its way
  t.world.stream.open();
  t.world.socket.open();
  assert.deepEqual([t.live.state, t.world.stream.readyState], ["open", 2]);
  t.world.socket.answer("subscribe", { subscribed: "news", epoch: "E", offset: 20 });
  t.world.socket.answer("subscribe", { subscribed: "chat", epoch: "E", offset: 3 });
  t.world.socket.say(message(20), message(21), message(4, "chat"));
  assert.deepEqual([t.got.slice(4), t.resets.length], [["news21", "chat4"], 2]);
  const published = t.live.publish("news", 1);
  t.world.socket.answer("publish", { published: "news", offset: 22 });
  assert.equal(await published, 22);
  await t.world.pass(600_000);
  assert.equal(t.states.filter((s) => s == "events").length, 1);
});

test("a stream that ends for good ends the attempt beside it", async () => {
  const t = await start({ channel: "news", options: { token: async () => "T" } });
  await events(t);
  await t.world.pass(120_000);
  const late = t.world.socket;
  t.world.stream.fail(2);
  assert.ok(late.closed);
  late.onopen();
  assert.equal(t.live.state, "waiting");
});

test("one forbidden channel does not silence the others, and is told", async () => {
  const t = await start({ channel: "news" });
  const errors = [];
  t.live.subscribe("secret", () => {}, { onerror: (e) => errors.push([e.code, e.channel]) });
  await events(t);
  t.world.stream.say("refused", "", { error: "no", code: "forbidden", channel: "secret" });
  t.world.stream.say("message", "i1", message(5));
  assert.deepEqual([errors, t.got], [[["forbidden", "secret"]], ["news5"]]);
  t.live.subscribe("chat", () => {});
  assert.match(t.world.stream.url, /channel=news&channel=chat&last_event_id=i1$/);
  t.world.stream.say("refused", "", { error: "no", code: "forbidden", channel: "chat" });
  t.live.subscribe("more", () => {});
  assert.match(t.world.stream.url, /channel=news&channel=more&last_event_id=i1$/);
});

test("only forbidden channels: each is told, and nothing else counts as that", async () => {
  for (const [text, want] of [["You may not subscribe to \"news\".\n", ["forbidden"]], ["<h1>Forbidden</h1>", []]]) {
    const errors = [];
    const t = await start({ channel: "news", subscribe: { onerror: (e) => errors.push(e.code) } });
    Object.assign(t.world, { status: 403, text });
    for (let i = 0; i < 4; i++) {
      t.world.socket.end();
      await t.world.pass(31_000);
    }
    assert.deepEqual([errors, t.live.state, t.world.streams.length], [want, "connecting", 0]);
  }
});

test("a token that is refused is found out without a subscription, too", async () => {
  let refused;
  for (const token of ["T", (was) => { refused = was; return "T"; }]) {
    const t = await start({ options: { token } });
    t.world.status = 401;
    for (let i = 0; i < 3; i++) {
      t.world.socket.end();
      await t.world.pass(31_000);
    }
    assert.deepEqual(t.states.at(-1), ["closed", 3000]);
  }
  assert.equal(refused, true);
});
