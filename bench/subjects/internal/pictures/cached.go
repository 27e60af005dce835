package pictures

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
	"millrace/bench/subjects/internal/testsite"
)

// cached serves variants that are ready, beside nginx with the same bytes in
// files of the same names.
func (r *runner) cached(ctx context.Context) error {
	r.Plan.Arms = r.plan.still()
	ready := filepath.Join(r.Places.Temp, "ready")
	if err := os.Mkdir(ready, 0o755); err != nil {
		return err
	}
	if err := addPreview(r.site); err != nil {
		return err
	}
	// Whoever converts comes first: what it makes is what the others serve.
	for _, ours := range []bool{true, false} {
		for _, a := range r.Plan.Arms {
			if a.Ours() != ours {
				continue
			}
			site := ready
			if ours {
				site = r.site
			}
			server, err := r.start(ctx, a, site, arm.Images{Wait: visit})
			if err != nil {
				return err
			}
			r.Servers[a.Name] = server
			if ours {
				if err := r.makeReady(ctx, server, ready); err != nil {
					return err
				}
			}
		}
	}
	right := func(f testsite.File) ([]byte, error) { return os.ReadFile(filepath.Join(ready, f.Path)) }
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return r.same(ctx, right) }, r.Warm, r.Rounds,
		func(ctx context.Context) error { return r.same(ctx, right) },
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return r.Alive()
}

// makeReady has a server convert what is served, and writes it into a folder.
func (r *runner) makeReady(ctx context.Context, server *arm.Running, dir string) error {
	for _, w := range r.Plan.Workloads {
		name := cachedPhotos()[w.Name]
		// More than once, so that it is answered as it will be from then on.
		var first []byte
		for range 3 {
			got, err := stage.Apart(func() (answer, error) { return ask(ctx, server.Client("tcp"), server.URL("/"+name)) })
			if err != nil {
				return err
			}
			if !got.webp {
				return fmt.Errorf("%s is sent as the original: %s", name, got.why)
			}
			if first == nil {
				first = got.body
			}
			if !bytes.Equal(first, got.body) {
				return fmt.Errorf("%s is sent with different bytes", name)
			}
			if err := stage.Sleep(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
		if err := writeOld(filepath.Join(dir, name), first); err != nil {
			return err
		}
		r.found.Cached = append(r.found.Cached, record.CachedPhoto{Workload: w.Name, Photo: name, Bytes: int64(len(first))})
	}
	return nil
}

// same compares the answers of all servers with the bytes that there should be.
func (r *runner) same(ctx context.Context, right func(testsite.File) ([]byte, error)) error {
	for _, a := range r.Plan.Arms {
		for _, w := range r.Plan.Workloads {
			if err := r.Verify(ctx, r.Servers[a.Name], "tcp", w, right); err != nil {
				return fmt.Errorf("%s, %s: %w", a.Name, w.Name, err)
			}
		}
	}
	return nil
}
