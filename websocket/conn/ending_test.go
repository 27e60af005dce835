package conn

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
)

// wrapped is a connection that says what is below it, as a server's own is.
type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

// TestSocket finds the socket below TLS and a server's wrapper: what cannot be parked
// costs twice as much, and what cannot end its direction is reset.
func TestSocket(t *testing.T) {
	r := &rig{T: t}
	_, nc := r.pair()
	defer nc.Close()
	for name, rw := range map[string]io.Closer{
		"itself": nc, "wrapped": wrapped{nc}, "TLS": tls.Server(nc, nil), "TLS over wrapped": tls.Server(wrapped{nc}, nil),
	} {
		if got := socket(rw); got != nc {
			t.Errorf("%s: found %T", name, got)
		}
	}
	if got := socket(io.NopCloser(nil)); got != nil {
		t.Errorf("a stream comes down to %T", got)
	}
}
