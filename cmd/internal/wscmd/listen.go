package wscmd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"millrace/cmd/internal/cli"
)

const (
	// firstRetry and lastRetry bound the time between two attempts to come back:
	// it doubles, and is drawn from its second half so that many clients do not
	// come at once.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 15 * time.Second
	// silent is how long a stream may say nothing, not even a comment, before it
	// is taken for dead.
	// Ours say something every 15 seconds.
	silent = time.Minute
)

// Listen is `millrace ws listen`.
type Listen struct {
	Channel []string `arg:"" help:"The channels."`
	Since   string   `placeholder:"ID" help:"First print what came behind this position: the id of an event, which --ids prints."`
	Number  int      `short:"n" placeholder:"N" help:"End after so many publications. Default: go on until it is interrupted."`
	IDs     bool     `name:"ids" help:"Print each event's id before it, with a tab between."`
	Token   string   `placeholder:"TOKEN" env:"MILLRACE_WS_TOKEN" help:"The token to show, where the server wants one (Authorization: Bearer TOKEN)."`

	channelFlags `embed:""`

	last    string // the id of the latest event
	printed int
}

// errEnough ends listening.
var errEnough = errors.New("as many as were asked for")

// Run prints publications until it is interrupted. Where the connection breaks
// off it comes back, and goes on behind the last one.
func (c *Listen) Run(s cli.Streams) error {
	if c.Number < 0 {
		return cli.Usage(fmt.Sprintf("--number %d: how many publications to print, or none for all", c.Number), "")
	}
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	c.last = c.Since
	retry := firstRetry
	for first := true; ; first = false {
		connected, err := c.once(ctx, s)
		switch {
		case ctx.Err() != nil || errors.Is(err, errEnough):
			return nil
		case first && !connected || final(err):
			return err
		case connected:
			retry = firstRetry
		}
		s.Print("millrace: %v; trying again\n", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry/2 + rand.N(retry/2)):
		}
		retry = min(2*retry, lastRetry)
	}
}

// finalError is one that another attempt would not change.
type finalError struct{ error }

func (f finalError) Unwrap() error { return f.error }

func final(err error) bool {
	_, ok := errors.AsType[finalError](err)
	return ok
}

// once connects, and prints until the stream ends: with an error, always.
func (c *Listen) once(ctx context.Context, s cli.Streams) (connected bool, err error) {
	at, err := c.find(ctx)
	if err != nil {
		return false, err
	}
	defer at.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.base+"sse?"+channelQuery(c.Channel...), nil)
	if err != nil {
		return false, finalError{fmt.Errorf("listening: %w", err)}
	}
	req.Header.Set("Accept", "text/event-stream")
	if c.last != "" {
		req.Header.Set("Last-Event-ID", c.last)
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	dead := time.AfterFunc(silent, func() { cancel(errors.New("nothing came for " + silent.String())) })
	defer dead.Stop()
	resp, err := at.client.Do(req)
	if err != nil {
		return false, fmt.Errorf("listening at %s: %w", at.base, unwrapped(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // the status says most of it
		err := at.refused(resp, "not listening to "+strings.Join(c.Channel, ", "), errorText(body), "show a token: --token TOKEN, or MILLRACE_WS_TOKEN")
		if resp.StatusCode < http.StatusInternalServerError && resp.StatusCode != http.StatusTooManyRequests {
			return false, finalError{err}
		}
		return false, err
	}
	s.Print("millrace: listening to %s at %s\n", strings.Join(c.Channel, ", "), at.base)
	from := newEvents(&awake{resp.Body, dead})
	err = c.print(from, s)
	c.last = cmp.Or(from.id, c.last)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the server ended the stream")
	}
	return true, err
}

// awake puts the alarm off with every byte.
type awake struct {
	r     io.Reader
	alarm *time.Timer
}

// Read implements [io.Reader].
func (a *awake) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	a.alarm.Reset(silent)
	return n, err
}

// print writes publications out until there are no more, or enough.
func (c *Listen) print(from *events, s cli.Streams) error {
	for {
		e, err := from.next()
		if err != nil {
			return err
		}
		switch e.name {
		case "refused":
			s.Print("millrace: one channel does not come: %s\n", oneLine(e.data))
		case "reset":
			s.Print("millrace: what came between is not all there any more: %s\n", oneLine(e.data))
		}
		if !isPublication([]byte(e.data)) { // a note about a channel
			continue
		}
		line := oneLine(e.data)
		if c.IDs {
			line = e.id + "\t" + line
		}
		if _, err := fmt.Fprintln(s.Out, line); err != nil {
			return finalError{err}
		}
		if c.printed++; c.printed == c.Number {
			return errEnough
		}
	}
}

// isPublication tells them from the other things that a stream says of its
// channels.
func isPublication(data []byte) bool {
	var publication struct {
		Message *string `json:"message"`
	}
	return json.Unmarshal(data, &publication) == nil && publication.Message != nil
}

// oneLine is JSON without line breaks, and all else as a JSON text.
func oneLine(data string) string {
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(data)); err == nil {
		return b.String()
	}
	text, err := json.Marshal(data)
	if err != nil {
		return `""` // cannot be: every string can be written
	}
	return string(text)
}
