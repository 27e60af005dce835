package tls

import (
	"context"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/load/client"
	"millrace/lab/trial"
)

const (
	// visitors look at the page at once, each on a connection of its own.
	visitors = 4
	// views are how often each of them does.
	views, viewsQuick = 25, 10
	// compressing is how long a server may take to compress what it was asked for
	// first; some do that beside their answers.
	compressing = 700 * time.Millisecond
)

// view measures a page as a browser asks for it: the HTML, and when that has come
// all assets at once, each with a browser's header fields, over one connection.
func (m *measurement) view(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
	var paths []string
	for _, f := range experiment.PageFiles() {
		paths = append(paths, f.Path)
	}
	d, err := client.New(client.Options{
		Protocol: "http2", URL: slot.URL, Paths: paths, Header: experiment.Chromium(), Insecure: true, Streams: experiment.Assets, Timeout: visitTimeout,
	})
	if err != nil {
		return trial.TaskResult{}, err
	}
	defer d.Close() //nolint:errcheck // what it has to say no longer matters
	conns := make([]client.Conn, visitors)
	err = experiment.Each(visitors, visitors, func(i int) (err error) {
		conns[i], err = d.Dial(ctx)
		return err
	})
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close() // likewise
			}
		}
	}()
	look := func(times int) error {
		return experiment.Each(visitors, visitors, func(i int) error {
			for range times {
				if err := experiment.View(ctx, conns[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for range 2 { // what is done once for each file is done then
		if err == nil {
			err = look(1)
		}
		if err == nil {
			err = experiment.Sleep(ctx, compressing/2)
		}
	}
	times := views
	if m.quick {
		times = viewsQuick
	}
	slot.Window(true)
	if err == nil {
		err = look(times)
	}
	slot.Window(false)
	return trial.TaskResult{Done: uint64(visitors * times)}, err
}
