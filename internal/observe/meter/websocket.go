package meter

// WebSocket counts what the WebSockets of one route do. Event streams of its
// channels count as connections, too.
type WebSocket struct {
	Route   string
	Clients *Presence // of the server, to which connections are added, too; nil: none

	Open        Gauge   // connections now
	Opened      Counter // since the start
	Refused     Counter // handshakes that were answered with an error
	MessagesIn  Counter // whole messages; over a proxy, frames with data
	MessagesOut Counter
	BytesIn     Counter // as on the wire, headers of frames included
	BytesOut    Counter

	QueuedBytes    Gauge   // waiting for clients that do not read as fast as we write
	QueuedMessages Gauge   // the same, counted in messages
	HeldBytes      Gauge   // of messages that have not come whole yet
	Dropped        Reasons // messages that a client did not get, and why
	Closed         Reasons // connections that were ended, by close code and whose it was

	// Of channels.
	Channels      Gauge     // with at least one subscriber here, or with a history
	Subscriptions Gauge     // of clients here
	Published     Counter   // by clients here and over HTTP
	Delivered     Counter   // to clients here
	Recovered     Counter   // subscriptions that went on where they had been
	Lost          Counter   // those that could not: the history did not reach back
	Lag           Histogram // from publication to the last write of it here
	BusDown       Gauge     // 1 while other machines cannot be reached
}

// WebSocket returns the counters of a route's WebSockets and makes them at the
// first call, as Cache does.
func (m *Meters) WebSocket(route string) *WebSocket {
	return m.webSockets.get(route, func(route string) *WebSocket { return &WebSocket{Route: route, Clients: &m.Clients} })
}

// WebSockets lists those that exist, ordered by route.
func (m *Meters) WebSockets() []*WebSocket { return m.webSockets.list() }
