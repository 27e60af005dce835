package channels

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/store/bus"
)

// reader is the client of an event stream, and its ResponseWriter.
type reader struct {
	r       *rig
	leaving chan struct{}
	gone    context.CancelFunc
	ended   chan struct{}
	header  http.Header
	block   chan struct{} // writes wait for it, if it is there

	mu      sync.Mutex
	status  int
	text    string
	pending string // written, not flushed
	writes  int
	fail    bool
}

func (c *reader) Header() http.Header    { return c.header }
func (c *reader) WriteHeader(status int) { c.status = status }

func (c *reader) Write(b []byte) (int, error) {
	if c.block != nil {
		<-c.block
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail {
		return 0, errors.New("broken pipe")
	}
	c.pending += string(b)
	c.writes++
	return len(b), nil
}

func (c *reader) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text += c.pending
	c.pending = ""
}

func (c *reader) SetWriteDeadline(time.Time) error { return nil }

// listen begins a stream. query follows ?, and last is Last-Event-ID.
func (r *rig) listen(query, last string, block chan struct{}) *reader {
	ctx, cancel := context.WithCancel(r.t.Context())
	c := &reader{r: r, leaving: make(chan struct{}), gone: cancel, ended: make(chan struct{}), header: http.Header{}, block: block}
	req := request(r.t, "GET", "/sse?"+query, "").WithContext(ctx)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	go func() {
		defer close(c.ended)
		r.c.ServeEvents(c, req, c.leaving)
	}()
	synctest.Wait()
	return c
}

// events are those that have come since the last call, as "type data", and the
// id of the latest, as a browser understands them.
func (c *reader) events() (events []string, last string) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for block := range strings.SplitSeq(c.text, "\n\n") {
		kind, data := "message", ""
		for line := range strings.SplitSeq(block, "\n") {
			field, value, _ := strings.Cut(line, ": ")
			switch field {
			case "event":
				kind = value
			case "data":
				data += value
			case "id":
				last = value
			}
		}
		if data != "" {
			events = append(events, kind+" "+data)
		}
	}
	c.text = ""
	return events, last
}

// raw is what has come since the last call, as it came.
func (c *reader) raw() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	text := c.text
	c.text = ""
	return text
}

func (c *reader) expect(want ...string) (last string) {
	c.r.t.Helper()
	got, last := c.events()
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "EPOCH", c.r.epoch())
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		c.r.t.Errorf("events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return last
}

func (c *reader) written() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

func (c *reader) leave() {
	c.gone()
	<-c.ended
}

func (c *reader) over() bool {
	synctest.Wait()
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

func TestEvents(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		c := r.listen("channel=news&channel=chat&channel=news", "", nil)
		if c.status != 200 || c.header.Get("Content-Type") != "text/event-stream" || c.header.Get("Cache-Control") != "no-store" || c.header.Get("X-Accel-Buffering") != "no" {
			t.Errorf("status %d, %v", c.status, c.header)
		}
		if text := c.raw(); !strings.HasPrefix(text, "retry: ") || !strings.Contains(text, "\n\nid: ") {
			t.Errorf("it begins with %q, want a time to come back and an id", text)
		}
		r.publish("news", `{"a":1}`)
		r.publish("chat", `"x"`)
		r.publish("else", `"x"`)
		last := c.expect(`message {"message":"news","offset":1,"data":{"a":1}}`, `message {"message":"chat","offset":1,"data":"x"}`)
		c.leave()
		r.publish("news", `2`)
		r.publish("chat", `3`)
		r.publish("more", `4`)

		// Every channel goes on where it was, and one more does not matter.
		c = r.listen("channel=more&channel=news&channel=chat", last, nil)
		got, _ := c.events()
		if len(got) != 2 || !strings.Contains(got[0]+got[1], `"offset":2,"data":2`) || !strings.Contains(got[0]+got[1], `"offset":2,"data":3`) {
			t.Errorf("recovered %s", got)
		}
		r.publish("news", `5`)
		newest := c.expect(`message {"message":"news","offset":3,"data":5}`)
		c.leave()
		c = r.listen("channel=news&last_event_id="+last, newest, nil)
		c.expect() // the header knows better than the query
		c.leave()
		c = r.listen("channel=news&last_event_id="+last, "", nil)
		c.expect(`message {"message":"news","offset":2,"data":2}`, `message {"message":"news","offset":3,"data":5}`)
		c.leave()
		if open := r.c.meters.Open.Load(); open != 0 {
			t.Errorf("%d streams are counted as open", open)
		}
	})
}

