// A world without network and time for the module: both are the test's.

export class World {
  sockets = [];
  streams = [];
  fetched = [];
  status = 0; // of what is fetched; 0: there is no network
  text = ""; // of what is fetched
  random = 1 - 1e-9; // waits are as long as they may be
  #now = 1e12;
  #timers = new Map();
  #serial = 0;

  constructor() {
    const world = this;
    globalThis.WebSocket = class {
      constructor(url) {
        this.url = url;
        this.sent = [];
        this.closed = false;
        world.sockets.push(this);
      }
      send(text) {
        if (this.closed) throw new Error("sent on a closed socket");
        this.sent.push(JSON.parse(text));
      }
      close() {
        this.closed = true;
      }
      // What follows is the server's side.
      open() {
        this.onopen();
      }
      say(...messages) {
        for (const m of messages) this.onmessage({ data: JSON.stringify(m) });
      }
      end(code = 1006, reason = "") {
        this.closed = true;
        this.onclose({ code, reason });
      }
      // take returns what the client has said since.
      take() {
        return this.sent.splice(0);
      }
      // answer answers the first command with such a member.
      answer(kind, m) {
        const at = this.sent.findIndex((c) => kind in c);
        if (at < 0) throw new Error(`no ${kind} among ${JSON.stringify(this.sent)}`);
        const [command] = this.sent.splice(at, 1);
        this.say({ ...m, id: command.id });
        return command;
      }
    };
    globalThis.EventSource = class {
      readyState = 0;
      listeners = {};
      constructor(url) {
        this.url = url;
        world.streams.push(this);
      }
      addEventListener(type, f) {
        this.listeners[type] = f;
      }
      close() {
        this.readyState = 2;
      }
      open() {
        this.readyState = 1;
        this.onopen();
      }
      say(type, id, m) {
        this.listeners[type]({ data: JSON.stringify(m), lastEventId: id });
      }
      fail(readyState) {
        this.readyState = readyState;
        this.onerror();
      }
    };
    const heard = (this.heard = new Set());
    globalThis.addEventListener = (type, f) => heard.add(f);
    globalThis.removeEventListener = (type, f) => heard.delete(f);
    globalThis.fetch = async (url) => {
      this.fetched.push(url);
      if (!this.status) throw new TypeError("failed to fetch");
      return { status: this.status, text: async () => this.text };
    };
    globalThis.setTimeout = (f, ms) => this.#set(f, ms);
    globalThis.setInterval = (f, ms) => this.#set(f, ms, ms);
    globalThis.clearTimeout = globalThis.clearInterval = (id) => this.#timers.delete(id);
    Date.now = () => this.#now;
    Math.random = () => this.random;
  }

  #set(f, ms, every) {
    this.#timers.set(++this.#serial, { f, at: this.#now + ms, every });
    return this.#serial;
  }

  get timers() {
    return this.#timers.size;
  }

  get socket() {
    return this.sockets.at(-1);
  }

  get stream() {
    return this.streams.at(-1);
  }

  // online is what a browser says when a network is there again.
  online() {
    for (const f of this.heard) f();
  }

  // settle lets everything happen that takes no time.
  async settle() {
    for (let i = 0; i < 50; i++) await null;
  }

  // pass lets time go by.
  async pass(ms) {
    const end = this.#now + ms;
    for (;;) {
      await this.settle();
      let next;
      for (const [id, t] of this.#timers) if (t.at <= end && (!next || t.at < next[1].at)) next = [id, t];
      if (!next) break;
      const [id, t] = next;
      this.#now = t.at;
      if (t.every) t.at += t.every;
      else this.#timers.delete(id);
      t.f();
    }
    this.#now = end;
    await this.settle();
  }
}
