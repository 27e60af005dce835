package lane

import (
	"io"
	"net/http"
	"testing"

	"millrace/internal/wire/lean"
)

// A connection that net/http has given back is the loop's, also where net/http's server closes
// it once more.
func TestSessionIsClosedTwice(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	b.lane.Through(t.Context(), &lean.Server{Handler: http.NotFoundHandler()})
	server, client := socketPair(t)
	taken := make(chan *session, 1)
	take := func(c *Conn) {
		if c.Serve() {
			taken <- &session{Conn: c}
		}
	}
	if !b.lane.Adopt(server, b.scope, func() {}, take) {
		t.Skip("there are no loops")
	}
	ask := func(request, answer string) {
		t.Helper()
		if _, err := io.WriteString(client, request); err != nil {
			t.Fatal(err)
		}
		if got := make([]byte, len(answer)); answer != "" {
			if _, err := io.ReadFull(client, got); err != nil || string(got) != answer {
				t.Fatalf("%q, %v", got, err)
			}
		}
	}
	head := "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	ask(head+"0\r\n\r\n", "")
	s, buf := <-taken, make([]byte, 4096)
	if _, err := s.Read(buf); err != nil {
		t.Fatal(err)
	}
	OnState(s, http.StateActive)
	if _, err := io.WriteString(s, "HTTP/1.1 204 No Content\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	OnState(s, http.StateIdle)
	if _, err := s.Read(buf); err != io.EOF { //nolint:errorlint // net/http compares it so
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	ask(hotRequest, "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n")
}
