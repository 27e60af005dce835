package frame_test

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/lxzan/gws"

	"millrace/websocket/frame"
)

// TestExchange speaks with the client of another library, with every window
// and with none: what it sends is sent back to it.
func TestExchange(t *testing.T) {
	for window := 7; window <= 15; window++ { // 7: without compression
		t.Run(fmt.Sprintf("window %d", window), func(t *testing.T) {
			near, far := net.Pipe()
			served := make(chan error, 1)
			go func() {
				served <- echo(far)
				_ = far.Close()
			}()
			collected := &collector{}
			socket, _, err := gws.NewClientFromConn(collected, &gws.ClientOption{
				Addr:              "ws://test/",
				CheckUtf8Enabled:  true,
				PermessageDeflate: gws.PermessageDeflate{Enabled: window > 7, ServerMaxWindowBits: window, Threshold: 1},
			}, near)
			if err != nil {
				t.Fatal(err, <-served)
			}
			read := make(chan struct{})
			go func() {
				socket.ReadLoop()
				close(read)
			}()
			messages := [][]byte{[]byte("κόσμε"), {}, []byte("a"), words(125), words(126), words(5000), noise(4000), words(65_535), words(65_536), words(200_000)}
			for _, m := range messages {
				if err := socket.WriteMessage(gws.OpcodeBinary, m); err != nil {
					t.Fatal(err)
				}
			}
			_ = socket.WriteString("some text: \U0001f600")
			_ = socket.WritePing([]byte("are you there?"))
			<-read
			if err := <-served; err == nil || err.Error() != "closed with 4321: enough" {
				t.Errorf("the server ended with %v", err)
			}
			messages = append(messages, []byte("some text: \U0001f600"), []byte("pong: are you there?"))
			if len(collected.messages) != len(messages) {
				t.Fatalf("%d of %d messages came back", len(collected.messages), len(messages))
			}
			for i, m := range messages {
				if !bytes.Equal(collected.messages[i], m) {
					t.Errorf("message %d of %d bytes came back with %d", i, len(m), len(collected.messages[i]))
				}
			}
		})
	}
}

// collector keeps what comes.
type collector struct {
	gws.BuiltinEventHandler
	messages [][]byte
}

func (c *collector) OnMessage(_ *gws.Conn, m *gws.Message) {
	c.messages = append(c.messages, bytes.Clone(m.Bytes()))
	_ = m.Close()
}

// OnPong ends it: the ping was the last that was sent.
func (c *collector) OnPong(socket *gws.Conn, payload []byte) {
	c.messages = append(c.messages, append([]byte("pong: "), payload...))
	socket.WriteClose(4321, []byte("enough"))
}

// echo is a server as small as the codec lets it be: whole messages only. It
// returns what the close frame says as an error.
func echo(c net.Conn) error {
	r := bufio.NewReaderSize(c, 1<<20)
	request, err := http.ReadRequest(r)
	if err != nil {
		return err
	}
	params, answer := frame.Negotiate(request.Header.Values("Sec-WebSocket-Extensions"))
	sum := sha1.Sum([]byte(request.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	head := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
		base64.StdEncoding.EncodeToString(sum[:]) + "\r\n"
	if params.On {
		head += "Sec-WebSocket-Extensions: " + answer + "\r\n"
	}
	if _, err := io.WriteString(c, head+"\r\n"); err != nil {
		return err
	}
	var b []byte
	for {
		h, n, err := frame.Parse(b)
		if err != nil {
			return err
		}
		if n == 0 || len(b) < n+int(h.Length) {
			more, err := r.Peek(max(1, r.Buffered()))
			if err != nil {
				return err
			}
			b = append(b, more...)
			_, _ = r.Discard(len(more))
			continue
		}
		reply, err := answerFrame(h, b[n:n+int(h.Length)], params)
		if len(reply) > 0 {
			// gws does not wait for the answer to its close frame.
			if _, failed := c.Write(reply); failed != nil && err == nil {
				return failed
			}
		}
		if err != nil {
			return err
		}
		b = b[n+int(h.Length):]
	}
}

func answerFrame(h frame.Header, payload []byte, params frame.Params) ([]byte, error) {
	if !h.Masked || !h.Fin || h.Rsv1 && !params.On {
		return nil, fmt.Errorf("unexpected header %+v", h)
	}
	frame.Mask(payload, h.Mask, 0)
	switch h.Op {
	case frame.Close:
		code, reason, err := frame.ParseClose(payload)
		if err != nil {
			return nil, err
		}
		return frame.AppendClose(nil, code, reason), fmt.Errorf("closed with %d: %s", code, reason)
	case frame.Ping:
		return frame.Prepare(frame.Pong, payload, 0).Bytes(params), nil
	}
	if h.Rsv1 {
		var err error
		if payload, err = frame.Inflate(nil, payload, 1<<20); err != nil {
			return nil, err
		}
	}
	var text frame.UTF8
	if h.Op == frame.Text && (!text.Feed(payload) || !text.Done()) {
		return nil, errors.New("no UTF-8")
	}
	return frame.Prepare(h.Op, bytes.Clone(payload), 1).Bytes(params), nil
}
