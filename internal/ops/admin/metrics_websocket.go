package admin

import (
	"millrace/internal/observe/meter"
	"millrace/internal/ops/exposition"
)

// collectWebSocket adds the metrics of a route's WebSockets. Event streams of channels
// count as connections too.
func collectWebSocket(p *exposition.Page, m *meter.WebSocket) {
	const (
		messages   = "Whole messages from clients (in) and to them (out); over a proxy, frames with data."
		bytes      = "Bytes from clients (in) and to them (out), the headers of frames included."
		recoveries = "Subscriptions that asked for missed messages: recovered, or lost because the history did not reach back far enough."
	)
	s := routeSamples{p, m.Route}
	s.gauge("websocket_connections", "Open connections, event streams included.", &m.Open)
	s.counter("websocket_connections_opened_total", "Connections opened.", &m.Opened)
	s.counter("websocket_connections_refused_total", "Handshakes that were answered with an error.", &m.Refused)
	s.reasons("websocket_connections_closed_total", "Connections that were closed, by which side closed them and the close code.", "reason", &m.Closed)
	s.counter("websocket_messages_total", messages, &m.MessagesIn, "direction", "in")
	s.counter("websocket_messages_total", messages, &m.MessagesOut, "direction", "out")
	s.counter("websocket_bytes_total", bytes, &m.BytesIn, "direction", "in")
	s.counter("websocket_bytes_total", bytes, &m.BytesOut, "direction", "out")
	s.gauge("websocket_queued_bytes", "Bytes that wait for clients which read too slowly.", &m.QueuedBytes)
	s.gauge("websocket_queued_messages", "Messages that wait for clients which read too slowly.", &m.QueuedMessages)
	s.gauge("websocket_held_bytes", "Bytes of messages that are not complete yet.", &m.HeldBytes)
	s.reasons("websocket_dropped_total", "Messages that a client did not get, by reason.", "reason", &m.Dropped)
	s.gauge("websocket_channels", "Channels with a subscriber here or a history.", &m.Channels)
	s.gauge("websocket_subscriptions", "Subscriptions of clients here.", &m.Subscriptions)
	s.counter("websocket_published_total", "Messages published by clients here and over HTTP.", &m.Published)
	s.counter("websocket_delivered_total", "Messages of channels delivered to clients here.", &m.Delivered)
	s.counter("websocket_recoveries_total", recoveries, &m.Recovered, "result", "recovered")
	s.counter("websocket_recoveries_total", recoveries, &m.Lost, "result", "lost")
	s.histogram("websocket_delivery_lag_seconds", "Time from a publication until it was written to the last client here.", m.Lag.Snapshot())
	s.gauge("websocket_bus_down", "1 while other machines cannot be reached.", &m.BusDown)
}
