package conn

import (
	"io"
	"net"
)

// endWriting says that nothing more comes from us, over TLS and below it, and
// leaves the other direction open.
func endWriting(rw io.Closer) {
	half, ok := rw.(interface{ CloseWrite() error })
	if !ok {
		_ = rw.Close() // a stream of HTTP/2, where no data is lost by that
		return
	}
	_ = half.CloseWrite()
	if t, ok := rw.(interface{ NetConn() net.Conn }); ok {
		if below, ok := t.NetConn().(interface{ CloseWrite() error }); ok {
			_ = below.CloseWrite()
		}
	}
}
