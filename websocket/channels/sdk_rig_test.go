package channels

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"millrace/websocket/auth"
	"millrace/websocket/centrifuge"
	"millrace/websocket/frame"
	"millrace/websocket/hub"
)

// sdk is a fake of a connection with the session of an SDK's client, in JSON.
type sdk struct {
	client
	k *sdkClient
}

// sdk opens a session with what a handshake has found out; nil: nothing.
func (r *rig) sdk(g *auth.Grant) *sdk {
	k := &sdk{client: client{r: r}, k: newSDKClient(centrifuge.JSON, g, nil)}
	r.turn(func() { r.c.openSDK(k.k, &k.client) })
	return k
}

// dial connects with a token, "" for none.
func (r *rig) dial(token string) *sdk {
	r.t.Helper()
	k := r.sdk(nil)
	said := k.say(`{"id":1,"connect":{"token":"` + token + `"}}`)
	if len(said) != 1 || !strings.HasPrefix(said[0], `{"id":1,"connect":{"client":"`+k.k.name()) {
		r.t.Fatalf("connect: %s", said)
	}
	return k
}

// say sends a frame, and returns what has come since the last call.
func (k *sdk) say(text string) []string {
	k.r.turn(func() { k.r.c.frame(k.k, frame.Text, []byte(text)) })
	return k.heard()
}

// expect says a frame and compares what comes. EPOCH stands for the bus's, ME for the
// client's id.
func (k *sdk) expect(text string, want ...string) {
	k.r.t.Helper()
	var got []string
	if text == "" {
		got = k.heard()
	} else {
		got = k.say(strings.ReplaceAll(text, "EPOCH", k.r.epoch()))
	}
	names := strings.NewReplacer("EPOCH", k.r.epoch(), "ME", k.k.name())
	for i := range want {
		want[i] = names.Replace(want[i])
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		k.r.t.Errorf("after %s\n got %s\nwant %s", text, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// errorTo says a command and returns the number of the error that it is answered with.
func (k *sdk) errorTo(command string) *centrifuge.Error {
	k.r.t.Helper()
	said := k.say(command)
	var r centrifuge.Reply
	if len(said) != 1 || json.Unmarshal([]byte(said[0]), &r) != nil || r.Error == nil {
		k.r.t.Fatalf("%s is answered with %s (closed with %d %q), want an error", command, said, k.code, k.reason)
	}
	return r.Error
}

// leave ends a session.
func (k *sdk) leave() {
	k.r.turn(func() {
		k.over = true
		k.r.c.closedSDK(k.k)
	})
}

// clean fails if something is left of sessions that have ended.
func (r *rig) clean() {
	r.t.Helper()
	if n := r.c.expiry.heap.Len(); n != 0 {
		r.t.Errorf("%d ends are remembered", n)
	}
}

// in is seconds since 1970, so long from now.
func in(d time.Duration) int64 { return time.Now().Add(d).Unix() }

// publications are what the hub makes of publications.
func (r *rig) publications(data ...string) []*hub.Publication {
	var all []*hub.Publication
	got := &listening{}
	r.turn(func() {
		if _, err := r.c.hub.Subscribe(hub.Request{Subscriber: got, Channel: "made", Done: func(hub.Answer, error) {}}); err != nil {
			r.t.Error(err)
		}
	})
	for _, one := range data {
		r.publish("made", one)
	}
	synctest.Wait()
	all = append(all, got.all...)
	return all
}

type listening struct{ all []*hub.Publication }

func (l *listening) Deliver(p *hub.Publication) { l.all = append(l.all, p) }

// TestSDKSize is what a quiet client takes besides its connection, which has 128 bytes,
// and its subscription.
func TestSDKSize(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		if size := unsafe.Sizeof(sdkClient{}); size > 80 {
			t.Errorf("a session has %d bytes, want at most 80", size)
		}
		k := r.dial("")
		k.say(`{"id":2,"subscribe":{"channel":"news"}}`)
		synctest.Wait()
		if k.k.extras != nil || k.k.member != nil {
			t.Errorf("a quiet client keeps %+v", k.k)
		}
		k.leave()
		r.clean()
	})
}
