package cli

import (
	"bytes"
	"io"
	"log"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestConsole: messages come in order, what there is no room for is counted, and
// nobody waits.
func TestConsole(t *testing.T) {
	r, w := io.Pipe()
	c := NewBufferedStderr(w)
	s := Streams{Err: c}
	s.Print("first\n") // is taken at once, and waits for its reader
	long := strings.Repeat("x", maxUnread/2) + "\n"
	for range 5 {
		s.Print("%s", long)
	}
	text := make(chan string)
	go func() {
		b, _ := io.ReadAll(r)
		text <- string(b)
	}()
	c.Close()
	w.Close()
	got := <-text
	if !strings.HasPrefix(got, "first\n"+long) {
		t.Errorf("begins with %.20q", got)
	}
	if !strings.Contains(got, "nobody read the standard error") || !strings.Contains(got, "messages lost\n") {
		t.Errorf("nothing is said of what was lost; it ends with %q", got[max(0, len(got)-100):])
	}
}

func TestForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1234567 * time.Nanosecond: "1.23ms", 1500 * time.Millisecond: "1.5s", 5 * time.Minute: "5m", 2 * time.Hour: "2h",
		10 * time.Minute: "10m", time.Hour + time.Second: "1h0m1s", 90*time.Minute + 400*time.Millisecond: "1h30m", 70 * time.Second: "1m10s",
	} {
		if got := Brief(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1 kB", 1234: "1.23 kB", 999_499: "999 kB", 999_999: "1 MB", 5_500_000_000: "5.5 GB"} {
		if got := Amount(n); got != want {
			t.Errorf("%d bytes are %q, want %q", n, got, want)
		}
	}
}

// TestBar: elsewhere than on a terminal there is no bar to wipe, and a short
// list says nothing at all.
func TestBar(t *testing.T) {
	var out bytes.Buffer
	b := NewBar(Streams{Err: &out}, 10, time.Now())
	for i := range 10 {
		b.Step(i, 0)
	}
	b.Print("x: %d", 1)
	b.End()
	if out.String() != "x: 1\n" {
		t.Errorf("it said %q", out.String())
	}
	out.Reset()
	b.last = b.last.Add(-time.Minute)
	b.began = b.last
	b.Step(5, 2)
	if got := out.String(); !strings.HasPrefix(got, "5 of 10, ") || !strings.HasSuffix(got, ", 2 failed\n") {
		t.Errorf("it said %q", got)
	}
	out.Reset()
	b.draw, b.last = true, b.began
	b.Step(10, 0)
	b.End()
	if got := out.String(); !strings.Contains(got, "["+strings.Repeat("#", barWidth)+"] 10 of 10") || !strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("it drew %q", got)
	}
}

// TestStandardLog: what net/http says of an upstream has none of its bytes.
func TestStandardLog(t *testing.T) {
	var b strings.Builder
	l := log.New(StandardLog{slog.New(slog.NewJSONHandler(&b, nil))}, "", 0)
	l.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "HTTP/1.1 200 OK\r\nSet-Cookie: a=s3cret\r\n", nil)
	l.Print("asked for /?token=s3cret")
	if got := b.String(); strings.Contains(got, "s3cret") || strings.Count(got, "\n") != 2 ||
		!strings.Contains(got, `"level":"WARN","msg":"Unsolicited response received on idle HTTP channel"`) {
		t.Errorf("logged: %s", got)
	}
}
