/** A JSON value, as it was published. */
export type Data = unknown;

/** A publication. */
export interface Message<T = Data> {
  channel: string;
  data: T;
  /** Its place in the channel; absent while the servers cannot reach each other. */
  offset?: number;
  /** Says which one it is, where several servers share the channels. */
  id?: string;
}

/** A client that is in a channel. */
export interface Member {
  /** Unique to its connection. */
  client: string;
  user?: string;
  info?: Data;
}

/** What a channel still has, oldest first. */
export interface History<T = Data> {
  epoch: string;
  offset: number;
  /** Nothing that came after the epoch and offset asked for is missing. */
  complete: boolean;
  messages: {
    data: T;
    /** In milliseconds since 1970. */
    time: number;
    offset?: number;
    id?: string;
  }[];
}

/**
 * - `connecting`: on the way, or waiting for a token
 * - `open`: all works
 * - `events`: only publications come, by Server-Sent Events: WebSockets are not let through.
 *   A WebSocket is tried again every one or two minutes, and when the browser is online again
 * - `waiting`: to be tried again, by itself
 * - `closed`: for good: by `close()`, or by the server (code 3000: the token is
 *   refused, until `renew()` brings another one; 3003: this client is not wanted)
 */
export type State = "connecting" | "open" | "events" | "waiting" | "closed";

export interface Options {
  /**
   * The token, or what gets one: it is called before every connection, with
   * true if the one before was refused. It is sent in the query (token=…).
   */
  token?: string | ((refused: boolean) => string | undefined | Promise<string | undefined>);
  /** How many commands may wait for a connection; those beyond are rejected. Default 100. */
  queue?: number;
  /**
   * After how many seconds of silence the server is asked whether it is there
   * (after as long again the connection is given up). Default 60; 0: never.
   */
  ping?: number;
}

export interface SubscribeOptions {
  /**
   * Something may have been missed, more than the server remembers: load what
   * the page shows anew. Called before the publications that follow.
   */
  onreset?: (channel: string) => void;
  /**
   * The channel is not subscribed to, and will not be: it is forbidden, say.
   * Where another subscription to it is there already, only joins is refused.
   */
  onerror?: (error: MillraceError) => void;
  /**
   * Asks for who comes and goes. What happens while there is no connection is
   * not told: ask presence() when the state is open again.
   */
  joins?: (member: Member, joined: boolean) => void;
  /** After an interruption what was missed comes first. Default true. */
  recover?: boolean;
}

export interface Subscription {
  readonly channel: string;
  unsubscribe(): void;
}

/**
 * Why something could not be done. Codes of the server: forbidden, unauthorized,
 * not_found, too_many, bad_request, too_big, rate, unavailable, replaced. Codes of this
 * module: lost (the connection broke before the answer: it may have been done or
 * not), closed, unavailable (too much waits for a connection already, or there
 * are only event streams), too_many (too much waits for answers already).
 */
export class MillraceError extends Error {
  constructor(code: string, text: string, channel?: string);
  readonly code: string;
  readonly channel?: string;
}

/** A connection to the channels, which comes back by itself. */
export class Millrace {
  /** url is that of the WebSocket (ws, wss, http or https), also relative to the page. Default: ws beside this module. */
  constructor(url?: string | URL, options?: Options);

  readonly state: State;
  /** Called whenever the state changes; why says more when it is closed. */
  onstate: (state: State, why?: { code: number; reason: string }) => void;

  /**
   * Several subscriptions to a channel are one for the server. Publications
   * come in order, each once. It needs no connection: it holds for all that
   * there will be.
   */
  subscribe<T = Data>(channel: string, onmessage: (message: Message<T>) => void, options?: SubscribeOptions): Subscription;

  /**
   * Resolves to the place of the publication, or 0 if that is not known yet.
   * Without a connection it waits for one. It comes to a subscription to the
   * same channel that was asked for before, too.
   */
  publish(channel: string, data: Data): Promise<number>;

  /** Who is in a channel; more is how many did not fit into the answer. */
  presence(channel: string): Promise<Member[] & { more: number }>;

  /** The latest publications of a channel, or those after a place. */
  history<T = Data>(channel: string, options?: { limit?: number; epoch?: string; offset?: number }): Promise<History<T>>;

  /**
   * Brings a new token before the old one ends. Resolves to when it ends, in
   * seconds since 1970, or null if it never does. When the token was refused
   * (closed, 3000) it opens the connection again, and resolves to null.
   */
  renew(token: string): Promise<number | null>;

  /** Ends the connection. What waits is rejected. */
  close(): void;
}
