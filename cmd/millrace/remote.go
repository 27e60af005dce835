package main

import (
	"bytes"
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

	"millrace/internal/admin"
	"millrace/internal/config"
)

// maxAnswer is the longest answer of an admin listener that is read: the whole
// ring log has less.
const maxAnswer = 16 << 20

// remoteFlags are those of the verbs that talk to a running server.
type remoteFlags struct {
	Admin adminAddress `placeholder:"ADDR" env:"MILLRACE_ADMIN" help:"Which server: where its admin listener is, as its banner says. Default: the one that runs."`
}

// remote is a running server's admin listener.
type remote struct {
	at, base string
	client   *http.Client
}

// remote finds the running server.
func (f remoteFlags) remote() (*remote, error) {
	at := string(f.Admin)
	if at == "" || at == config.Off { // MILLRACE_ADMIN=off is about serving
		found, err := admin.Find()
		switch {
		case len(found) == 1:
			at = found[0]
		case len(found) > 1:
			return nil, failure{fmt.Errorf("%d servers run here", len(found)), "say which is meant:" + choices(found)}
		case err != nil:
			return nil, err
		default:
			return nil, failure{
				errors.New("no running server was found"),
				"start one with `millrace cache UPSTREAM`, or say where it is: --admin ADDR, the \"admin\" of its banner",
			}
		}
	}
	client, base, err := admin.Client(at)
	if err != nil {
		return nil, usageError{err.Error(), ""}
	}
	return &remote{at, base, client}, nil
}

// choices lists servers with what they serve, one on a line.
func choices(found []string) string {
	var b strings.Builder
	for _, at := range found {
		b.WriteString("\n    --admin " + at)
		client, base, err := admin.Client(at)
		if err != nil {
			continue
		}
		if addrs, err := (&remote{at, base, client}).addrs(context.Background()); err == nil {
			b.WriteString("  " + strings.Join(urls(addrs), " "))
		}
	}
	return b.String()
}

// addrs are the URLs under which the server's site is.
func (r *remote) addrs(ctx context.Context) (list []string, err error) {
	err = r.call(ctx, http.MethodGet, "/addrs", nil, &list)
	return list, err
}

// call asks the server, with what as JSON if it is not nil, and puts its
// answer into into if that is not nil.
func (r *remote) call(ctx context.Context, method, path string, what, into any) error {
	var body io.Reader
	if what != nil {
		text, err := json.Marshal(what)
		if err != nil {
			return fmt.Errorf("asking the server: %w", err)
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, body)
	if err != nil {
		return fmt.Errorf("asking the server: %w", err)
	}
	if what != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := r.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the rest is ours, and the address is in it
		}
		return fmt.Errorf("asking the server: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("reading the server's answer: %w", err)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return r.refused(resp.StatusCode, text)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("reading the server's answer: %w", err)
	}
	return nil
}

// refused is what the server says when it does not do it.
func (r *remote) refused(status int, text []byte) error {
	var said struct {
		Error string `json:"error"`
		Hint  string `json:"hint"`
	}
	if json.Unmarshal(text, &said) == nil && said.Error != "" {
		return failure{errors.New(said.Error), said.Hint}
	}
	message := strings.TrimSpace(string(text))
	if message == "" {
		message = http.StatusText(status)
	}
	return fmt.Errorf("the server at %s says: %s", r.at, message)
}

// untilInterrupted is a context that an interrupt ends; a second one ends the
// program.
func untilInterrupted() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
