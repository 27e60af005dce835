package conn

import (
	"crypto/tls"
	"io"
	"net"

	"millrace/internal/wire/send"
)

// endWriting ends our direction, over TLS and below it, and leaves the other one open.
// Over TLS it waits up to five seconds for a client that does not read, unless the
// connection is cut meanwhile.
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

// socket returns the connection below TLS and other wrappers; nil for a stream of
// HTTP/2, which has none of its own.
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

// cutter is a stream of HTTP/2: its Close lets arrive what was written, its Cut does
// not.
type cutter interface{ Cut() error }

// cut ends a connection at once, whatever is being written: below TLS, whose own Close
// may wait for a client that does not read.
func cut(rw io.Closer) error {
	switch rw := rw.(type) {
	case interface{ NetConn() net.Conn }:
		return rw.NetConn().Close()
	case cutter:
		return rw.Cut()
	}
	return rw.Close()
}

// alertRoom is how many bytes may be on their way to a client when another record of
// TLS certainly fits: the smallest buffer that a socket has.
const alertRoom = 2 << 10

// takesMore reports whether the close_notify of TLS can be sent at once. Package tls
// would wait up to five seconds with it for a client that does not read.
func takesMore(rw io.Closer) bool {
	if _, ok := rw.(*tls.Conn); !ok {
		return true
	}
	n, known := send.Queued(socket(rw))
	return !known || n < alertRoom
}
