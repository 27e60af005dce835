package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/upstream/faulty"
)

// handover is a request that a loop begins, and at some step gives to a goroutine.
type handover struct {
	scenario faulty.Scenario
	method   string
	reused   bool   // the connection has had a request before
	step     string // up to where the loop goes: see steps
	bytes    int    // how many of the answer it reads, at "answered"
	leaves   string // when the client goes away: "", "before" the goroutine begins, "within" the body
}

// outcomeHere is what came of it.
type outcomeHere struct {
	status   int
	text     string
	kind     error // ErrTimeout and so on, or context.Canceled; nil: all is well
	requests int   // that the server has seen
	next     string
}

const uploaded = "a body"

// trustworthy are the scenarios after which the connection may be used again.
var trustworthy = []string{"folded header", "redirect loop", "bad dates", "status 999"}

// TestHandover: wherever a loop stops and a goroutine goes on, whatever the server does and
// whether the client stays: the client gets what it gets where a goroutine does all of it,
// one request is sent, or one more where RFC 9110, 9.2.2 allows it, no place is lost, and
// what a connection in doubt says is no answer to the request that follows.
func TestHandover(t *testing.T) {
	for _, s := range faulty.Scenarios() {
		said := s.Output()
		if strings.Contains(s.Name, "endless") || strings.Contains(s.Name, "trickle") {
			continue // nothing of them is short, which TestFaults knows
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			for _, h := range []handover{{method: http.MethodGet}, {method: http.MethodGet, reused: true}, {method: http.MethodPost, reused: true}} {
				if h.scenario = s; s.Method != "" {
					h.method = s.Method
				}
				want := h.run(t)
				if trusted := s.Effect == faulty.Whole && slices.Contains(trustworthy, s.Name); !trusted && want.next != "next" {
					t.Errorf("%s, reused %v: the connection is used again, for %q", h.method, h.reused, want.next)
				}
				for _, step := range []string{"queued", "looked up", "connecting", "connected", "sent"} {
					h.step = step
					h.compare(t, want)
				}
				h.step = "answered"
				for _, h.bytes = range within(said) {
					h.compare(t, want)
				}
			}
		})
	}
}

// within are the numbers of bytes after which a loop stops: in the status line, in the
// head, before its end, after that, within the body, and all.
func within(said string) (at []int) {
	head := strings.Index(said, "\r\n\r\n") + len("\r\n\r\n")
	last := 0
	for _, n := range []int{1, 14, head - 1, head, head + 2, len(said)} {
		if n > last && n <= len(said) {
			at = append(at, n)
			last = n
		}
	}
	return at
}

// compare runs h for a client that stays, and for ones that go away.
func (h handover) compare(t *testing.T, want outcomeHere) {
	t.Helper()
	name := fmt.Sprintf("%s, reused %v, %s %d", h.method, h.reused, h.step, h.bytes)
	got := h.run(t)
	if strings.Contains(h.scenario.Name, "reset") && strings.HasPrefix(want.text, got.text) {
		got.text = want.text // a reset overtakes bytes
	}
	if strings.Contains(h.scenario.Name, "chunk size") && got.status == http.StatusOK {
		got.status = want.status // the head has gone ahead of the line that is malformed
	}
	if got != want {
		t.Errorf("%s: %+v; by a goroutine alone %+v", name, got, want)
	}
	most := 1
	if h.reused && h.method != http.MethodPost && h.scenario.Effect == faulty.Refused {
		most = 2
	}
	for _, h.leaves = range []string{"before", "within"} {
		if h.leaves == "within" && want.status == 0 {
			continue // there is nothing that it could be within
		}
		got := h.run(t)
		switch {
		case got.requests > most:
			t.Errorf("%s, and the client leaves %s: %d requests", name, h.leaves, got.requests)
		case !strings.HasPrefix(want.text, got.text):
			t.Errorf("%s, and the client leaves %s: it gets %q, and %q where it stays", name, h.leaves, got.text, want.text)
		case h.leaves == "before" && !errors.Is(got.kind, context.Canceled) && !errors.Is(got.kind, want.kind):
			t.Errorf("%s, and the client has left: %v", name, got.kind)
		case h.leaves == "before" && (h.step == "sent" || h.step == "answered") && got.next != "next":
			t.Errorf("%s, and the client has left: its connection is used again, for %q", name, got.next)
		}
	}
}

