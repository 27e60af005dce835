package client

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestClient(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		case "/slow":
			io.WriteString(w, "one, ")
			w.(http.Flusher).Flush()
			time.Sleep(50 * time.Millisecond)
			io.WriteString(w, "two")
		case "/short":
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "short")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		default:
			b, _ := io.ReadAll(r.Body)
			io.WriteString(w, r.Method+" "+r.URL.String()+" "+r.Host+" "+string(b))
		}
	}))
	defer server.Close()
	address := server.Listener.Addr().String()
	c, err := Dial(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if a, err := c.Get("/a?b=c"); err != nil || a.Status != 200 || string(a.Body) != "GET /a?b=c "+address+" " || a.First > a.Took {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := c.Get("/empty"); err != nil || a.Status != 204 || len(a.Body) != 0 {
		t.Errorf("empty: %+v, %v", a, err)
	}
	if a, err := c.Get("/slow"); err != nil || string(a.Body) != "one, two" || a.Took-a.First < 20*time.Millisecond {
		t.Errorf("in two pieces: %+v, %v", a, err)
	}
	if a, err := c.Do("POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"); err != nil || string(a.Body) != "POST /p h hi" {
		t.Errorf("POST: %+v, %v", a, err)
	}
	if a, err := c.Get("/short"); err == nil || string(a.Body) != "short" {
		t.Errorf("cut off: %+v, %v", a, err)
	}
	if _, err := c.Get("/a"); err == nil {
		t.Error("an answer over a connection that is closed")
	}
}
