//go:build !small

package engine

import (
	"log/slog"

	"millrace/store/bus"
	"millrace/store/bus/nats"
	"millrace/websocket/channels"
)

// openBus opens the bus that makes the channels of several machines one.
func openBus(o channels.Options, keep bus.Keep, errorLog *slog.Logger) (bus.Bus, error) {
	b, err := nats.Open(nats.Options{URL: o.Bus, Name: o.BusName, Keep: keep, ErrorLog: errorLog})
	if err != nil {
		return nil, err
	}
	return b, nil
}