// Nothing reaches a client before its subscriptions have begun: whoever has seen
// the header gets what is published from then on. A bus that is slow holds the
// header back for no longer than a heartbeat.
func TestEventsBegin(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.bus.hold = true
		c := r.listen("channel=news&channel=chat", "", nil)
		if text := c.raw(); text != "" {
			t.Errorf("before its subscriptions have begun a client gets %q", text)
		}
		r.bus.release()
		if text := c.raw(); !strings.HasPrefix(text, "retry: ") {
			t.Errorf("it begins with %q", text)
		}
		r.publish("news", `1`)
		c.expect(`message {"message":"news","offset":1,"data":1}`)
		c.leave()

		r.bus.hold = true
		c = r.listen("channel=news", "", nil)
		time.Sleep(heartbeat)
		if text := c.raw(); !strings.HasPrefix(text, "retry: ") {
			t.Errorf("after %v it begins with %q", heartbeat, text)
		}
		c.leave()
		c = r.listen("channel=news", "", nil)
		c.leave() // before anything has come
		r.bus.release()
	})
}

func TestEventsReset(t *testing.T) {
	bubble(t, Options{History: History{Messages: 2}}, func(t *testing.T, r *rig) {
		c := r.listen("channel=a&channel=b", "", nil)
		r.publish("a", "1")
		_, last := c.events()
		c.leave()
		for i := range 3 {
			r.publish("a", fmt.Sprint(i+2))
		}
		c = r.listen("channel=a&channel=b", last, nil)
		again := c.expect(`reset {"reset":"a","epoch":"EPOCH","offset":4}`, `message {"message":"a","offset":3,"data":3}`, `message {"message":"a","offset":4,"data":4}`)
		c.leave()
		c = r.listen("channel=a&channel=b", again, nil)
		c.expect()
		// The bus may have lost something: we look, and nothing is missing.
		r.publish("a", "5")
		r.bus.listener.Reset("a")
		r.publish("a", "6")
		c.expect(`message {"message":"a","offset":5,"data":5}`, `message {"message":"a","offset":6,"data":6}`)
		// One without an offset yet.
		r.bus.listener.Deliver(bus.Message{Channel: "b", ID: "i", Data: []byte("1\n")})
		r.bus.listener.Placed("b", "i", 9)
		c.expect(`message {"message":"b","id":"i","data":1 }`, `placed {"placed":"b","id":"i","offset":9}`)
		c.leave()
		c = r.listen("channel=a", strings.ReplaceAll(again, r.epoch(), "before"), nil)
		c.expect(`reset {"reset":"a","epoch":"EPOCH","offset":6}`, `message {"message":"a","offset":5,"data":5}`, `message {"message":"a","offset":6,"data":6}`)
		c.leave()
	})
}

// An id that cannot be read is of a client that may have missed something: it is
// told so, as for a place that the history does not reach back to. A channel that
// an id does not have begins anew.
func TestEventsUnreadableID(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		c := r.listen("channel=a", "", nil)
		r.publish("a", "1")
		r.publish("b", "2")
		_, last := c.events()
		c.leave()
		missed := []string{`reset {"reset":"a","epoch":"EPOCH","offset":1}`, `message {"message":"a","offset":1,"data":1}`}
		for _, id := range []string{"nonsense", "42", "1.2.3", "~" + last, strings.Repeat("x", maxCursor+1)} {
			c = r.listen("channel=a", id, nil)
			again := c.expect(slices.Clone(missed)...)
			c.leave()
			c = r.listen("channel=a&last_event_id="+url.QueryEscape(id), "", nil)
			c.expect(slices.Clone(missed)...)
			c.leave()
			c = r.listen("channel=a", again, nil)
			c.expect()
			c.leave()
		}
		c = r.listen("channel=a&channel=b", last+"~cut", nil)
		c.expect(`reset {"reset":"b","epoch":"EPOCH","offset":1}`, `message {"message":"b","offset":1,"data":2}`)
		c.leave()
		c = r.listen("channel=a&channel=b", last, nil)
		c.expect()
		c.leave()
	})
}

// A stream that is not read costs its queue, and ends; its client comes back and
// has everything, once.
func TestEventsSlow(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		block := make(chan struct{})
		c := r.listen("channel=a", "", block)
		block <- struct{}{} // retry
		block <- struct{}{} // the id
		for i := range 40 { // the queue holds 32
			r.publish("a", fmt.Sprint(i+1))
		}
		if n := r.c.meters.QueuedMessages.Load(); n > 33 {
			t.Errorf("%d messages wait", n)
		}
		close(block)
		if !c.over() {
			t.Fatal("the stream goes on")
		}
		got, last := c.events()
		c = r.listen("channel=a", last, nil)
		rest, _ := c.events()
		all := append(got, rest...)
		if len(all) != 40 {
			t.Errorf("%d events and %d more", len(got), len(rest))
		}
		for i, e := range all {
			if !strings.HasSuffix(e, fmt.Sprintf(`"data":%d}`, i+1)) {
				t.Errorf("event %d is %s", i, e)
			}
		}
		c.leave()
		if n, b := r.c.meters.QueuedMessages.Load(), r.c.meters.QueuedBytes.Load(); n != 0 || b != 0 {
			t.Errorf("%d messages, %d bytes wait for nobody", n, b)
		}
	})
}

