package lean

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"millrace/internal/wire/message"
)

// heads are requests of every kind, ours and others.
var heads = []string{
	"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"HEAD /a/b?c=d HTTP/1.1\r\nHost: a.example:80\r\nUser-Agent: x y\r\naccept: */*\r\n\r\n",
	"POST /%41?%zz HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
	"PUT /a!'()*? HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n",
	"DELETE //a/..//b HTTP/1.1\r\nHost: a\r\nX_y: \"\r\n\r\n",
	"PATCH /:a@b HTTP/1.1\r\nHost: a\r\nCache-Control: no-cache\r\nPragma: no-cache\r\n\r\n",
	"GET /s HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\r\n",
	"GET /s HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nPragma: no-cache\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 5\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket, x\r\nConnection: upgrade\r\n\r\n",
	"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: A\r\n\r\n",
	"GET / HTTP/1.0\r\nHost: a\r\n\r\n",
	"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
	"GET / HTTP/1.1\nHost: a\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nX:a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nX y: a\r\n\r\n",
	"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\n\r\n",
	"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n",
}

// TestNew: the requests that are ours, and those that are net/http's.
func TestNew(t *testing.T) {
	ours := 0
	for i, head := range heads {
		if got := New(head) != nil; got != (i < 8) {
			t.Errorf("%q is ours: %t", head, got)
		} else if got {
			ours++
			agree(t, head)
		}
	}
	if ours == 0 {
		t.Error("no request is ours")
	}
}

// agree compares a request of ours with what net/http makes of the same bytes.
func agree(t *testing.T, head string) {
	t.Helper()
	x := New(head)
	const behind = "behind"
	body := strings.Repeat("b", int(min(x.Length(), 1<<10)))
	br := bufio.NewReader(strings.NewReader(head + body + behind))
	want, err := http.ReadRequest(br)
	if err != nil {
		t.Fatalf("%q: net/http refuses it: %v", head, err)
	}
	x.Begin(context.Background(), "")()
	got := x.request
	if x.Length() <= 1<<10 {
		if n, err := io.Copy(io.Discard, want.Body); n != x.Length() || err != nil {
			t.Errorf("%q: the body has %d bytes for us, %d for net/http, %v", head, x.Length(), n, err)
		}
		if rest, _ := io.ReadAll(br); string(rest) != behind {
			t.Errorf("%q: net/http finds %q behind it", head, rest)
		}
	}
	if got.Method != want.Method || got.Proto != want.Proto || got.Host != want.Host || got.RequestURI != want.RequestURI ||
		got.ContentLength != want.ContentLength || got.Close != want.Close || len(want.TransferEncoding) > 0 || want.Trailer != nil {
		t.Errorf("%q is\n%+v, for net/http\n%+v", head, got, want)
	}
	if !reflect.DeepEqual(got.URL, want.URL) {
		t.Errorf("%q: the URL is %#v, for net/http %#v", head, got.URL, want.URL)
	}
	if !reflect.DeepEqual(got.Header, want.Header) {
		t.Errorf("%q: the header is %q, for net/http %q", head, got.Header, want.Header)
	}
}

// FuzzNew: whatever we take, net/http takes for the same request with the same
// end.
func FuzzNew(f *testing.F) {
	for _, head := range heads {
		f.Add([]byte(head))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, v := message.End(b)
		if v != message.Whole {
			return
		}
		if head := string(b[:n]); New(head) != nil {
			agree(t, head)
		}
	})
}
