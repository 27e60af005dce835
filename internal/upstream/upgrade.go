package upstream

import (
	"net"
	"net/http"
)

// Tunnel is a connection to a server that has switched protocols. It holds one of the server's Streams until Close, which also closes the connection.
// It costs next to nothing besides the connection: nothing of net/http is kept.
type Tunnel struct {
	net.Conn        // a *net.TCPConn or *net.UnixConn, or *tls.Conn; nothing was wrapped around it
	Early    []byte // what the server sent behind its answer's header
}

// Upgrade sends r, which must have the fields Connection and Upgrade and no body, to one of the servers over HTTP/1.1 and a connection of its
// own, and returns its answer. If that has status 101, the Tunnel is the connection, and the caller's; the answer's body is then empty. Else it is nil, and the
// body is the answer's, and must be closed. Balancing, health, the breaker and retries (as long as no byte was sent, or none has come of an answer) are those of RoundTrip.
func (p *Pool) Upgrade(r *http.Request) (*http.Response, *Tunnel, error) { panic("not built") }