// What piles up while a write lasts goes out in one.
func TestEventsBatch(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		block := make(chan struct{})
		c := r.listen("channel=a", "", block)
		block <- struct{}{}
		block <- struct{}{}
		for range 20 {
			r.publish("a", "1")
		}
		close(block)
		if got, _ := c.events(); len(got) != 20 || c.written() > 4 {
			t.Errorf("%d events in %d writes", len(got), c.written())
		}
		c.leave()
		if n := r.c.meters.QueuedMessages.Load(); n != 0 {
			t.Errorf("%d messages wait for nobody", n)
		}
	})
}

// More was missed than goes into one batch.
func TestEventsMissedMuch(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		c := r.listen("channel=a", "", nil)
		_, last := c.events()
		c.leave()
		for range 10 {
			r.publish("a", quoted20k())
		}
		c = r.listen("channel=a", last, nil)
		if got, _ := c.events(); len(got) != 10 || c.written() < 3 {
			t.Errorf("%d events in %d writes", len(got), c.written())
		}
		c.leave()
	})
}

func TestEventsEnd(t *testing.T) {
	bubble(t, tokens(), func(t *testing.T, r *rig) {
		pass := tokenFor(t, map[string]any{"sub": "ann", "exp": time.Now().Add(time.Minute).Unix(), "subscribe": []string{"a"}})
		c := r.listen("channel=a&token="+pass, "", nil)
		c.raw()
		time.Sleep(16 * time.Second)
		if text := c.raw(); text != ":\n\n" {
			t.Errorf("in silence it says %q", text)
		}
		time.Sleep(75 * time.Second)
		if !c.over() {
			t.Error("it goes on behind the end of the token and the leeway")
		}
		pass = tokenFor(t, map[string]any{"subscribe": []string{"a"}})
		c = r.listen("channel=a&token="+pass, "", nil)
		c.raw()
		close(c.leaving)
		if text := c.raw(); !c.over() || !strings.HasPrefix(text, "retry: ") {
			t.Errorf("leaving, it says %q", text)
		}
		c = r.listen("channel=a&token="+pass, "", nil)
		c.mu.Lock()
		c.fail = true
		c.mu.Unlock()
		r.publish("a", "1")
		if !c.over() {
			t.Error("it goes on without a client")
		}
		c = r.listen("channel=a&token="+pass, "", nil)
		r.bus.fail = errors.New("no")
		if r.bus.listener.Reset("a"); !c.over() {
			t.Error("it goes on without a bus")
		}
	})
}

func TestEventsClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		c := r.listen("channel=a", "", nil)
		r.close()
		if !c.over() {
			t.Error("it goes on behind the end of the channels")
		}
	})
}

func TestEventsRefused(t *testing.T) {
	o := tokens()
	o.PerClient = 2
	bubble(t, o, func(t *testing.T, r *rig) {
		pass := "&token=" + tokenFor(t, map[string]any{"subscribe": []string{"a", "b", "c"}})
		for query, status := range map[string]int{
			pass:                                   400,
			"channel=" + pass:                      400,
			"channel=%00" + pass:                   400,
			"channel=a&channel=b&channel=c" + pass: 400,
			"channel=a":                            401,
			"channel=a&token=x":                    401,
			"token=x":                              401,
			"channel=d" + pass:                     403,
		} {
			c := r.listen(query, "", nil)
			if !c.over() || c.status != status || c.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: status %d, want %d", query, c.status, status)
			}
		}
		if n := r.c.meters.Refused.Load(); n != 8 {
			t.Errorf("%d refused", n)
		}
		rec := &reader{r: r, header: http.Header{}}
		r.c.ServeEvents(rec, request(t, "POST", "/sse?channel=a"+pass, ""), nil)
		if rec.status != 405 || rec.header.Get("Allow") != "GET" {
			t.Errorf("POST: %d %v", rec.status, rec.header)
		}
	})
}

