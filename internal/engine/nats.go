//go:build !small

package engine

import (
	"millrace/store/bus"
	"millrace/store/bus/nats"
	"millrace/websocket/channels"
)

// openBus opens the bus that makes the channels of several machines one.
func openBus(o channels.Options, keep bus.Keep, u *sharedUse) (bus.Bus, error) {
	b, err := nats.Open(nats.Options{URL: o.Bus, Name: o.BusName, Keep: keep, Replicas: o.BusReplicas, ErrorLog: u.errorLog, Meters: u.counters("nats")})
	if err != nil {
		return nil, err
	}
	u.waiting = b.Waiting
	u.opened(b)
	return b, nil
}
