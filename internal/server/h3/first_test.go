package h3_test

import (
	"io"
	"strings"
	"testing"

	"github.com/quic-go/qpack"
	"github.com/quic-go/quic-go/quicvarint"

	"millrace/internal/server"
)

// answered sends a request as it is, and returns what comes: fields and body, or an
// error.
func (c *client) answered(t *testing.T, open bool, fields ...string) string {
	t.Helper()
	var block strings.Builder
	enc := qpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		_ = enc.WriteField(qpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	const headers, data = 1, 0
	frames := append(quicvarint.Append(quicvarint.Append(nil, headers), uint64(block.Len())), block.String()...)
	str, err := c.OpenStreamSync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = str.Write(frames) // the answer says whether it came
	if open {
		defer str.Close()
	} else {
		_ = str.Close()
	}
	var said []string
	for r := quicvarint.NewReader(str); ; {
		kind, err := quicvarint.Read(r)
		if err == io.EOF { //nolint:errorlint // as it is
			return strings.Join(said, " ")
		}
		if err != nil {
			return "reset"
		}
		n, err := quicvarint.Read(r)
		if err != nil {
			return "reset"
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return "reset"
		}
		if kind == data {
			said = append(said, string(b))
			continue
		}
		for next := qpack.NewDecoder().Decode(b); ; {
			f, err := next()
			if err != nil {
				break
			}
			if f.Name == ":status" || f.Name == "content-type" || f.Name == "x-content-type-options" {
				said = append(said, f.Value)
			}
		}
	}
}

// What net/url or quic-go cannot take is answered as over HTTP/1.1, and a scheme is that
// of the connection (RFC 9114, 4.3.1).
func TestFirstLook(t *testing.T) {
	r := start(t, server.Options{HeaderBytes: 8 << 10})
	const (
		text      = " text/plain; charset=utf-8 "
		ok        = "200" + text + "page"
		bad       = "400" + text + "nosniff The server does not understand this request. Check the address for mistakes.\n"
		elsewhere = "421" + text + "nosniff This connection is for https addresses.\n"
		none      = "400" + text + "nosniff This is not a request.\n"
		long      = "431 text/html; charset=utf-8 nosniff "
	)
	c := r.client(nil)
	for _, q := range []struct {
		method, scheme, path, want string
		more                       int
	}{
		{"GET", "https", "/", ok, 0},
		{"GET", "HTTPS", "/", ok, 0},
		{"GET", "https", "/%", bad, 0},
		{"POST", "https", "/a%2", bad, 0},
		{"GET", "https", "/%zz", bad, 0},
		{"GET", "https", "/?a=%", ok, 0},
		{"GET", "https", "page", bad, 0},
		{"GET", "https", "/\u007f", bad, 0},
		{"GET", "https", "https://localhost/", none, 0},
		{"GET", "https", "a:page", none, 0},
		{"OPTIONS", "https", "*", "200", 0},
		{"GET", "http", "/", elsewhere, 0},
		{"GET", "ftp", "/", none, 0},
		{"GET", "http", "/%", bad, 0},
		{"GET", "https", "", "reset", 0},
		{"GET", "https", "/", ok, 4 << 10},
		{"GET", "https", "/%", bad, 7 << 10},
		{"GET", "https", "/", long, 9 << 10},
		{"GET", "https", "/", long, 200 << 10},
	} {
		for _, open := range []bool{false, true} {
			if open && strings.HasPrefix(q.want, "200") {
				continue // its body is waited for
			}
			fields := []string{":method", q.method, ":scheme", q.scheme, ":authority", "localhost", ":path", q.path, "x-long", strings.Repeat("x", q.more)}
			got := c.answered(t, open, fields...)
			if q.want == long && strings.Contains(got, "<h1>Header too large</h1>") {
				got = got[:len(long)]
			}
			if got != q.want {
				t.Errorf("%s %s %q, %d bytes more, open %v: %q, want %q", q.method, q.scheme, q.path, q.more, open, got, q.want)
			}
		}
	}
	c.page(t)
}
