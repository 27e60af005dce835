// Channels for browsers: publications that come as they happen, none lost and
// none twice while the server remembers them. Types and comments for each
// member are in millrace.d.ts, the protocol in the server's documentation.

const sooner = 500, later = 30_000; // ms: bounds of the waits before coming back
const stable = 10_000; // ms: a connection that lasted so long was good
const again = 60_000; // ms: least wait for another WebSocket beside event streams
const maxAsked = 1_000; // commands without an answer
const maxSeen = 1_000; // IDs and early offsets that are remembered, per channel

const onlyEvents = "this needs a WebSocket, and only event streams get through";

// call leaves errors of the page's functions to the console.
function call(f, ...args) {
  try {
    f?.(...args);
  } catch (e) {
    queueMicrotask(() => { throw e; });
  }
}

export class MillraceError extends Error {
  constructor(code, text, channel) {
    super(text);
    this.name = "MillraceError";
    this.code = code;
    this.channel = channel;
  }
}

export class Millrace {
  state = "connecting";
  onstate = () => {};
  #url; #token; #bound; #ping;
  #channels = new Map(); // name → what is known of the channel
  #asked = new Map(); // id → what to do with the answer
  #queue = []; // commands for when there is a connection
  #serial = 0;
  #turn = 0; // of connections: what earlier ones still say does not count
  #tries = 0; #failed = 0;
  #socket; #events; #eventID; #used; #refused; #hint; #timer; #beat; #heard;
  #online = () => /^(waiting|events)$/.test(this.state) && this.#connect();

