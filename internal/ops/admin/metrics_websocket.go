package admin

import (
	"millrace/internal/observe/meter"
	"millrace/internal/ops/exposition"
)

// webSocketMetrics are the metrics of each route's WebSockets. Event streams of
// channels count as connections too.
type webSocketMetrics struct {
	connections, opened, refused, closed *exposition.Metric
	messages, bytes                      *exposition.Metric // per direction
	queuedBytes, queuedMessages, held    *exposition.Metric
	dropped                              *exposition.Metric // per reason

	channels, subscriptions, published, delivered, recoveries, lag, busDown *exposition.Metric // of channels
}

func newWebSocketMetrics() webSocketMetrics {
	return webSocketMetrics{
		connections:    describe("websocket_connections", "Open connections, event streams included.", "route"),
		opened:         describe("websocket_connections_opened_total", "Connections opened.", "route"),
		refused:        describe("websocket_connections_refused_total", "Handshakes that were answered with an error.", "route"),
		closed:         describe("websocket_connections_closed_total", "Connections that were closed, by which side closed them and the close code.", "route", "reason"),
		messages:       describe("websocket_messages_total", "Whole messages from clients (in) and to them (out); over a proxy, frames with data.", "route", "direction"),
		bytes:          describe("websocket_bytes_total", "Bytes from clients (in) and to them (out), the headers of frames included.", "route", "direction"),
		queuedBytes:    describe("websocket_queued_bytes", "Bytes that wait for clients which read too slowly.", "route"),
		queuedMessages: describe("websocket_queued_messages", "Messages that wait for clients which read too slowly.", "route"),
		held:           describe("websocket_held_bytes", "Bytes of messages that are not complete yet.", "route"),
		dropped:        describe("websocket_dropped_total", "Messages that a client did not get, by reason.", "route", "reason"),
		channels:       describe("websocket_channels", "Channels with a subscriber here or a history.", "route"),
		subscriptions:  describe("websocket_subscriptions", "Subscriptions of clients here.", "route"),
		published:      describe("websocket_published_total", "Messages published by clients here and over HTTP.", "route"),
		delivered:      describe("websocket_delivered_total", "Messages of channels delivered to clients here.", "route"),
		recoveries:     describe("websocket_recoveries_total", "Subscriptions that asked for missed messages: recovered, or lost because the history did not reach back far enough.", "route", "result"),
		lag:            describe("websocket_delivery_lag_seconds", "Time from a publication until it was written to the last client here.", "route"),
		busDown:        describe("websocket_bus_down", "1 while other machines cannot be reached.", "route"),
	}
}

func (d *webSocketMetrics) collect(p *exposition.Page, m *meter.WebSocket) {
	for _, f := range []struct {
		desc    *exposition.Metric
		counter *meter.Counter
		labels  []string
	}{
		{d.opened, &m.Opened, nil},
		{d.refused, &m.Refused, nil},
		{d.messages, &m.MessagesIn, []string{"in"}},
		{d.messages, &m.MessagesOut, []string{"out"}},
		{d.bytes, &m.BytesIn, []string{"in"}},
		{d.bytes, &m.BytesOut, []string{"out"}},
		{d.published, &m.Published, nil},
		{d.delivered, &m.Delivered, nil},
		{d.recoveries, &m.Recovered, []string{"recovered"}},
		{d.recoveries, &m.Lost, []string{"lost"}},
	} {
		labels := append([]string{m.Route}, f.labels...)
		p.Counter(f.desc, float64(f.counter.Load()), labels...)
	}
	for _, f := range []struct {
		desc  *exposition.Metric
		gauge *meter.Gauge
	}{
		{d.connections, &m.Open},
		{d.queuedBytes, &m.QueuedBytes},
		{d.queuedMessages, &m.QueuedMessages},
		{d.held, &m.HeldBytes},
		{d.channels, &m.Channels},
		{d.subscriptions, &m.Subscriptions},
		{d.busDown, &m.BusDown},
	} {
		p.Gauge(f.desc, float64(f.gauge.Load()), m.Route)
	}
	for _, f := range []struct {
		desc    *exposition.Metric
		reasons *meter.Reasons
	}{
		{d.closed, &m.Closed},
		{d.dropped, &m.Dropped},
	} {
		f.reasons.Each(func(reason string, n uint64) {
			p.Counter(f.desc, float64(n), m.Route, reason)
		})
	}
	histogram(p, d.lag, m.Lag.Snapshot(), m.Route)
}
