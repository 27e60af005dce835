package h3_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/quic-go/quic-go/quicvarint"

	"millrace/internal/server"
)

// line is a field as a literal of QPACK (RFC 9204, 4.5.6). Neither part is longer than
// 127 bytes.
func line(name, value string) []byte {
	const literal, most = 0x20, 7
	b := []byte{literal | byte(min(len(name), most))}
	if len(name) >= most {
		b = append(b, byte(len(name)-most))
	}
	b = append(b, name...)
	return append(append(b, byte(len(value))), value...)
}

// raw sends a request as it is, and returns the answer's status: 0 for none, -1
// for one that is not known here.
func (c *client) raw(t *testing.T, body string, fields ...string) int {
	t.Helper()
	block := []byte{0, 0} // no dynamic table
	for i := 0; i < len(fields); i += 2 {
		block = append(block, line(fields[i], fields[i+1])...)
	}
	const headers, data = 1, 0
	frames := append(quicvarint.Append(quicvarint.Append(nil, headers), uint64(len(block))), block...)
	if body != "" {
		frames = append(quicvarint.Append(quicvarint.Append(frames, data), uint64(len(body))), body...)
	}
	str, err := c.OpenStreamSync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = str.Write(frames) // the answer says whether it came
	_ = str.Close()
	answer, _ := io.ReadAll(str)
	_, n, err := quicvarint.Parse(answer[min(1, len(answer)):])
	if err != nil {
		return 0
	}
	switch block = answer[1+n+2:]; { // RFC 9204, appendix A
	case block[0] == 0xd9:
		return http.StatusOK
	case block[0] == 0xff && block[1] == 4:
		return http.StatusBadRequest
	}
	return -1
}

// A Content-Length that is not the body's is never taken for a whole request (RFC 9114,
// 4.1.2), also where nobody reads the body.
func TestLengths(t *testing.T) {
	r := start(t, server.Options{})
	c := r.client(nil)
	for _, q := range []struct {
		method, length, body string
		ok                   bool
	}{
		{"GET", "", "", true},
		{"GET", "0", "", true},
		{"GET", "5", "", false},
		{"HEAD", "5", "", false},
		{"DELETE", "5", "", false},
		{"DELETE", "3", "abc", true},
	} {
		fields := []string{":method", q.method, ":scheme", "https", ":authority", "localhost", ":path", "/"}
		if q.length != "" {
			fields = append(fields, "content-length", q.length)
		}
		if status := c.raw(t, q.body, fields...); (status == 200) != q.ok {
			t.Errorf("%s with a length %q and the body %q: %d", q.method, q.length, q.body, status)
		}
	}
}