  constructor(url = new URL("ws", import.meta.url), { token, queue = 100, ping = 60 } = {}) {
    this.#url = new URL(url, globalThis.location?.href);
    this.#token = token;
    this.#bound = queue;
    this.#ping = ping * 1000;
    globalThis.addEventListener?.("online", this.#online);
    queueMicrotask(() => this.#turn || this.#connect()); // onstate is set by then
  }

  subscribe(channel, onmessage, { onreset, onerror, joins, recover = true } = {}) {
    const sub = { onmessage, onreset, onerror, joins };
    let c = this.#channels.get(channel);
    const known = c && (c.joins || !joins);
    if (!c) this.#channels.set(channel, (c = { name: channel, subs: new Set(), ids: new Set(), places: new Set(), known: new Set(), last: 0 }));
    c.subs.add(sub);
    c.joins ||= !!joins;
    c.recover ||= recover;
    if (!known) this.#changed(c);
    return {
      channel,
      unsubscribe: () => {
        if (!c.subs.delete(sub) || c.subs.size || this.#channels.get(channel) != c) return;
        this.#channels.delete(channel);
        if (this.state == "open") this.#ask({ unsubscribe: channel }, () => {});
        this.#changed();
      },
    };
  }

  publish(channel, data) {
    return this.#command({ publish: channel, data: data === undefined ? null : data }).then((m) => m.offset ?? 0);
  }

  presence(channel) {
    return this.#command({ presence: channel }).then((m) => Object.assign(m.members, { more: m.more ?? 0 }));
  }

  history(channel, { limit, epoch, offset } = {}) {
    return this.#command({ history: channel, limit, epoch, offset });
  }

  renew(token) {
    if (typeof this.#token != "function") this.#token = token;
    if (this.state != "closed") return this.#command({ token }).then((m) => m.expires);
    globalThis.addEventListener?.("online", this.#online);
    this.#connect();
    return Promise.resolve(null);
  }

  close() {
    this.#end(1000, "closed by the page");
  }

  #set(state, why) {
    this.state = state;
    call(this.onstate, state, why);
  }

  #address(name, query = {}) {
    const url = new URL(this.#url);
    const http = name == "sse";
    url.protocol = /^(wss|https):$/.test(url.protocol) ? (http ? "https:" : "wss:") : http ? "http:" : "ws:";
    if (http) url.pathname = url.pathname.replace(/[^/]*$/, name);
    for (const [key, values] of Object.entries({ token: this.#used, ...query }))
      for (const value of [values].flat()) if (value) url.searchParams.append(key, value);
    return url.href;
  }

  // connect makes a WebSocket. An event stream goes on until it is open.
  async #connect() {
    clearTimeout(this.#timer);
    this.#socket?.close();
    const turn = ++this.#turn;
    const retry = () => (this.state == "events" ? this.#again() : this.#retry());
    if (this.state != "events") this.#set("connecting");
    let token = this.#token;
    try {
      if (typeof token == "function") token = await token(!!this.#refused);
    } catch {
      return turn == this.#turn && retry();
    }
    if (turn != this.#turn) return;
    if (this.#refused && this.#refused.token === token) return this.#end(3000, "the token is refused");
    this.#used = token;
    let socket, opened = 0;
    try {
      socket = this.#socket = new WebSocket(this.#address("ws"));
    } catch (e) { // the browser does not allow it
      return this.#end(1006, e.message);
    }
    socket.onopen = () => {
      if (turn != this.#turn) return;
      opened = this.#heard = Date.now();
      this.#failed = 0;
      this.#events?.close();
      this.#events = this.#eventID = undefined;
      this.#set("open");
      for (const c of this.#channels.values()) this.#join(c, (c.on = false));
      for (const [command, done] of this.#queue.splice(0)) this.#ask(command, done);
      if (this.#ping > 0) this.#beat = setInterval(() => this.#check(), this.#ping / 2);
    };
    socket.onmessage = ({ data }) => {
      if (turn != this.#turn) return;
      this.#heard = Date.now();
      this.#receive(JSON.parse(data));
    };
    socket.onclose = ({ code, reason }) => {
      if (turn != this.#turn) return;
      if (opened && Date.now() - opened >= stable) this.#tries = 0;
      if (code == 3000 && token !== undefined) this.#refused = { token }; // a cookie may be good still
      if (code == 3003) this.#end(code, reason);
      else if (opened || this.#events || ++this.#failed < 2) retry();
      else this.#fallback(turn);
    };
  }

  // check asks whether the other side is still there, and goes if it is not.
  #check() {
    const quiet = Date.now() - this.#heard;
    if (quiet >= 2 * this.#ping) this.#retry();
    else if (quiet >= this.#ping) this.#ask({ ping: true }, () => {});
  }

  // leave ends what there is of a connection.
  #leave() {
    this.#turn++;
    clearTimeout(this.#timer);
    clearInterval(this.#beat);
    this.#socket?.close();
    this.#events?.close();
    this.#socket = this.#events = undefined;
    for (const c of this.#channels.values()) c.on = false;
    const asked = [...this.#asked.values()];
    this.#asked.clear();
    for (const done of asked) done(new MillraceError("lost", "the connection broke before the answer came: it may have been done or not"));
  }

  #again() {
    this.#timer = setTimeout(() => this.#connect(), again * (1 + Math.random()));
  }

  #retry() {
    this.#leave();
    const wait = this.#hint ?? Math.random() * Math.min(later, sooner * 2 ** this.#tries++);
    this.#hint = undefined;
    this.#timer = setTimeout(() => this.#connect(), wait);
    this.#set("waiting");
  }

  #end(code, reason) {
    if (this.state == "closed") return;
    this.#leave();
    globalThis.removeEventListener?.("online", this.#online);
    for (const [, done] of this.#queue.splice(0)) done(new MillraceError("closed", reason));
    this.#set("closed", { code, reason });
  }

  #command(command) {
    return new Promise((resolve, reject) => {
      const done = (error, m) => (error ? reject(error) : resolve(m));
      const refuse = (code, text) => reject(new MillraceError(code, text));
      if (this.state == "closed") refuse("closed", "the connection is closed");
      else if (this.state == "events") refuse("unavailable", onlyEvents);
      else if (this.state != "open" && this.#queue.length >= this.#bound) refuse("unavailable", `there is no connection, and ${this.#bound} commands wait for it already`);
      else if (this.#asked.size >= maxAsked) refuse("too_many", `${maxAsked} commands wait for their answers already`);
      else if (this.state == "open") this.#ask(command, done);
      else this.#queue.push([command, done]);
    });
  }

  #ask(command, done) {
    const id = ++this.#serial;
    this.#asked.set(id, done);
    this.#socket.send(JSON.stringify({ ...command, id }));
  }

  #changed(c) {
    if (this.state == "open" && c) this.#join(c);
    if (this.#events) this.#stream();
  }

  #join(c) {
    const place = c.recover && c.epoch !== undefined;
    const command = { subscribe: c.name, joins: c.joins || undefined };
    this.#ask(place ? { ...command, epoch: c.epoch, offset: c.offset } : command, (error, m) => this.#joined(c, place, error, m));
  }

  #joined(c, place, error, m) {
    if (this.#channels.get(c.name) != c || error?.code == "lost" || error?.code == "replaced") return;
    if (error?.code == "unavailable" || error?.code == "rate") {
      const turn = this.#turn;
      return void setTimeout(() => turn == this.#turn && this.#channels.get(c.name) == c && this.#join(c), sooner * (1 + 10 * Math.random()));
    }
    if (error && c.on) { // it goes on without what joins wanted besides
      c.joins = false;
      for (const sub of c.subs) if (sub.joins) call(sub.onerror, error);
      return;
    }
    if (error) return this.#drop(c, error.code, error.message);
    c.on = true;
    const again = c.again;
    c.again = true;
    // What was missed comes now, up to m.offset; or a reset will, when the server
    // knows.
    if (m.recovered || m.down) return;
    if (!place || m.epoch !== c.epoch) {
      c.last = place ? 0 : m.offset;
      c.places.clear();
    }
    c.epoch = m.epoch;
    c.offset = m.offset;
    if (again && c.recover) this.#tell(c, "onreset", c.name);
  }

  #drop(c, code, text) {
    if (!c || this.#channels.get(c.name) != c) return;
    this.#channels.delete(c.name);
    this.#tell(c, "onerror", new MillraceError(code, text, c.name));
  }

  #tell(c, what, ...args) {
    for (const sub of [...c.subs]) call(sub[what], ...args);
  }

  #receive(m) {
    const c = this.#channels.get(m.message ?? m.placed ?? m.reset ?? m.join ?? m.leave ?? m.unsubscribed ?? m.channel);
    if ("message" in m) {
      if (c?.on && this.#fresh(c, m)) this.#tell(c, "onmessage", { channel: c.name, data: m.data, offset: m.offset, id: m.id });
    } else if ("placed" in m) {
      if (c?.ids.has(m.id) && m.offset > c.last) this.#note(c.places, m.offset);
    } else if ("reset" in m) {
      if (c && this.#events) this.#begin(c);
      else if (c) {
        // What comes before the answer is in the answer, behind what is missing.
        if (c.recover && c.epoch !== undefined) c.on = false;
        this.#join(c);
      }
    } else if ("join" in m || "leave" in m) {
      if (c) this.#tell(c, "joins", m.member, "join" in m);
    } else if ("reconnect" in m) {
      this.#hint = m.reconnect * 1000;
    } else if (this.#asked.has(m.id)) {
      const done = this.#asked.get(m.id);
      this.#asked.delete(m.id);
      done("error" in m && new MillraceError(m.code, m.error, m.channel), m);
    } else if ("unsubscribed" in m) {
      this.#drop(c, "forbidden", "the new token does not allow this channel");
    } else if ("error" in m) this.#drop(c, m.code, m.error); // of an event stream
  }

  // fresh reports whether a publication is a new one, and notes it. Servers that
  // cannot reach each other give it no place, and perhaps one has: its id tells.
  #fresh(c, m) {
    if (!m.offset) return !c.known.has(m.id) && this.#note(c.ids, m.id);
    if (m.offset <= c.last) return false;
    c.last = m.offset;
    c.offset = Math.max(c.offset ?? 0, m.offset);
    if (m.id !== undefined) this.#note(c.known, m.id);
    return !(c.places.delete(m.offset) || c.ids.has(m.id));
  }

  #note(seen, what) {
    if (seen.has(what)) return false;
    seen.add(what);
    if (seen.size > maxSeen) seen.delete(seen.values().next().value);
    return true;
  }

  // fallback finds out why no WebSocket gets through, and whether HTTP does.
  async #fallback(turn) {
    const asked = [...this.#channels.values()];
    const control = new AbortController();
    const limit = setTimeout(() => control.abort(), stable);
    let status, text;
    try {
      const r = await fetch(this.#address("sse", { channel: asked.map((c) => c.name) }), { signal: control.signal });
      if ((status = r.status) == 403) text = await r.text();
    } catch {}
    clearTimeout(limit);
    control.abort(); // its body is not wanted
    if (turn != this.#turn) return;
    if (status == 401) this.#refused = { token: this.#used };
    if (/^You may not/.test(text)) // else it is something on the way
      for (const c of asked) this.#drop(c, "forbidden", text);
    if (status == 200 && globalThis.EventSource) this.#stream();
    else this.#retry();
  }

  // begin forgets a place.
  #begin(c) {
    c.epoch = c.offset = undefined;
    c.last = 0;
    c.places.clear();
    if (c.recover) this.#tell(c, "onreset", c.name);
  }

  // stream reads events of all channels. The browser itself goes on where an
  // interruption was; between a stream and a WebSocket something may be missed.
  #stream() {
    const channel = [...this.#channels.keys()];
    if (!channel.length) return this.#retry();
    this.#events?.close();
    const events = (this.#events = new EventSource(this.#address("sse", { channel, last_event_id: this.#eventID })));
    for (const type of ["message", "reset", "placed", "refused"])
      events.addEventListener(type, (e) => {
        if (events != this.#events) return;
        this.#eventID = e.lastEventId || this.#eventID;
        this.#receive(JSON.parse(e.data));
      });
    for (const c of this.#channels.values()) {
      c.on = c.again = true;
      if (c.epoch !== undefined) this.#begin(c);
    }
    events.onopen = () => {
      if (events != this.#events) return;
      this.#tries = 0;
      if (this.state != "events") {
        this.#again();
        this.#set("events");
      }
      for (const [, done] of this.#queue.splice(0)) done(new MillraceError("unavailable", onlyEvents));
    };
    events.onerror = () => {
      if (events != this.#events || events.readyState != 2) return; // 2: for good
      this.#failed = 0;
      this.#retry();
    };
  }
}
