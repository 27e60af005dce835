package channels

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/store/bus"
	"millrace/websocket/frame"
)

// lateBus answers from other goroutines, as one with a network does.
type lateBus struct {
	*bus.Memory
}

func (b *lateBus) History(channel string, since *bus.Position, limit int, done func(bus.History, error)) {
	if rand.N(4) == 0 {
		b.Memory.History(channel, since, limit, done)
		return
	}
	go b.Memory.History(channel, since, limit, done) // ends soon after
}

// runner is a goroutine that does what is posted.
func runner(t *testing.T) (post func(f func())) {
	t.Helper()
	var mu sync.Mutex
	var posted []func()
	wake, done := make(chan struct{}, 1), make(chan struct{})
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(func() { end(); <-done })
	go func() {
		defer close(done)
		for {
			mu.Lock()
			list := posted
			posted = nil
			mu.Unlock()
			for _, f := range list {
				f()
			}
			if len(list) > 0 {
				continue
			}
			select {
			case <-wake:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func(f func()) {
		mu.Lock()
		posted = append(posted, f)
		mu.Unlock()
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// owned is a connection with a goroutine: its turn is a lock, and it is
// delivered to at the same time.
type owned struct {
	post func(f func())
	turn sync.Mutex
	mu   sync.Mutex
	said []string
}

func (o *owned) Send(_ frame.Opcode, data []byte) { o.hear(string(data)) }
func (o *owned) Deliver(p *frame.Prepared)        { o.hear(string(p.Payload())) }
func (o *owned) Answer(p *frame.Prepared)         { o.hear(string(p.Payload())) }
func (o *owned) Close(frame.Code, string)         {}
func (o *owned) Runner() int                      { return 0 }

func (o *owned) hear(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.said = append(o.said, text)
}

func (o *owned) Later() func(f func()) {
	return func(f func()) {
		o.post(func() {
			o.turn.Lock()
			defer o.turn.Unlock()
			f()
		})
	}
}

// What clients are told about their subscriptions is what they have, in the
// order in which it became so, and publications come in their order.
func TestTurnsAndDeliveries(t *testing.T) {
	post := runner(t)
	b := &lateBus{Memory: bus.NewMemory(bus.Keep{Messages: 1000})}
	o := everybody()
	o.Presence, o.Commands = false, 100_000
	c, err := New(o, Deps{Bus: b, Runners: 1, Post: func(_ int, f func()) { post(f) }})
	if err != nil {
		t.Fatal(err)
	}
	var clients, publishers sync.WaitGroup
	stop := make(chan struct{})
	for i := range 3 {
		publishers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				c.hub.Publish(t.Context(), bus.Message{Channel: fmt.Sprint("c", i), Data: fmt.Append(nil, n)})
				time.Sleep(time.Microsecond)
			}
		})
	}
	ports, sessions := make([]owned, 4), make([]session, 4)
	for i := range ports {
		port, s := &ports[i], &sessions[i]
		port.post = post
		*s = session{grant: grantOf(t, c), slot: noSlot}
		clients.Go(func() {
			c.open(s, port)
			for range 500 {
				channel := fmt.Sprint("c", rand.N(3))
				port.turn.Lock()
				for range 1 + rand.N(3) { // pipelined
					command := []string{"subscribe", "unsubscribe"}[rand.N(2)]
					c.message(s, frame.Text, fmt.Appendf(nil, `{%q:%q}`, command, channel))
				}
				port.turn.Unlock()
			}
		})
	}
	clients.Wait()
	for i := range ports {
		for waits := true; waits; runtime.Gosched() { // for the bus's answers
			ports[i].turn.Lock()
			waits = len(sessions[i].others().pending) > 0
			ports[i].turn.Unlock()
		}
	}
	close(stop)
	publishers.Wait()
	for i := range ports {
		ports[i].turn.Lock()
		checkStory(t, &ports[i], &sessions[i])
		c.closed(&sessions[i])
		ports[i].turn.Unlock()
	}
	if c.Measure(); c.meters.Subscriptions.Load() != 0 {
		t.Errorf("%d subscriptions are left", c.meters.Subscriptions.Load())
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// checkStory compares what a client was told with what it has.
func checkStory(t *testing.T, port *owned, s *session) {
	t.Helper()
	port.mu.Lock()
	defer port.mu.Unlock()
	has := map[string]bool{}
	at, gap := map[string]uint64{}, map[string]bool{}
	for i, line := range port.said {
		var said struct {
			Subscribed, Unsubscribed, Message, Reset string
			Offset                                   uint64
		}
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		switch {
		case said.Subscribed != "":
			if said.Offset < at[said.Subscribed] {
				t.Errorf("subscribed at %d behind %d", said.Offset, at[said.Subscribed])
			}
			has[said.Subscribed], at[said.Subscribed] = true, said.Offset
		case said.Unsubscribed != "":
			delete(has, said.Unsubscribed)
		case said.Reset != "": // more was published at once than waits for a runner
			gap[said.Reset] = true
		case said.Message != "":
			missing := said.Offset != at[said.Message]+1 && !gap[said.Message]
			if gap[said.Message] = false; said.Offset <= at[said.Message] || has[said.Message] && missing {
				t.Errorf("message %d of %s behind %d: %s", said.Offset, said.Message, at[said.Message], strings.Join(port.said[max(0, i-40):i+1], "\n"))
			}
			at[said.Message] = said.Offset
		}
	}
	if len(has) != s.count() {
		t.Errorf("the client was told of %d subscriptions and has %d", len(has), s.count())
	}
	for channel := range has {
		if s.others().more[channel] == nil && (s.first == nil || s.first.Channel() != channel) {
			t.Errorf("the client was told of a subscription to %s that it has not", channel)
		}
	}
}

// A stream over a real connection.
func TestEventsOverHTTP(t *testing.T) {
	post := runner(t)
	c, err := New(Options{}, Deps{Bus: bus.NewMemory(Options{}.Keep()), Runners: 1, Post: func(_ int, f func()) { post(f) }})
	if err != nil {
		t.Fatal(err)
	}
	leaving := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			c.ServePublish(w, r)
			return
		}
		c.ServeEvents(w, r, leaving)
	}))
	defer srv.Close()
	defer c.Close()
	resp, err := srv.Client().Get(srv.URL + "?channel=news")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func(prefix string) string {
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), prefix); ok {
				return text
			}
		}
		t.Fatalf("the stream ends before %q", prefix)
		return ""
	}
	next("id: ")
	for i := range 3 {
		sent, err := srv.Client().Post(srv.URL+"?channel=news", "application/json", strings.NewReader(fmt.Sprint(i)))
		if err != nil || sent.StatusCode != http.StatusOK {
			t.Fatal(sent, err)
		}
		sent.Body.Close()
		if got, want := next("data: "), fmt.Sprintf(`{"message":"news","offset":%d,"data":%d}`, i+1, i); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	close(leaving)
	next("retry: ")
	for lines.Scan() {
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the stream ends with %v", err)
	}
}
