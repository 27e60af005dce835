package upstream

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

type readied struct{ c chan struct{} }

func (w readied) Ready() { w.c <- struct{}{} }

// TestBeginBesideHTTP2: a request that a loop has begun, and for which a server of HTTP/2
// was chosen, is made over HTTP/2.
func TestBeginBesideHTTP2(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) })
	one := httptest.NewServer(h)
	defer one.Close()
	two := httptest.NewUnstartedServer(h)
	two.Config.Protocols = new(http.Protocols)
	two.Config.Protocols.SetUnencryptedHTTP2(true)
	two.Start()
	defer two.Close()
	p, err := New(Options{To: []string{one.URL, "h2c" + two.URL[4:]}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	seen := map[string]int{}
	for range 6 {
		q := &Request{Method: "GET", Path: "/"}
		var x Exchange
		w := readied{make(chan struct{}, 1)}
		if !p.Begin(&x, 0, q, w) {
			t.Fatal("not begun")
		}
		a, err := p.Continue(context.Background(), q, &x, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(a.Body)
		a.Body.Close()
		seen[string(b)]++
	}
	if seen["HTTP/2.0"] == 0 || seen["HTTP/1.1"] == 0 {
		t.Error(seen)
	}
}