// One channel that is forbidden does not silence the others.
func TestEventsPartlyRefused(t *testing.T) {
	bubble(t, tokens(), func(t *testing.T, r *rig) {
		pass := "&token=" + tokenFor(t, map[string]any{"subscribe": []string{"a", "c"}})
		const refused = `refused {"error":"you may not subscribe to this channel","code":"forbidden","channel":"b"}`
		c := r.listen("channel=a&channel=b&channel=c"+pass, "", nil)
		r.publish("a", "1")
		r.publish("b", "2")
		r.publish("c", "3")
		last := c.expect(refused, `message {"message":"a","offset":1,"data":1}`, `message {"message":"c","offset":1,"data":3}`)
		c.leave()
		r.publish("c", "4")
		c = r.listen("channel=a&channel=b&channel=c"+pass, last, nil)
		c.expect(refused, `message {"message":"c","offset":2,"data":4}`)
		c.leave()
	})
}

// Names that somebody has chosen to have the same key.
func TestEventsSameKey(t *testing.T) {
	const one, two = "room:5627399", "room:7909796"
	if channelKey(one) != channelKey(two) {
		t.Fatal("the test needs two channels with the same key")
	}
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		c := r.listen("channel="+one+"&channel="+two, "", nil)
		for range 5 {
			r.publish(two, "1")
		}
		_, last := c.events()
		c.leave()
		r.publish(one, "2")
		r.publish(two, "3")
		c = r.listen("channel="+two+"&channel="+one, last, nil)
		c.expect(`message {"message":"`+one+`","offset":1,"data":2}`, `message {"message":"`+two+`","offset":6,"data":3}`)
		c.leave()
	})
}

// A stream of the most channels comes back where it was, with an id that fits
// into a header everywhere.
func TestEventsMany(t *testing.T) {
	bubble(t, Options{PerClient: 1000}, func(t *testing.T, r *rig) {
		query := ""
		for i := range eventChannels {
			query += fmt.Sprintf("&channel=c%03d", i)
			for range i % 40 {
				r.publish(fmt.Sprintf("c%03d", i), "1")
			}
		}
		c := r.listen(query, "", nil)
		_, last := c.events()
		if len(last) > 8<<10-len("Last-Event-ID: ") {
			t.Errorf("the id has %d bytes", len(last))
		}
		c.leave()
		r.publish("c000", "2")
		r.publish("c499", "3")
		c = r.listen(query, last, nil)
		c.expect(`message {"message":"c000","offset":1,"data":2}`, `message {"message":"c499","offset":20,"data":3}`)
		c.leave()
		if c = r.listen(query+"&channel=more", "", nil); !c.over() || c.status != 400 {
			t.Errorf("one more: %d", c.status)
		}
	})
}

// Pages of another site may read what they are let in for.
func TestEventsOrigin(t *testing.T) {
	bubble(t, tokens(), func(t *testing.T, r *rig) {
		w := httptest.NewRecorder()
		req := request(t, "GET", "/sse?channel=a", "")
		req.Header.Set("Origin", "https://app.example")
		r.c.ServeEvents(w, req, nil)
		if w.Code != 401 || w.Header().Get("Access-Control-Allow-Origin") != "https://app.example" || w.Header().Get("Vary") != "Origin" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	})
}

func TestCursor(t *testing.T) {
	c := cursor{newMark("a"), newMark("b"), newMark("c"), newMark("d")}
	c[0].move(bus.Position{Epoch: "E.1~/ ", Offset: 99})
	c[1].move(bus.Position{Epoch: "E.1~/ ", Offset: 1 << 63})
	c[3].move(bus.Position{Epoch: "other", Offset: 0})
	text := string(c.appendTo(nil))
	got, whole := parseCursor(text)
	if len(got) != 3 || !whole {
		t.Errorf("%s is read as %v, wholly: %t", text, got, whole)
	}
	for i, m := range c {
		if got[m.key] != m.Position {
			t.Errorf("channel %d: %v, want %v", i, got[m.key], m.Position)
		}
	}
	for _, text := range []string{strings.Repeat("x", maxCursor+1), "nonsense", "42", "4.2.E", "AAAAAAA.1", "AAAAAAA.?.E", "AAAAAAA.1.%"} {
		if got, whole := parseCursor(text); len(got) != 0 || whole {
			t.Errorf("%.20q is read as %v, wholly: %t", text, got, whole)
		}
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("AAAAAAA.1.epoch~BBBBBBB.zz~CCCCCCC.0.%2E")
	f.Add("~.~..~")
	f.Fuzz(func(t *testing.T, text string) {
		var c cursor
		places, _ := parseCursor(text)
		for key, p := range places {
			if strings.ContainsAny(key, ".~") {
				t.Fatalf("key %q", key)
			}
			m := mark{key: key}
			m.move(p)
			c = append(c, m)
		}
		back, _ := parseCursor(string(c.appendTo(nil)))
		for _, m := range c {
			if len(c) < 100 && back[m.key] != m.Position {
				t.Errorf("%q becomes %v, want %v", m.key, back[m.key], m.Position)
			}
		}
	})
}
