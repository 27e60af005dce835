package main

import (
	"bufio"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"millrace/websocket/frame"
)

// startWS is `websocket NAME ARG...`: start, with the verb ws.
func startWS(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: websocket NAME [ARG...]")
	}
	startVerb(ts, "ws", args[0], args[1:])
}

var listens = regexp.MustCompile(`millrace: listening to .* at http\S+\n`)

// startListener is `listener NAME ARG...`: `millrace ws listen ARG...` until it
// says that it listens. What it prints is in NAME.out.
func startListener(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: listener NAME ARG...")
	}
	s := startProgram(ts, args[0], append([]string{"ws", "listen"}, args[1:]...))
	_, err := s.err.take(listens, s.done)
	ts.Check(err)
}

type clientsKey struct{}

// wsClient is a WebSocket of a script.
type wsClient struct {
	conn    net.Conn
	r       *bufio.Reader
	message []byte // what has come of one in fragments
	closing bool   // a close frame was sent
}

// refusedError is an answer other than 101.
type refusedError struct{ status, body string }

func (e refusedError) Error() string { return "the server answers " + e.status + ": " + e.body }

// connect NAME [-origin ORIGIN] [-ca FILE] [-H 'NAME: VALUE'] URL opens a
// WebSocket, which stays open until the script ends; http:// is taken as ws://.
// ! connect expects that the handshake is refused, and writes the status and
// the answer to the standard output.
func connect(ts *testscript.TestScript, neg bool, args []string) {
	set := flag.NewFlagSet("connect", flag.ContinueOnError)
	origin, ca, header := set.String("origin", "", ""), set.String("ca", "", ""), set.String("H", "", "")
	if len(args) < 1 || set.Parse(args[1:]) != nil || set.NArg() != 1 {
		ts.Fatalf("usage: connect NAME [-origin ORIGIN] [-ca FILE] [-H 'NAME: VALUE'] URL")
	}
	u, err := url.Parse(set.Arg(0))
	ts.Check(err)
	fields := ""
	if *origin != "" {
		fields += "Origin: " + *origin + "\r\n"
	}
	if *header != "" {
		fields += *header + "\r\n"
	}
	conn, err := net.DialTimeout("tcp", u.Host, patience)
	ts.Check(err)
	if strings.HasSuffix(u.Scheme, "s") {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(ts.ReadFile(*ca)))
		conn = tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: u.Hostname()})
	}
	ts.Defer(func() { _ = conn.Close() }) // the server may have closed it
	c := &wsClient{conn: conn, r: bufio.NewReader(conn)}
	err = c.handshake(u, fields)
	if refused, ok := errors.AsType[refusedError](err); ok && neg {
		_, err = io.WriteString(ts.Stdout(), refused.status+"\n\n"+refused.body)
		ts.Check(err)
		return
	}
	ts.Check(err)
	if neg {
		ts.Fatalf("the server took the connection")
	}
	ts.Value(clientsKey{}).(map[string]*wsClient)[args[0]] = c
}

// handshake is that of RFC 6455, 4.1.
func (c *wsClient) handshake(u *url.URL, fields string) error {
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	nonce := make([]byte, 16)
	if _, err := rand.Read(nonce); err != nil {
		return err
	}
	key := base64.StdEncoding.EncodeToString(nonce)
	if _, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n%s\r\n", u.RequestURI(), u.Host, key, fields); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		if err != nil {
			return err
		}
		return refusedError{resp.Status, string(body)}
	}
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) // RFC 6455, 4.2.2
	if got, want := resp.Header.Get("Sec-WebSocket-Accept"), base64.StdEncoding.EncodeToString(sum[:]); got != want {
		return fmt.Errorf("Sec-WebSocket-Accept is %q, want %q", got, want)
	}
	return nil
}

// talk NAME [SEND EXPECT]... sends a text and waits until one has come that the
// regular expression EXPECT matches, for each pair; all that came is on the
// standard output. An empty SEND sends nothing; "close CODE" does so, and a
// close frame that comes reads like that.
func talk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args)%2 != 1 {
		ts.Fatalf("usage: talk NAME [SEND EXPECT]...")
	}
	c := ts.Value(clientsKey{}).(map[string]*wsClient)[args[0]]
	if c == nil {
		ts.Fatalf("no WebSocket %s is open", args[0])
	}
	for i := 1; i < len(args); i += 2 {
		expect, err := regexp.Compile(args[i+1])
		ts.Check(err)
		ts.Check(c.conn.SetDeadline(time.Now().Add(patience)))
		ts.Check(c.say(args[i]))
		for said := ""; !expect.MatchString(said); {
			said, err = c.hear()
			if err != nil {
				ts.Fatalf("waiting for %q: %v", args[i+1], err)
			}
			_, err = io.WriteString(ts.Stdout(), said+"\n")
			ts.Check(err)
		}
	}
}

// say sends a text, or a close frame.
func (c *wsClient) say(text string) error {
	if text == "" {
		return nil
	}
	var code frame.Code
	if _, err := fmt.Sscanf(text, "close %d", &code); err == nil {
		c.closing = true
		return c.send(frame.Close, []byte{byte(code >> 8), byte(code)})
	}
	return c.send(frame.Text, []byte(text))
}

// send sends one frame, masked as a client must (RFC 6455, 5.3).
func (c *wsClient) send(op frame.Opcode, payload []byte) error {
	h := frame.Header{Fin: true, Op: op, Masked: true, Mask: [4]byte{1, 2, 3, 4}, Length: int64(len(payload))}
	b := append(h.Append(nil), payload...)
	frame.Mask(b[len(b)-len(payload):], h.Mask, 0)
	_, err := c.conn.Write(b)
	return err
}

// hear is the next message, or close frame.
func (c *wsClient) hear() (string, error) {
	for {
		h, err := c.header()
		if err != nil {
			return "", err
		}
		if h.Masked || h.Rsv1 || h.Length > 1<<20 {
			return "", fmt.Errorf("the server may not send such a frame: %+v", h)
		}
		payload := make([]byte, h.Length)
		if _, err := io.ReadFull(c.r, payload); err != nil {
			return "", err
		}
		switch h.Op {
		case frame.Ping:
			if err := c.send(frame.Pong, payload); err != nil {
				return "", err
			}
		case frame.Pong:
		case frame.Close:
			code, reason, err := frame.ParseClose(payload)
			if err != nil {
				return "", err
			}
			if !c.closing {
				c.closing = true
				if err := c.send(frame.Close, payload); err != nil {
					return "", err
				}
			}
			return strings.TrimSpace(fmt.Sprintf("close %d %s", code, reason)), nil
		default:
			c.message = append(c.message, payload...)
			if h.Fin {
				text := string(c.message)
				c.message = nil
				return text, nil
			}
		}
	}
}

func (c *wsClient) header() (frame.Header, error) {
	for size := 2; ; size++ {
		b, err := c.r.Peek(size)
		if err != nil {
			return frame.Header{}, err
		}
		h, n, err := frame.Parse(b)
		if err != nil || n > 0 {
			_, _ = c.r.Discard(n) // it is there
			return h, err
		}
	}
}
