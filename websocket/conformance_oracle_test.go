package websocket_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/lxzan/gws"
)

// messages are random, the same for each seed.
func messages(seed uint64, n int) []event {
	r := rand.New(rand.NewPCG(seed, 1))
	all := make([]event, n)
	for i := range all {
		size := r.IntN(1 << r.IntN(17))
		if r.IntN(2) == 0 {
			all[i] = event{opText, strings.ToValidUTF8(document(size + 1)[r.IntN(size+1):], "")}
		} else {
			all[i] = event{opBinary, noise(size)}
		}
	}
	return all
}

// gwsClient compares what comes with what was sent.
type gwsClient struct {
	gws.BuiltinEventHandler
	want  []event
	done  chan error
	count int
}

func (c *gwsClient) OnMessage(_ *gws.Conn, m *gws.Message) {
	defer m.Close()
	got := event{byte(m.Opcode), m.Data.String()}
	if c.count >= len(c.want) || got != c.want[c.count] {
		c.done <- fmt.Errorf("message %d: got %v", c.count, got)
		return
	}
	if c.count++; c.count == len(c.want) {
		c.done <- nil
	}
}

func (c *gwsClient) OnClose(_ *gws.Conn, err error) { c.done <- fmt.Errorf("closed: %w", err) }

// TestGWS has github.com/lxzan/gws talk to us, with and without compression
// and contexts kept from one message to the next.
func TestGWS(t *testing.T) {
	onAll(t, echoOptions(), func(t *testing.T, f front) {
		for name, deflate := range map[string]gws.PermessageDeflate{
			"plain":      {},
			"compressed": {Enabled: true, Threshold: 64},
			"contexts":   {Enabled: true, Threshold: 64, ServerContextTakeover: true, ClientContextTakeover: true, ServerMaxWindowBits: 12, ClientMaxWindowBits: 12},
		} {
			t.Run(name, func(t *testing.T) {
				h := &gwsClient{want: messages(7, 150), done: make(chan error, 4)}
				addr := "ws" + strings.TrimPrefix(f.url, "http") + "/echo"
				c, _, err := gws.NewClient(h, &gws.ClientOption{
					Addr: addr, TlsConfig: f.tls, PermessageDeflate: deflate, HandshakeTimeout: patience, CheckUtf8Enabled: true,
					ReadMaxPayloadSize: 1 << 24,
				})
				if err != nil {
					t.Fatal(err)
				}
				go c.ReadLoop()
				for _, m := range h.want {
					if err := c.WriteMessage(gws.Opcode(m.op), []byte(m.payload)); err != nil {
						t.Fatal(err)
					}
				}
				select {
				case err = <-h.done:
				case <-time.After(patience):
					err = fmt.Errorf("only %d of %d came back", h.count, len(h.want))
				}
				if err != nil {
					t.Fatal(err)
				}
				_ = c.WriteClose(1000, nil)
			})
		}
	})
}

// TestGobwas has github.com/gobwas/ws talk to us.
func TestGobwas(t *testing.T) {
	onAll(t, echoOptions(), func(t *testing.T, f front) {
		d := ws.Dialer{TLSConfig: f.tls, Timeout: patience, Protocols: []string{"x"}, Header: ws.HandshakeHeaderHTTP(http.Header{"X-Test": {"1"}})}
		nc, br, _, err := d.Dial(context.Background(), "ws"+strings.TrimPrefix(f.url, "http")+"/echo")
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if br != nil {
			t.Fatal("the server spoke first")
		}
		_ = nc.SetDeadline(time.Now().Add(patience))
		for i, m := range messages(9, 150) {
			if err := wsutil.WriteClientMessage(nc, ws.OpCode(m.op), []byte(m.payload)); err != nil {
				t.Fatal(err)
			}
			got, op, err := wsutil.ReadServerData(nc)
			if err != nil || byte(op) != m.op || !bytes.Equal(got, []byte(m.payload)) {
				t.Fatalf("message %d: opcode %d, %d bytes, error %v; want %v", i, op, len(got), err, m)
			}
		}
		if err := ws.WriteFrame(nc, ws.MaskFrameInPlace(ws.NewCloseFrame(ws.NewCloseFrameBody(4001, "bye")))); err != nil {
			t.Fatal(err)
		}
		var closed wsutil.ClosedError
		if _, _, err := wsutil.ReadServerData(nc); !asClosed(err, &closed) || closed.Code != 4001 {
			t.Fatalf("at the end: %v", err)
		}
	})
}

func asClosed(err error, to *wsutil.ClosedError) bool {
	c, ok := err.(wsutil.ClosedError) //nolint:errorlint // as the package returns it
	*to = c
	return ok
}
