package conn

import (
	"testing"
	"time"

	"millrace/websocket/frame"
)

// TestBeat: the message comes at every interval, whatever the peer says; who does not
// answer it is cut off.
func TestBeat(t *testing.T) {
	drivers(t, func(t *testing.T, r *rig) {
		s := &Settings{App: &echoApp{}, MaxMessage: 100, Ping: 2 * tickTime, PongTimeout: 2 * tickTime, Beat: Beat{frame.Text, []byte("{}")}, Idle: tickTime}
		p := r.connect(s, nil, frame.Params{})
		began := time.Now()
		for range 3 {
			p.want(frame.Text, "{}")
			p.send(packet(frame.Text, true, false, []byte("pong")))
			p.want(frame.Text, "pong")
		}
		if took := time.Since(began); took < 3*tickTime {
			t.Errorf("three came within %s", took)
		}
		p.want(frame.Text, "{}") // and from here on it is silent
		p.wantEnd()
	})
}
