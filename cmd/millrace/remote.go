package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"millrace/cache/control"
	"millrace/internal/admin"
)

// maxList is more than the list of any server's addresses or routes has, in
// bytes.
const maxList = 1 << 20

// errNoServer is returned where none was named, and none is found.
var errNoServer = errors.New("no running server was found")

// remoteFlags are those of the verbs that talk to a running server.
type remoteFlags struct {
	Admin adminAddress `placeholder:"ADDR" env:"MILLRACE_ADMIN" help:"Which server: where its admin listener is, as its banner says. Default: the one that runs; of several, the one at whose address a URL on the command line is."`
}

// remote is a running server's admin listener.
type remote struct {
	at, base string
	client   *http.Client
}

// choices lists servers with what they serve, one on a line.
func choices(ctx context.Context, found []string) string {
	var b strings.Builder
	for _, at := range found {
		b.WriteString("\n    --admin " + at)
		client, base, err := admin.Client(at)
		if err != nil {
			continue
		}
		if addrs, err := (&remote{at, base, client}).addrs(ctx); err == nil {
			b.WriteString("  " + strings.Join(urls(addrs), " "))
		}
	}
	return b.String()
}

// caches is the way to the server's caches.
func (r *remote) caches() *control.Client { return &control.Client{HTTP: r.client, Base: r.base} }

// addrs are the URLs under which the server's site is.
func (r *remote) addrs(ctx context.Context) (list []string, err error) {
	return list, r.list(ctx, "/addrs", "addresses", &list)
}

// list asks the admin listener for what it has under a path, and puts it into.
func (r *remote) list(ctx context.Context, path, what string, into any) error {
	return r.ask(ctx, http.MethodGet, path, what, into)
}

// post has the server do what a path stands for.
func (r *remote) post(ctx context.Context, path, what string, into any) error {
	return r.ask(ctx, http.MethodPost, path, what, into)
}

func (r *remote) ask(ctx context.Context, method, path, what string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, nil)
	if err != nil {
		return fmt.Errorf("asking the server: %w", err)
	}
	client := *r.client
	client.CheckRedirect = nil // to the same path with a slash behind it
	resp, err := client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the socket's made-up URL helps nobody
		}
		return fmt.Errorf("asking the server: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking the server at %s for its %s: it says %s", r.at, what, resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxList)).Decode(into); err != nil {
		return fmt.Errorf("reading the server's %s: %w", what, err)
	}
	return nil
}

// untilInterrupted is a context that an interrupt ends; a second one ends the
// program.
func untilInterrupted() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
