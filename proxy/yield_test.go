package proxy

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/internal/upstream"
	"millrace/internal/upstream/spool"
)

// TestSlowReadersHoldNoPlace: who reads a long answer slowly keeps nobody from the
// upstream, even where there is no space to take the answer in.
func TestSlowReadersHoldNoPlace(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 16<<20)
	back := servertest.Serve(t, "h2c", http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/long" {
			_, _ = w.Write(long)
			return
		}
		_, _ = io.WriteString(w, "short")
	}), func(s *httptest.Server) { s.Config.Protocols.SetHTTP1(true) })
	for _, scheme := range []string{"http", "h2c"} {
		t.Run(scheme, func(t *testing.T) {
			servertest.OverProtocols(t, func(t *testing.T, protocol string) {
				to := strings.Replace(back.URL, "http", scheme, 1)
				pool, err := upstream.New(upstream.Options{To: []string{to}, Concurrency: 1, QueueTimeout: 20 * time.Second}, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { pool.Close() })
				r := rigTo(t, protocol, Options{Options: upstream.Options{To: []string{back.URL}}, Buffer: Buffer{Answer: 64 << 10, File: 64 << 10}})
				r.way = pool
				besideSlowReaders(t, r, pool, long)
			})
		})
	}
}

func besideSlowReaders(t *testing.T, r *rig, pool *upstream.Pool, long []byte) {
	t.Helper()
	slow := make([]*http.Response, 3)
	for i := range slow {
		res, err := r.client.Get(r.front.URL + "/long")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		slow[i] = res
	}
	if res, body := r.get("/short"); res.StatusCode != http.StatusOK || body != "short" {
		t.Errorf("beside slow readers: %d %q", res.StatusCode, body)
	}
	if err := slow[0].Body.Close(); err != nil { // one gives up, the others read on
		t.Error(err)
	}
	for i, res := range slow[1:] {
		if got, err := io.ReadAll(res.Body); err != nil || !bytes.Equal(got, long) {
			t.Errorf("slow reader %d got %d bytes (%v)", i, len(got), err)
		}
	}
	held := func() bool {
		s := pool.Servers()[0]
		return s.Running != 0 || s.Streams != 0
	}
	for deadline := time.Now().Add(10 * time.Second); held() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if held() {
		t.Errorf("places and streams are held at the end: %+v", pool.Servers())
	}
}

// stuck is a ResponseWriter whose client takes nothing, not even the header.
type stuck struct {
	*httptest.ResponseRecorder
	release <-chan struct{}
}

func (s *stuck) FlushError() error { <-s.release; return nil }

// TestStuckReadersHoldNoPlace: nor does who does not take the header of an answer, whose
// body comes later.
func TestStuckReadersHoldNoPlace(t *testing.T) {
	begun, rest := make(chan struct{}), make(chan struct{})
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		_ = http.NewResponseController(w).Flush() // the other end sees what is missing
		close(begun)
		<-rest
		_, _ = io.WriteString(w, "short")
	}))
	t.Cleanup(back.Close)
	o := upstream.Options{To: []string{back.URL}}
	pool, err := upstream.New(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	h, err := New(Options{Options: o}, pool, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	w := &stuck{httptest.NewRecorder(), release}
	served := make(chan struct{})
	go func() {
		defer close(served)
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	}()
	<-begun
	time.Sleep(10 * time.Millisecond) // the header comes by itself
	close(rest)
	running := func() int { return pool.Servers()[0].Running }
	servertest.Eventually(t, "a client that takes nothing has no place", func() bool { return running() == 0 })
	close(release)
	if <-served; w.Body.String() != "short" {
		t.Errorf("%q", w.Body)
	}
}

// TestStuckReadersCount: what a client who takes nothing holds counts for the room, to
// the last piece.
func TestStuckReadersCount(t *testing.T) {
	const pieces, piece = 4, 32 << 10
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, pieces*piece)) }))
	t.Cleanup(back.Close)
	room := spool.NewRoom(spool.Options{}, slog.New(slog.DiscardHandler))
	h, err := New(Options{}, failing(nil), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	h.Share(room)
	r, w := io.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		h.sendTo(w, back.URL)
	}()
	used := func() int64 { n, _ := room.Used(); return n }
	servertest.Eventually(t, "all bytes that are held count", func() bool { return used() == pieces*piece })
	if n, err := io.Copy(io.Discard, r); n != pieces*piece || err != nil {
		t.Error(n, err)
	}
	if <-served; used() != 0 {
		t.Errorf("%d bytes count at the end", used())
	}
}

// sendTo has the answer of a URL sent to w.
func (h *Handler) sendTo(w *io.PipeWriter, url string) {
	defer w.Close()
	res, err := http.Get(url) //nolint:noctx // in a test
	if err == nil {
		_, _, _ = h.SendBody(piped{httptest.NewRecorder(), w}, upstream.AnswerOf(res))
		res.Body.Close()
	}
}

// piped is a ResponseWriter whose client is the other end of a pipe.
type piped struct {
	http.ResponseWriter
	to *io.PipeWriter
}

func (p piped) Write(b []byte) (int, error) { return p.to.Write(b) }