// run has a loop begin, if h says so, and a goroutine end a request, and makes another one.
func (h handover) run(t *testing.T) (got outcomeHere) {
	t.Helper()
	script, warm := h.scenario.Script, 0
	if h.reused {
		script, warm = append(faulty.Script{faulty.Request(), faulty.OK("warm"), faulty.Request(), faulty.OK("warm")}, script...), 2
	}
	s, err := faulty.Start(script, faulty.Good("next"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	o := Options{To: []string{s.URL}, Retries: Retries{Attempts: 1}, Concurrency: 2, Breaker: Breaker{Off: true}}
	switch h.scenario.Effect {
	case faulty.Late:
		o.HeaderTimeout = 300 * time.Millisecond
	case faulty.Stalled:
		o.BodyTimeout = 150 * time.Millisecond
	}
	p, err := New(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range warm {
		if a, err := p.Do(t.Context(), &Request{Path: "/warm"}, nil); err != nil {
			t.Fatal(err)
		} else if err := a.Body.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if h.reused && strings.HasSuffix(h.scenario.Name, "at once") {
		await(p.servers[0].client) // at the same moment everything could happen
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	q := Request{Method: h.method, Path: "/"}
	body := ""
	if h.method == http.MethodPost {
		body, q.Length = uploaded, int64(len(uploaded))
	}
	x, after := h.begin(t, p, &q, body)
	if h.leaves == "before" {
		cancel()
	}
	if body != "" {
		q.Body = io.NopCloser(strings.NewReader(body))
	}
	time.AfterFunc(5*time.Millisecond, after)
	a, err := p.Continue(ctx, &q, x, nil)
	if err == nil {
		got.status = a.Status
		var all strings.Builder
		if h.leaves == "within" {
			_, err = io.CopyN(&all, a.Body, 1)
			cancel()
		}
		if err == nil {
			_, err = io.Copy(&all, a.Body)
		}
		if got.text = all.String(); errors.Is(err, io.EOF) {
			err = nil // of CopyN
		}
		a.Body.Close()
	}
	got.kind = kindOf(err)
	got.requests = s.Requests() - warm
	for end := time.Now().Add(20 * time.Second); p.Servers()[0].Running > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // of who connects for a client that has left
	}
	idle(t, p)
	if h.leaves == "before" && h.step != "sent" && h.step != "answered" {
		return got // its connection has the scenario before it
	}
	if a, err = p.Do(t.Context(), &Request{Path: "/next"}, nil); err == nil {
		text, _ := io.ReadAll(a.Body) // what is wrong with the first connection's is not of interest
		a.Body.Close()
		if got.next = string(text); strings.Contains(got.next, faulty.Secret) || strings.Contains(fmt.Sprint(a.Fields), faulty.Secret) {
			t.Errorf("%+v: what came behind an answer is taken for another", h)
		}
	} else {
		got.next = err.Error()
	}
	return got
}

// begin does the loop's part. after must be called when the goroutine has begun.
func (h handover) begin(t *testing.T, p *Pool, q *Request, body string) (x *Exchange, after func()) {
	t.Helper()
	after = func() {}
	if h.step == "" {
		return nil, after
	}
	if h.step == "queued" {
		p.mu.Lock()
		held := []place{p.enter(p.servers[0], p.now()), p.enter(p.servers[0], p.now())}
		p.mu.Unlock()
		after = func() { p.unused(held[0]); p.unused(held[1]) }
	}
	way := p.servers[0].way
	if h.step == "looked up" {
		way.names, h.step = nil, "connected" // a goroutine connects
	}
	x = new(Exchange)
	told := make(bell)
	if !p.Begin(x, 0, q, told) {
		t.Fatal("the request is not for a loop")
	}
	if h.step == "queued" {
		return x, after
	}
	for done := ""; done != h.step; {
		switch {
		case (x.Waits() || x.Connects()) && h.step == "connecting":
			return x, after
		case x.Waits():
			if <-told; !x.Enter() {
				return x, after // there is no connection
			}
			done = "connected"
		case done == "sent":
			h.take(t, x)
			done = "answered"
		case done == "" && h.step == "connecting", done == "" && h.step == "connected":
			return x, after // it had one, or the loop connects
		default:
			if !x.Send(q, []byte(body), make([]byte, 0, 4<<10)) {
				return x, after
			}
			for x.Connects() {
				time.Sleep(100 * time.Microsecond)
				if !x.Enter() || !x.Send(q, []byte(body), make([]byte, 0, 4<<10)) {
					return x, after
				}
			}
			if done = "sent"; x.Waits() {
				done = "" // the server has ended that connection, or refuses one
			}
		}
	}
	return x, after
}

// take reads as many bytes of the answer as h says.
func (h handover) take(t *testing.T, x *Exchange) {
	t.Helper()
	buf := make([]byte, h.bytes)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		n, _, err := syscall.Recvfrom(x.line.fd, buf, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if n == len(buf) || n == 0 && err == nil || err != nil && !errors.Is(err, syscall.EAGAIN) {
			break
		}
	}
	var a Answer
	if _, found := x.Take(buf, h.method, &a); found == Whole {
		x.Hold()
	}
}

// kindOf is what an error says about the server, or the client.
func kindOf(err error) error {
	for _, kind := range []error{ErrUnreachable, ErrTimeout, ErrBusy, ErrUnhealthy, ErrProtocol, context.Canceled} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return err
}
