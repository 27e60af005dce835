package tls

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"millrace/lab/experiment"
)

// visitTimeout is how long a connection, or an answer, may take.
const visitTimeout = 20 * time.Second

// http1 is the protocol that a server speaks without ALPN, too (RFC 7301, 6).
const http1 = "http/1.1"

// A visitor is one connection that asks for one thing at a time. It is as small
// as it can be, since thousands of them wait in the lab's own process, and leaves
// the rest of the protocols to the servers' manners: short answers, no padding.
type visitor struct {
	conn   *tls.Conn
	host   string
	http2  bool
	reader *bufio.Reader // nil while nothing is asked
	stream uint32        // of HTTP/2, the last one
}

// settings are the client's of TLS: version 1.3 and X25519, which all servers have.
func settings(http2 bool, sessions tls.ClientSessionCache) *tls.Config {
	protocol := http1
	if http2 {
		protocol = "h2"
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.X25519}, NextProtos: []string{protocol},
		ClientSessionCache: sessions, ServerName: "localhost",
		InsecureSkipVerify: true, // the certificate was made for this run
	}
}

// visit opens a connection to the server of a URL.
func visit(ctx context.Context, at string, config *tls.Config) (*visitor, error) {
	u, err := url.Parse(at)
	if err != nil {
		return nil, fmt.Errorf("reading the server's URL: %w", err)
	}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: visitTimeout}, Config: config}
	conn, err := d.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", u.Host, err)
	}
	v := &visitor{conn: conn.(*tls.Conn), host: u.Host}
	want := config.NextProtos[0]
	if got := v.conn.ConnectionState().NegotiatedProtocol; got != want && (got != "" || want != http1) {
		conn.Close()
		return nil, fmt.Errorf("%w: %q instead of %q", errProtocol, got, want)
	}
	v.http2 = want == "h2"
	return v, nil
}

// errProtocol is why a connection is of no use.
var errProtocol = errors.New("the server speaks another protocol")

func (v *visitor) close() { _ = v.conn.Close() } // what it has to say no longer matters

// get asks for a path and returns the body.
func (v *visitor) get(path string) ([]byte, error) {
	err := v.conn.SetDeadline(time.Now().Add(visitTimeout))
	v.reader = bufio.NewReader(v.conn)
	var body []byte
	if err == nil && v.http2 {
		body, err = v.getHTTP2(path)
	} else if err == nil {
		body, err = v.getHTTP1(path)
	}
	v.reader = nil
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", path, err)
	}
	return body, v.conn.SetDeadline(time.Time{})
}

func (v *visitor) getHTTP1(path string) ([]byte, error) {
	if _, err := io.WriteString(v.conn, "GET "+path+" HTTP/1.1\r\nHost: "+v.host+"\r\n\r\n"); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(v.reader, nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: %s", experiment.ErrAnswer, res.Status)
	}
	return io.ReadAll(res.Body)
}

// Of HTTP/2 (RFC 9113): the preface (3.4), types of frames (6) and their flags.
const (
	preface      = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	frameHead    = 9
	frameData    = 0
	frameHeaders = 1
	frameReset   = 3
	frameSetting = 4
	frameGoAway  = 7
	flagEnd      = 1 // of a stream; ACK of SETTINGS
	flagHeaders  = 4 // END_HEADERS
)

// frame begins a frame of n bytes.
func frame(b []byte, kind, flags byte, stream uint32, n int) []byte {
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	return binary.BigEndian.AppendUint32(b, stream)
}

// block is a request's header block: indexed fields of HPACK's static table and
// literals without indexing, shorter than 127 bytes (RFC 7541, 6 and appendix A).
func block(path, host string) []byte {
	const (
		methodGet, schemeHTTPS, pathRoot = 0x82, 0x87, 0x84
		nameAuthority, namePath          = 1, 4
	)
	b := []byte{methodGet, schemeHTTPS}
	if path == "/" {
		b = append(b, pathRoot)
	} else {
		b = append(append(b, namePath, byte(len(path))), path...)
	}
	return append(append(b, nameAuthority, byte(len(host))), host...)
}

func (v *visitor) getHTTP2(path string) ([]byte, error) {
	var out []byte
	if v.stream == 0 {
		out = frame(append(out, preface...), frameSetting, 0, 0, 0)
		v.stream = 1
	} else {
		v.stream += 2
	}
	head := block(path, v.host)
	out = append(frame(out, frameHeaders, flagEnd|flagHeaders, v.stream, len(head)), head...)
	if _, err := v.conn.Write(out); err != nil {
		return nil, err
	}
	var body bytes.Buffer
	for {
		done, err := v.read(&body)
		if err != nil || done {
			return body.Bytes(), err
		}
	}
}

// read takes one frame.
func (v *visitor) read(body *bytes.Buffer) (done bool, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(v.reader, head[:]); err != nil {
		return false, err
	}
	n := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
	kind, flags := head[3], head[4]
	if kind == frameReset || kind == frameGoAway {
		return false, fmt.Errorf("%w: frame %d", experiment.ErrAnswer, kind)
	}
	into := io.Discard
	if kind == frameData {
		into = body
	}
	if _, err := io.CopyN(into, v.reader, n); err != nil {
		return false, err
	}
	if kind == frameSetting && flags&flagEnd == 0 {
		_, err = v.conn.Write(frame(nil, frameSetting, flagEnd, 0, 0))
	}
	return flags&flagEnd != 0 && (kind == frameData || kind == frameHeaders), err
}

// look asks for the page and compares it: a server that is quick with something
// else is not a server.
func (m *measurement) look(ctx context.Context, at string, http2 bool) error {
	v, err := visit(ctx, at, settings(http2, nil))
	if err != nil {
		return err
	}
	defer v.close()
	return m.right(v)
}

// right asks for the page on a connection.
func (m *measurement) right(v *visitor) error {
	body, err := v.get("/")
	if err == nil && !bytes.Equal(body, m.page) {
		err = fmt.Errorf("%w: the page of %s is another one: %d bytes, %.80q", experiment.ErrAnswer, v.host, len(body), body)
	}
	return err
}
