package tls

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/experiment/fileserver"
	"millrace/lab/load/client"
	"millrace/lab/trial"
)

const (
	pagePath = "/page/"
	// assets are what the page has beside its HTML: every third a script, the
	// others pictures.
	assets = 30
	// visitors look at the page at once, each on a connection of its own.
	visitors = 4
	// views are how often each of them does.
	views, viewsQuick = 25, 10
	// compressing is how long a server may take to compress what it was asked for
	// first; some do that beside their answers.
	compressing = 700 * time.Millisecond
)

// pageFiles are a page and its assets, of 0.6 to 34 KB.
func pageFiles() []fileserver.File {
	files := []fileserver.File{{Name: "page/index.html", Path: pagePath, Size: 8000}}
	for i := range assets {
		kind := "png"
		if i%3 == 0 {
			kind = "js"
		}
		name := fmt.Sprintf("page/asset-%d.%s", i, kind)
		files = append(files, fileserver.File{Name: name, Path: "/" + name, Size: 600 + 40*i*i})
	}
	return files
}

// view measures a page as a browser asks for it: the HTML, and when that has come
// all assets at once, each with a browser's header fields, over one connection.
func (m *measurement) view(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
	var paths []string
	for _, f := range pageFiles() {
		paths = append(paths, f.Path)
	}
	d, err := client.New(client.Options{
		Protocol: "http2", URL: slot.URL, Paths: paths, Header: fileserver.Chromium(), Insecure: true, Streams: assets, Timeout: patience,
	})
	if err != nil {
		return trial.TaskResult{}, err
	}
	defer d.Close() //nolint:errcheck // what it has to say no longer matters
	conns := make([]client.Conn, visitors)
	err = each(visitors, visitors, func(i int) (err error) {
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
		return each(visitors, visitors, func(i int) error {
			for range times {
				if err := open(ctx, conns[i]); err != nil {
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
	return trial.TaskResult{Done: uint64(visitors * times)}, err //nolint:gosec // a small constant
}

// open asks for the page and its assets.
func open(ctx context.Context, conn client.Conn) error {
	if err := ask(ctx, conn, 0); err != nil {
		return err
	}
	return each(assets, assets, func(i int) error { return ask(ctx, conn, i+1) })
}

func ask(ctx context.Context, conn client.Conn, path int) error {
	a, err := conn.Do(ctx, path, nil)
	if err == nil && (a.Status != http.StatusOK || a.Body == 0) {
		err = fmt.Errorf("%w: status %d, %d bytes", errAnswer, a.Status, a.Body)
	}
	return err
}

// each calls do with 0 to n-1, from at most so many goroutines, which it waits
// for. The first error ends it.
func each(n, goroutines int, do func(i int) error) error {
	var (
		mu    sync.Mutex // guards what follows
		next  int
		first error
		all   sync.WaitGroup
	)
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next <= n && first == nil
	}
	for range min(goroutines, n) {
		all.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				if err := do(i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return first
}
