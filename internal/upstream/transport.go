package upstream

import (
	"context"
	"net"
	"net/http"
	"time"
)

const (
	// continueTimeout is how long a server that was sent Expect: 100-continue
	// may take before it gets the body unasked: older ones never ask.
	continueTimeout = time.Second
	// pingAfter is after how much silence an HTTP/2 connection with requests
	// under way is asked whether it is alive, and pingTimeout how long the answer may
	// take. Without it a dead connection swallows one request after the other.
	pingAfter   = 10 * time.Second
	pingTimeout = 5 * time.Second
)

// newTransport makes net/http's client for one address. unasked is called when the
// server sent bytes without a request.
func newTransport(way *connector, o Options, unasked func()) *http.Transport {
	protocols, speaks := new(http.Protocols), unknownHTTP
	switch way.scheme {
	case "https":
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
	case "h2c":
		protocols.SetUnencryptedHTTP2(true)
		speaks = speaksHTTP2
	default:
		protocols.SetHTTP1(true)
		speaks = speaksHTTP1
	}
	return &http.Transport{
		// The operator has named the server. A variable of the environment such
		// as HTTP_PROXY, which CGI programs even let clients set ("httpoxy",
		// CVE-2016-5385), must not send its requests elsewhere.
		Proxy: nil,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := way.connect(ctx, network, addr, nil) // there is no PROXY header before HTTP/2
			if err != nil {
				return nil, err
			}
			return newConn(nc, speaks, unasked), nil
		},
		TLSClientConfig:       way.tls.Clone(),
		TLSHandshakeTimeout:   o.ConnectTimeout,
		ForceAttemptHTTP2:     way.scheme == "https",
		Protocols:             protocols,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		DisableCompression:    true, // the client's Accept-Encoding is what counts
		MaxIdleConnsPerHost:   o.IdleConnections,
		IdleConnTimeout:       o.IdleTimeout,
		ResponseHeaderTimeout: o.HeaderTimeout,
		ExpectContinueTimeout: continueTimeout,
		// Also bounds all interim responses together where nobody looks at them.
		MaxResponseHeaderBytes: int64(o.HeaderBytes),
	}
}
