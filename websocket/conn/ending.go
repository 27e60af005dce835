package conn

import (
	"crypto/tls"
	"io"
	"net"

	"millrace/internal/send"
)

// endWriting says that nothing more comes from us, over TLS and below it, and
// leaves the other direction open. Over TLS it waits up to five seconds for a
// client that does not read, unless the connection is cut meanwhile.
func endWriting(rw io.Closer) {
	half, ok := rw.(interface{ CloseWrite() error })
	if !ok {
		_ = rw.Close() // a stream of HTTP/2, where no data is lost by that
		return
	}
	_ = half.CloseWrite()
	if below, ok := socket(rw).(interface{ CloseWrite() error }); ok && below != half {
		_ = below.CloseWrite()
	}
}

// socket is what a connection comes down to, below TLS and whatever else says
// what is below it; nil for a stream of HTTP/2, which is not a connection.
func socket(rw io.Closer) net.Conn {
	nc, _ := rw.(net.Conn)
	for {
		t, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return nc
		}
		nc = t.NetConn()
	}
}

// cutter is a stream of HTTP/2, of which Close lets arrive what was written.
type cutter interface{ Cut() error }

// cut ends a connection at once: below TLS, whose own Close may wait for a
// client that does not read, and without regard to what is being written.
func cut(rw io.Closer) error {
	switch rw := rw.(type) {
	case interface{ NetConn() net.Conn }:
		return rw.NetConn().Close()
	case cutter:
		return rw.Cut()
	}
	return rw.Close()
}

// alertRoom is how many bytes may be on their way to a client for another
// record of TLS to be taken for certain: the least that a socket's buffer has.
const alertRoom = 2 << 10

// takesMore reports whether the farewell of TLS, for which package tls would
// wait up to five seconds if the client does not read, can be sent at once.
func takesMore(rw io.Closer) bool {
	if _, ok := rw.(*tls.Conn); !ok {
		return true
	}
	n, known := send.Queued(socket(rw))
	return !known || n < alertRoom
}
