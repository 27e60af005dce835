package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"millrace/internal/lane"
	"millrace/internal/wire/h2"
)

// Settings of HTTP/2.
const (
	maxReadFrame = 16 << 10 // the least that clients must be allowed to send
	// headerSlack is what net/http allows beyond MaxHeaderBytes.
	headerSlack = 10 * 32
)

// newH2 returns net/http's server for HTTP/2. Behind a lane it has no timeouts: the lane
// has its own.
func newH2(h http.Handler, o Options, l *log.Logger, behindLane bool) *http.Server {
	srv := &http.Server{
		Handler:        h,
		MaxHeaderBytes: int(o.HeaderBytes),
		ErrorLog:       l,
		Protocols:      new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxReadFrameSize: maxReadFrame,
			SendPingTimeout:  o.IdleTimeout / 2,
			PingTimeout:      o.WriteTimeout,
		},
	}
	if !behindLane {
		srv.ReadHeaderTimeout, srv.IdleTimeout = o.HeaderTimeout, o.IdleTimeout
		srv.HTTP2.WriteByteTimeout = o.WriteTimeout
		// The encoder gets no dynamic table: when a client changes the table's size, Go
		// 1.26 changes it while a header is being encoded, and the process ends
		// (concurrent map access). Behind a lane net/http does not see such changes.
		srv.HTTP2.MaxEncoderHeaderTableSize = 1
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	return srv
}

// innerHTTP2 runs net/http's HTTP/2 on connections whose preface was read already.
type innerHTTP2 struct {
	srv *http.Server
	run func(*http.Server, *tls.Conn, http.Handler)
}

// unencrypted is the key of TLSNextProto under which net/http accepts such connections.
// It is not documented; newInnerHTTP2 returns an error where it is missing.
const unencrypted = "unencrypted_http2"

// newInnerHTTP2 sets up HTTP/2 for a server.
func newInnerHTTP2(srv *http.Server) (*innerHTTP2, error) {
	nobody := newHandoff()
	_ = nobody.Close()
	if err := srv.Serve(nobody); !errors.Is(err, net.ErrClosed) { // Serve sets up HTTP/2
		return nil, fmt.Errorf("start HTTP/2: %w", err)
	}
	in := &innerHTTP2{srv, srv.TLSNextProto[unencrypted]}
	if in.run == nil {
		return nil, errors.New("start HTTP/2: this version of net/http does not take connections whose preface was read")
	}
	return in, nil
}

// prefaceTimeout is how long net/http itself waits for a connection's preface.
const prefaceTimeout = 10 * time.Second

// screen puts an [h2.Screen] between HTTP/2 clients and net/http, where there is no lane.
func screen(srv *http.Server) error {
	in, err := newInnerHTTP2(srv)
	if err != nil {
		return err
	}
	srv.TLSNextProto["h2"] = func(_ *http.Server, nc *tls.Conn, h http.Handler) {
		_ = nc.SetReadDeadline(time.Now().Add(prefaceTimeout)) // never fails on an open connection
		if h2.ReadPreface(nc) != nil {
			_ = nc.Close() // it is not HTTP/2, so there is no GOAWAY
			return
		}
		_ = nc.SetReadDeadline(time.Time{})
		in.run(srv, tls.Client(unwrapped{&screenedConn{h2.NewScreen(nc, srv.MaxHeaderBytes+headerSlack), nc}}, nil), h)
	}
	return nil
}

// screenedConn is a screened connection with the state of its TLS.
type screenedConn struct {
	*h2.Screen
	tls *tls.Conn
}

// ConnectionState fills [http.Request.TLS].
func (s *screenedConn) ConnectionState() tls.ConnectionState { return s.tls.ConnectionState() }

// newLaneHTTP2 returns net/http's part behind the lane.
func newLaneHTTP2(srv *http.Server) (*lane.HTTP2, error) {
	in, err := newInnerHTTP2(srv)
	if err != nil {
		return nil, err
	}
	settings, err := in.settings()
	if err != nil {
		return nil, err
	}
	return &lane.HTTP2{Settings: settings, HeaderList: srv.MaxHeaderBytes + headerSlack, Serve: in.serve}, nil
}

// serve runs net/http on a connection until it ends.
func (in *innerHTTP2) serve(ctx context.Context, nc net.Conn) {
	in.run(in.srv, tls.Client(unwrapped{Conn: nc}, nil), &contextHandler{in.srv.Handler, ctx})
}

// unwrapped is a connection in the form in which net/http accepts it.
type unwrapped struct{ net.Conn }

// UnencryptedNetConn is called by net/http.
func (u unwrapped) UnencryptedNetConn() net.Conn { return u.Conn }

// contextHandler is a handler with a base context for its requests, which net/http asks
// it for.
type contextHandler struct {
	http.Handler
	ctx context.Context
}

// BaseContext is called by net/http.
func (b *contextHandler) BaseContext() context.Context { return b.ctx }

// settings reads the SETTINGS that net/http sends to clients. On a machine that is busy
// for more than 2 s net/http may end the connection before it sends them, so there are
// several tries.
func (in *innerHTTP2) settings() (payload []byte, err error) {
	for range 5 {
		if payload, err = in.askSettings(); err == nil {
			return payload, nil
		}
	}
	return nil, fmt.Errorf("start HTTP/2: %w", err)
}

func (in *innerHTTP2) askSettings() ([]byte, error) {
	client, srv := net.Pipe()
	defer func() { _ = client.Close() }() // a pipe
	go in.serve(context.Background(), srv)
	_ = client.SetDeadline(time.Now().Add(10 * time.Second)) // a pipe
	head := make([]byte, 9)
	if _, err := io.ReadFull(client, head); err != nil {
		return nil, err
	}
	payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	_, err := io.ReadFull(client, payload)
	return payload, err
}
