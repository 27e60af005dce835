package faulty_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/internal/upstream/faulty"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, scripts ...faulty.Script) *faulty.Server {
	s, err := faulty.Start(scripts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// ask makes a request on a connection of its own.
func ask(t *testing.T, s *faulty.Server) (string, error) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	r, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL, nil)
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// TestScripts: the first connections play their own scripts, the rest the last.
func TestScripts(t *testing.T) {
	s := serve(t, faulty.Good("one"), faulty.Good("two"))
	for _, want := range []string{"one", "two", "two"} {
		if got, err := ask(t, s); got != want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	s.Set(faulty.Good("three"))
	if got, err := ask(t, s); got != "three" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if s.Requests() != 4 || s.Connections() != 4 {
		t.Errorf("%d requests on %d connections", s.Requests(), s.Connections())
	}
}

// TestForward: a real server behind it, until the limit is reached.
func TestForward(t *testing.T) {
	back := serve(t, faulty.Good(strings.Repeat("x", 1000)))
	whole := serve(t, faulty.Script{faulty.Forward("tcp", back.Addr, 0)})
	if got, err := ask(t, whole); len(got) != 1000 || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	cut := serve(t, faulty.Script{faulty.Forward("tcp", back.Addr, 500)})
	if got, err := ask(t, cut); len(got) >= 1000 || err == nil {
		t.Errorf("%d bytes, %v; want it cut", len(got), err)
	}
}

// TestReset: it is an RST, not an end.
func TestReset(t *testing.T) {
	s := serve(t, faulty.Script{faulty.Request(), faulty.Reset()})
	c, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("error %v", err)
	}
}

// TestClose: no script outlives the server, whatever it is doing.
func TestClose(t *testing.T) {
	s := serve(t, faulty.Script{faulty.Hang()}, faulty.Script{faulty.Unresponsive()}, faulty.Script{faulty.Pause(time.Hour)},
		faulty.Script{faulty.Trickle("ab", time.Hour)}, faulty.Script{faulty.Flood("x", faulty.EndlessHeader)})
	for range 5 {
		c, err := net.Dial("tcp", s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	s.Close()
	s.Close()
}

// TestScenarios: each has a name of its own.
func TestScenarios(t *testing.T) {
	names := map[string]bool{}
	for _, s := range faulty.Scenarios() {
		if names[s.Name] || s.Name == "" {
			t.Errorf("the name %q is used twice", s.Name)
		}
		names[s.Name] = true
		if got := faulty.Named(s.Name); got.Effect != s.Effect {
			t.Errorf("%s: another one", s.Name)
		}
	}
}
