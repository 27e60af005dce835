package channels_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"millrace/store/bus"
	"millrace/websocket/channels"
)

const (
	numPublishers = 4   // half of them over HTTP, half over WebSockets
	numPublished  = 150 // by each
)

func channelNames() []string { return []string{"news", "chat:1", "Größe ☂", "a.b>*"} }

// TestEndToEnd lets clients of all kinds come and go at random, where others
// publish in all ways, and holds what each has seen against what there was:
// complete, in order, and each once.
func TestEndToEnd(t *testing.T) {
	keep := bus.Keep{Messages: 10_000}
	m := newMachine(t, bus.NewMemory(keep), channels.Options{})
	defer m.close(t)
	w := newWorld(m)
	clients := w.populate(t)
	w.publishAll(t, clients, func() {})
	for _, k := range clients {
		for _, v := range k.views {
			for i, s := range v.got {
				if want := (*w.end.Load())[v.channel][i]; s.offset != want.Offset || s.data != text(want) {
					t.Fatalf("%s: publication %d is %v, want %d %s", v.channel, i, s, want.Offset, want.Data)
				}
			}
		}
	}
	if m.meters.Lost.Load() > 0 || m.meters.Recovered.Load() == 0 {
		t.Errorf("%d recovered, %d lost", m.meters.Recovered.Load(), m.meters.Lost.Load())
	}
}

// text is the data of a publication, a JSON string.
func text(m bus.Message) (s string) {
	if json.Unmarshal(m.Data, &s) != nil {
		return string(m.Data)
	}
	return s
}

// populate makes the clients.
func (w *world) populate(t *testing.T) []*client {
	t.Helper()
	names := channelNames()
	clients := make([]*client, numClients)
	for i := range clients {
		clients[i] = &client{world: w, events: i%2 == 0, views: map[string]*view{}}
		for _, n := range rand.Perm(len(names))[:1+rand.IntN(3)] {
			clients[i].views[names[n]] = newView(names[n])
		}
	}
	return clients
}

// publishAll runs everything: the clients, publishers once they all are there,
// and meanwhile. It returns when every client knows all that was published.
func (w *world) publishAll(t *testing.T, clients []*client, meanwhile func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	fail := func(err error) {
		if err != nil && w.failed.CompareAndSwap(nil, &err) {
			cancel()
		}
	}
	w.ready.Add(len(clients))
	var all, publishers sync.WaitGroup
	for i, k := range clients {
		all.Go(func() {
			if err := k.run(ctx); err != nil {
				fail(fmt.Errorf("client %d: %w", i, err))
			}
		})
	}
	ready := make(chan struct{})
	go func() { w.ready.Wait(); close(ready) }() // ends with the test, at the latest
	select {
	case <-ready:
	case <-ctx.Done():
		t.Fatalf("the clients do not begin: %v", *w.failed.Load())
	}
	for i := range numPublishers {
		m := w.machines[i%len(w.machines)]
		publishers.Go(func() {
			if i < numPublishers/2 {
				fail(w.post(ctx, m, i))
			} else {
				fail(w.say(ctx, m, i))
			}
		})
	}
	meanwhile()
	publishers.Wait()
	if w.failed.Load() == nil {
		fail(w.finish(ctx))
	}
	all.Wait()
	if err := w.failed.Load(); err != nil {
		t.Fatal(*err)
	}
	lives, downs, resets := 0, 0, 0
	for _, k := range clients {
		lives, downs, resets = lives+k.lives, downs+k.downs, resets+k.resets
	}
	t.Logf("%d clients had %d lives, were told %d times that the bus is down, and reset %d times", len(clients), lives, downs, resets)
}

// finish waits until everything has its place, and tells the clients.
func (w *world) finish(ctx context.Context) error {
	for ctx.Err() == nil {
		truth, n := map[string][]bus.Message{}, 0
		for _, channel := range channelNames() {
			answered := make(chan struct{})
			w.machines[0].bus.History(channel, &bus.Position{}, 0, func(h bus.History, err error) {
				if err == nil {
					truth[channel] = h.Messages
				}
				close(answered)
			})
			<-answered
			n += len(truth[channel])
		}
		if n >= numPublishers*numPublished {
			w.end.Store(&truth)
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("not everything that was published has its place: %w", ctx.Err())
}

func (w *world) pick(i, n int) (channel, data string) {
	names := channelNames()
	return names[rand.IntN(len(names))], fmt.Sprintf("%d-%d", i, n)
}

// post publishes over HTTP.
func (w *world) post(ctx context.Context, m *machine, i int) error {
	posts := m.servers[i%2].Client()
	for n := range numPublished {
		channel, data := w.pick(i, n)
		target := m.servers[i%2].URL + "/publish?channel=" + url.QueryEscape(channel)
		for again := true; again; {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(data))
			if err != nil {
				return err
			}
			req.Header.Set("Idempotency-Key", data)
			resp, err := posts.Do(req)
			if err != nil {
				return fmt.Errorf("publishing: %w", err)
			}
			answer, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			again = resp.StatusCode == http.StatusServiceUnavailable
			if !again && resp.StatusCode != http.StatusOK {
				return fmt.Errorf("publishing: %s %s", resp.Status, answer)
			}
		}
		time.Sleep(rand.N(15 * time.Millisecond))
	}
	return nil
}

// say publishes over a WebSocket.
func (w *world) say(ctx context.Context, m *machine, i int) error {
	u := strings.Replace(m.servers[i%2].URL, "http", "ws", 1) + "/ws"
	nc, _, _, err := ws.Dialer{TLSConfig: w.tls}.Dial(ctx, u)
	if err != nil {
		return fmt.Errorf("connecting a publisher: %w", err)
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	for n := range numPublished {
		channel, data := w.pick(i, n)
		command, _ := json.Marshal(map[string]any{"publish": channel, "data": data, "id": n})
		if err := wsutil.WriteClientText(nc, command); err != nil {
			return fmt.Errorf("publishing: %w", err)
		}
		text, _, err := wsutil.ReadServerData(nc)
		var m said
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		if err != nil || m.Published != channel || string(m.ID) != fmt.Sprint(n) || bytes.Count(text, []byte(`"id":`)) != 1 {
			return fmt.Errorf("publishing with the id %d: %w, answer %s", n, err, text)
		}
		time.Sleep(rand.N(15 * time.Millisecond))
	}
	return nil
}
