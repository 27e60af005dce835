package channels

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"millrace/websocket/centrifuge"
)

// stalledReader is a client that has gone to sleep: it takes what it is sent first, and
// nothing more until it is woken.
type stalledReader struct {
	header http.Header
	woken  chan struct{}
	first  sync.Once

	mu   sync.Mutex
	text bytes.Buffer
}

func (w *stalledReader) Header() http.Header { return w.header }
func (w *stalledReader) WriteHeader(int)     {}
func (w *stalledReader) Flush()              {}

func (w *stalledReader) Write(b []byte) (int, error) {
	asleep := true
	w.first.Do(func() { asleep = false })
	if asleep {
		<-w.woken
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

// stalled opens a stream whose client sleeps behind the answer to connect.
func (r *rig) stalled(ctx context.Context) (*stalledReader, func(ctx context.Context, commands string) int) {
	r.t.Helper()
	reader := &stalledReader{header: http.Header{}, woken: make(chan struct{})}
	go func() { // ends with ctx, once it is woken
		req := request(r.t, http.MethodPost, "/connection/http_stream", `{"id":1,"connect":{}}`).WithContext(ctx)
		r.c.ServeSDK(reader, req, nil)
	}()
	synctest.Wait()
	var hello centrifuge.Reply
	if err := json.Unmarshal(reader.text.Bytes(), &hello); err != nil || hello.Connect == nil {
		r.t.Fatalf("%s: %v", reader.text.Bytes(), err)
	}
	return reader, func(ctx context.Context, commands string) int {
		body, err := json.Marshal(map[string]string{"session": hello.Connect.Session, "node": hello.Connect.Node, "data": commands})
		if err != nil {
			r.t.Fatal(err)
		}
		answer := httptest.NewRecorder()
		r.c.ServeSDK(answer, request(r.t, http.MethodPost, "/emulation", string(body)).WithContext(ctx), nil)
		return answer.Code
	}
}

// TestStalledStream: what waits for a client that does not read is bounded, whatever it
// says, and is in the meters.
func TestStalledStream(t *testing.T) {
	o := everybody()
	o.History.Messages = 10
	bubble(t, o, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		w, say := r.stalled(ctx)
		for range 10 {
			r.publish("news", quoted20k())
		}
		gone, leave := context.WithCancel(t.Context())
		leave() // who says something does not wait until it is heard
		say(gone, `{"id":2,"subscribe":{"channel":"news","recover":true,"epoch":"`+r.epoch()+`"}}`)
		synctest.Wait()
		if n := r.c.meters.QueuedBytes.Load(); n < 200_000 {
			t.Errorf("%d bytes are said to wait, of 10 publications", n)
		}
		const most = 2 * waitingEach / (40 << 10)
		refused := 0
		for range most {
			if say(gone, strings.Repeat(" ", 40<<10)) == http.StatusTooManyRequests {
				refused++
			}
		}
		if refused < most/3 {
			t.Errorf("%d of %d were refused", refused, most)
		}
		close(w.woken)
		synctest.Wait()
		if n, m := r.c.meters.QueuedBytes.Load(), r.c.meters.QueuedMessages.Load(); n != 0 || m != 0 {
			t.Errorf("%d bytes of %d messages wait for who reads", n, m)
		}
		if text, _ := io.ReadAll(&w.text); bytes.Count(text, []byte(`"offset":`)) < 10 {
			t.Errorf("not all came: %.200s", text)
		}
		cancel()
		synctest.Wait()
	})
}
