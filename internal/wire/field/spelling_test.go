package field

import (
	"net/http"
	"testing"
)

func TestSpelling(t *testing.T) {
	for _, name := range []string{
		"Sec-WebSocket-Key", "Sec-WebSocket-Version", "Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions", "Sec-WebSocket-Accept",
		"TE", "DNT", "Sec-GPC", "Content-MD5", "HTTP2-Settings", "MIME-Version", "SOAPAction",
		"Accept", "Cookie", "Sec-Fetch-Site", "Sec-Websocket", "X-Te", "T", "",
	} {
		if got := Spelling(http.CanonicalHeaderKey(name)); got != name {
			t.Errorf("%q is spelled %q", name, got)
		}
	}
	if n := testing.AllocsPerRun(10, func() { Spelling("Sec-Websocket-Key") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
