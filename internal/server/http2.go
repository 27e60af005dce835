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

// newH2 is net/http's HTTP/2. Behind a lane, which has its own timeouts and
// watches the connections, it has none.
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
		// The encoder gets no dynamic table: when a client changes the table's size,
		// Go 1.26 does so while a header is being encoded, and the whole process
		// ends (concurrent map access). Behind a lane it does not hear of changes.
		srv.HTTP2.MaxEncoderHeaderTableSize = 1
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	return srv
}

// innerHTTP2 runs net/http's HTTP/2 on connections whose preface the lane has read.
type innerHTTP2 struct {
	srv *http.Server
	run func(*http.Server, *tls.Conn, http.Handler)
}

// unencrypted is the key under which net/http takes such connections. It is not
// documented; newLaneHTTP2 fails, and says so, where it is not there.
const unencrypted = "unencrypted_http2"

// newInnerHTTP2 sets HTTP/2 up.
func newInnerHTTP2(srv *http.Server) (*innerHTTP2, error) {
	nobody := newHandoff()
	_ = nobody.Close()
	if err := srv.Serve(nobody); !errors.Is(err, net.ErrClosed) { // which does it
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

// screen has clients' header blocks looked at before net/http has them, where there is
// no lane to do so.
func screen(srv *http.Server) error {
	in, err := newInnerHTTP2(srv)
	if err != nil {
		return err
	}
	srv.TLSNextProto["h2"] = func(_ *http.Server, nc *tls.Conn, h http.Handler) {
		_ = nc.SetReadDeadline(time.Now().Add(prefaceTimeout)) // of a connection: it does not fail
		if h2.ReadPreface(nc) != nil {
			_ = nc.Close() // nobody is told
			return
		}
		_ = nc.SetReadDeadline(time.Time{})
		in.run(srv, tls.Client(unwrapped{&screenedConn{h2.NewScreen(nc, srv.MaxHeaderBytes+headerSlack), nc}}, nil), h)
	}
	return nil
}

// screenedConn is a connection of net/http's, of which TLS tells more.
type screenedConn struct {
	*h2.Screen
	tls *tls.Conn
}

// ConnectionState fills [http.Request.TLS].
func (s *screenedConn) ConnectionState() tls.ConnectionState { return s.tls.ConnectionState() }

// newLaneHTTP2 is net/http's part behind the lane.
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

// unwrapped is a connection in the form in which net/http takes it.
type unwrapped struct{ net.Conn }

// UnencryptedNetConn is called by net/http.
func (u unwrapped) UnencryptedNetConn() net.Conn { return u.Conn }

// contextHandler is a handler whose requests have a context, in net/http's way.
type contextHandler struct {
	http.Handler
	ctx context.Context
}

// BaseContext is called by net/http.
func (b *contextHandler) BaseContext() context.Context { return b.ctx }

// settings asks net/http what it tells its clients. net/http waits 2 s for an
// answer to its settings: on a machine that is busy for so long it may end the
// connection before they are sent, so it is asked more than once.
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
