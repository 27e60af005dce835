package channels

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"millrace/store/bus"
	"millrace/websocket/centrifuge"
	"millrace/websocket/frame"
)

// heardPort is a connection that keeps nothing but what ends it.
type heardPort struct {
	t     *testing.T
	form  centrifuge.Form
	said  int
	code  frame.Code
	tasks []func()
}

func (p *heardPort) Send(_ frame.Opcode, data []byte) {
	p.said++
	if p.form == centrifuge.JSON && !json.Valid(data) {
		p.t.Errorf("said %q, which is no JSON", data)
	}
}
func (p *heardPort) Deliver(m *frame.Prepared) { p.Send(0, m.Payload()) }
func (p *heardPort) Answer(m *frame.Prepared)  { p.Send(0, m.Payload()) }
func (p *heardPort) Close(code frame.Code, _ string) {
	if p.code == 0 {
		p.code = code
	}
}
func (p *heardPort) Runner() int           { return 0 }
func (p *heardPort) Later() func(f func()) { return func(f func()) { p.tasks = append(p.tasks, f) } }

// FuzzSDKFrames: whatever a client sends, it gets answers of the protocol or one of its
// codes, and others are not disturbed.
func FuzzSDKFrames(f *testing.F) {
	for _, text := range []string{
		`{"id":2,"subscribe":{"channel":"a","recover":true,"offset":1,"epoch":"x"}}`, `{"id":3,"history":{"channel":"a","limit":-5,"reverse":true,"since":{"offset":3}}}`,
		`{"id":4,"presence":{"channel":"a"}}` + "\n" + `{"id":5,"presence_stats":{"channel":"a"}}`, `{"id":6,"sub_refresh":{"channel":"a","token":"x"}}`,
		`{"id":7,"unsubscribe":{"channel":"a"}}`, `{"id":8,"rpc":{}}`, `{"send":{}}`, `{"id":9,"refresh":{"token":"x"}}`, "{}\n{}", "\x05\x08\x02\x2a\x01a", "GET / HTTP/1.1\r\n\r\n",
	} {
		f.Add([]byte(text), false)
		f.Add([]byte(text), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, protobuf bool) {
		c, err := New(Options{Presence: true}, Deps{Bus: bus.NewMemory(Options{}.Keep()), Runners: 1, Post: func(int, func()) {}, ErrorLog: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		form := centrifuge.JSON
		connect := []byte(`{"id":1,"connect":{}}`)
		if protobuf {
			form, connect = centrifuge.Protobuf, []byte{4, 8, 1, 0x22, 0}
		}
		port := &heardPort{t: t, form: form}
		k := newSDKClient(form, nil, nil)
		c.openSDK(k, port)
		c.frame(k, frame.Binary, connect)
		if port.said != 1 || port.code != 0 {
			t.Fatalf("connect brings %d answers and the code %d", port.said, port.code)
		}
		c.frame(k, frame.Binary, data)
		for len(port.tasks) > 0 {
			tasks := port.tasks
			port.tasks = nil
			for _, task := range tasks {
				task()
			}
		}
		if port.code != 0 && !strings.Contains(" 3000 3004 3005 3013 3500 3501 3505 3508 ", fmt.Sprintf(" %d ", port.code)) {
			t.Errorf("%q ends with %d", data, port.code)
		}
		c.closedSDK(k)
		c.Measure()
		if n := c.meters.Subscriptions.Load(); n != 0 {
			t.Errorf("%d subscriptions are left", n)
		}
		if c.expiry.heap.Len() != 0 {
			t.Error("an end is remembered")
		}
	})
}
