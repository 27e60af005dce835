package client

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// await waits for a condition.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within a minute:", what)
		}
	}
}

func begin(t *testing.T, c AbuseConfig) *Attack {
	t.Helper()
	c.Piece, c.Again = 10, 10*time.Millisecond
	if c.Every == 0 {
		c.Every = 5 * time.Millisecond
	}
	s, err := BeginAttack(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop() })
	return s
}

// TestUploads: every upload is taken in and none ends, whether it is a connection
// or a stream of one.
func TestUploads(t *testing.T) {
	var begun, read atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.ContentLength != 8192 || r.URL.Path != "/x" {
			t.Errorf("%s %s, %d bytes", r.Method, r.URL, r.ContentLength)
		}
		begun.Add(1)
		for p := make([]byte, 100); ; {
			n, err := r.Body.Read(p)
			read.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	plain := httptest.NewServer(s.Config.Handler)
	defer plain.Close()
	for _, c := range []AbuseConfig{
		{Kind: Uploads, URL: plain.URL + "/x", Connections: 20, Length: 8192},
		{Kind: Streams, URL: s.URL + "/x", Connections: 2, Streams: 10, Length: 8192},
	} {
		begun.Store(0)
		read.Store(0)
		siege := begin(t, c)
		await(t, "all are held and send", func() bool {
			return siege.Counts().Held == 20 && begun.Load() == 20 && read.Load() > 400
		})
		if c := siege.Stop(); c.Ended != 0 || c.Refused != 0 {
			t.Errorf("%+v", c)
		}
		if c := siege.Counts(); c.Held != 0 {
			t.Errorf("after its end: %+v", c)
		}
	}
}

// TestReaders: answers are asked for and hardly read.
func TestReaders(t *testing.T) {
	var waiting, written atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		waiting.Add(1)
		defer waiting.Add(-1)
		for p := bytes.Repeat([]byte("x"), 1<<10); ; {
			n, err := w.Write(p)
			if err != nil {
				return
			}
			written.Add(int64(n))
		}
	}))
	defer s.Close()
	siege := begin(t, AbuseConfig{Kind: Readers, URL: s.URL, Connections: 5, Every: time.Hour})
	await(t, "all wait", func() bool { return siege.Counts().Held == 5 && waiting.Load() == 5 })
	for last := int64(-1); last != written.Load(); time.Sleep(50 * time.Millisecond) { // until nothing more is taken
		last = written.Load()
	}
	if c := siege.Stop(); c.Ended != 0 {
		t.Errorf("%+v", c)
	}
}

// TestCut: what the server ends is counted and opened again.
func TestCut(t *testing.T) {
	// net/http answers a shorter upload when all of it is there.
	var asked atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusRequestTimeout)
		_, _ = io.WriteString(w, "too slow")
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	plain := httptest.NewServer(s.Config.Handler)
	defer plain.Close()
	for _, c := range []AbuseConfig{
		{Kind: Uploads, URL: plain.URL, Connections: 2, Length: 1 << 20},
		{Kind: Streams, URL: s.URL, Connections: 1, Streams: 2, Length: 1 << 20},
	} {
		asked.Store(0)
		siege := begin(t, c)
		await(t, "they come again", func() bool { return siege.Counts().Ended >= 6 && asked.Load() >= 6 })
		siege.Stop()
	}
}

// Servers of others, and attacks without bounds, are refused.
func TestCheck(t *testing.T) {
	good := AbuseConfig{URL: "http://127.0.0.1:1/", Connections: 1, Piece: 1, Every: 1, Again: 1}
	if _, err := good.check(); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*AbuseConfig){
		func(c *AbuseConfig) { c.URL = "http://192.0.2.1:80/" },
		func(c *AbuseConfig) { c.URL = "http://localhost/" },
		func(c *AbuseConfig) { c.URL = "http://\x00" },
		func(c *AbuseConfig) { c.URL = "https://127.0.0.1:1/" },
		func(c *AbuseConfig) { c.Kind = Streams },
		func(c *AbuseConfig) { c.Kind, c.URL = Streams, "https://127.0.0.1:1/" },
		func(c *AbuseConfig) { c.Connections = maxConnections + 1 },
		func(c *AbuseConfig) { c.Piece = 0 },
		func(c *AbuseConfig) { c.Every = 0 },
	} {
		c := good
		change(&c)
		if s, err := BeginAttack(c); err == nil {
			s.Stop()
			t.Errorf("%+v is taken", c)
		}
	}
}

// A server that lets nobody in is counted.
func TestAbuseRefused(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	siege := begin(t, AbuseConfig{Kind: Uploads, URL: s.URL, Connections: 1, Length: 1})
	await(t, "refused", func() bool { return siege.Counts().Refused > 1 })
}
