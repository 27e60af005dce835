package lane

import (
	"context"
	"testing"
	"time"
)

// TestAnswer: loops that go round say so, and one that hangs does not.
func TestAnswer(t *testing.T) {
	b := newBench(t, patient)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 3 {
		if err := b.lane.CheckLoops(ctx); err != nil {
			t.Fatal(err)
		}
	}
	server, client := socketPair(t)
	hangs, release := make(chan struct{}), make(chan struct{})
	if !b.lane.Adopt(server, b.scope, func() { close(hangs); <-release }, func(*Conn) {}) {
		t.Fatal("not adopted")
	}
	_ = client.Close()
	<-hangs // the loop closes the connection
	short, stop := context.WithTimeout(ctx, 10*time.Millisecond)
	defer stop()
	if b.lane.CheckLoops(short) == nil || b.lane.CheckLoops(ctx) == nil {
		t.Error("a loop that hangs has answered")
	}
	close(release)
	if err := b.lane.CheckLoops(ctx); err != nil {
		if err = b.lane.CheckLoops(ctx); err != nil { // the question of before was still there
			t.Error(err)
		}
	}
	b.lane.Close()
}
