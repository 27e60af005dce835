package websocket

import (
	"cmp"
	"errors"
	"io"
	"log/slog"

	"millrace/internal/observe/meter"
	"millrace/internal/upstream"
	"millrace/store/bus"
	"millrace/websocket/conn"
)

// Deps are what the job works with; the zero value works. What is nil is made by
// New and closed by Close.
type Deps struct {
	Engine   *conn.Engine   // moves the bytes, and may serve many handlers; stays the caller's
	Pool     *upstream.Pool // of a proxy, made of Options.ProxyOptions; stays the caller's
	Bus      bus.Bus        // of channels; not started, closed by Close; nil: of this process alone
	Meters   *meter.WebSocket
	Places   *Places // what all handlers together may have; nil: no limit
	ErrorLog *slog.Logger
}

// complete makes what is nil, and returns what must be closed after the handler.
func (d *Deps) complete(o Options) (own []io.Closer, err error) {
	d.ErrorLog = cmp.Or(d.ErrorLog, slog.Default())
	if o.Proxy != nil && d.Pool == nil {
		if d.Pool, err = upstream.New(o.ProxyOptions().Options, d.ErrorLog); err != nil {
			return nil, err
		}
		own = append(own, d.Pool)
	}
	if d.Engine == nil {
		d.Engine = conn.NewEngine(d.ErrorLog)
		own = append(own, d.Engine)
	}
	if o.Channels != nil && d.Bus == nil {
		d.Bus = bus.NewMemory(o.Channels.Keep())
	}
	return own, nil
}

func closeAll(own []io.Closer) error {
	var errs []error
	for _, c := range own {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
