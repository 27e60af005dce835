package websocket

import (
	"crypto/sha1" // RFC 6455, 1.3
	"encoding/base64"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// hub is the least server that sends what is posted to all: it reads nothing but
// the first message of each, and leaves out every nth delivery.
type hub struct {
	nth int

	mu    sync.Mutex
	conns []net.Conn
	sent  int
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/publish" {
		data, err := io.ReadAll(r.Body)
		if err != nil || len(data) > 125 {
			http.Error(w, "too long", http.StatusBadRequest)
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, c := range h.conns {
			if h.sent++; h.nth == 0 || h.sent%h.nth != 0 {
				_, _ = c.Write(append([]byte{0x81, byte(len(data))}, data...))
			}
		}
		return
	}
	conn, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	_, _ = both.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
		base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n")
	_ = both.Flush()
	h.mu.Lock()
	h.conns = append(h.conns, conn)
	h.mu.Unlock()
}

func start(t *testing.T, nth int) trial.TaskSlot {
	t.Helper()
	h := &hub{nth: nth}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Cleanup(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, c := range h.conns {
			_ = c.Close()
		}
	})
	target, err := record.Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = target.Close() })
	at := "ws" + server.URL[len("http"):] + "/ws"
	return trial.TaskSlot{
		Arm: "hub", URL: at, Target: target, Random: rand.New(rand.NewPCG(1, 2)), Window: func(bool) {},
		Instance: &trial.Instance{URL: map[string]string{"": at, "publish": server.URL + "/publish"}},
	}
}

// Everything is counted once for everybody, and what is missing is seen.
func TestPublish(t *testing.T) {
	const n, count = 20, 5
	w := experiment.Workload{Protocol: "websocket", Connections: n, Count: count, Every: time.Millisecond}
	got, err := publish(t.Context(), start(t, 0), w)
	if err != nil || got.Done != n*count || got.Failed != 0 || got.Values["lag_p99_ns"] <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
	// Of 7 publications to 20 each, deliveries 60 and 120 are left out.
	got, err = publish(t.Context(), start(t, 3*n), w)
	if err != nil || got.Failed != 2 || got.Done != n*count-2 {
		t.Errorf("with losses: %+v, %v", got, err)
	}
}

func TestParse(t *testing.T) {
	if n, due, ok := parse([]byte(`{"channel":"bench","data":"mrb@7@1500@xxx"}`)); !ok || n != 7 || due != 1500 {
		t.Errorf("%d, %v, %v", n, due, ok)
	}
	for _, wrong := range []string{"", "mrb@", "mrb@x@1@", "mrb@1@2"} {
		if _, _, ok := parse([]byte(wrong)); ok {
			t.Errorf("%q is taken for a publication", wrong)
		}
	}
}
