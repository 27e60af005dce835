package fastcgi

import (
	"io"
	"net"
	"testing"
	"time"
)

// ended is a connection on which nothing comes any more.
type ended struct{ net.Conn }

func (ended) Read([]byte) (int, error)         { return 0, io.EOF }
func (ended) SetDeadline(time.Time) error      { return nil }
func (ended) SetReadDeadline(time.Time) error  { return nil }
func (ended) SetWriteDeadline(time.Time) error { return nil }
func (ended) Close() error                     { return nil }

// What Scan takes for a whole answer is what is read by an Answer, byte for byte.
func FuzzScan(f *testing.F) {
	good := appendStream(nil, kindStdout, []byte("Content-Type: a/b\r\n\r\nhello"))
	good = append(appendHeader(good, kindEnd, 8), 0, 0, 0, 0, 0, 0, 0, 0)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(append(appendStream(nil, kindStderr, []byte("oh")), good...))
	f.Add([]byte{1, kindStdout, 0, 1, 0, 1, 2, 0, 'x', 0, 0, 1, kindEnd, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		out, state := Scan(nil, raw)
		if len(out) > len(raw) {
			t.Fatalf("%d bytes of %d", len(out), len(raw))
		}
		if state != Done {
			return
		}
		c := New(Options{Stderr: func(line string) { t.Errorf("a complaint: %q", line) }})
		a, err := c.Resume(t.Context(), ended{}, raw)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(a)
		if err != nil || string(got) != string(out) {
			t.Errorf("%q, %v; scanned %q", got, err, out)
		}
		_ = a.Close()
	})
}
