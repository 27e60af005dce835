package server

import (
	"testing"
	"time"
)

// TestCarriedStray: what an upstream sends on an idle connection is nobody's answer, and one
// that it has closed is not used, although the loop looks at neither before it asks again.
func TestCarriedStray(t *testing.T) {
	hello, evil := okHead+"Content-Length: 5\r\n\r\nhello", okHead+"Content-Length: 4\r\n\r\nevil"
	for _, test := range []struct {
		name   string
		closes bool
		say    []string
	}{
		{"a second answer, later", false, []string{hello, evil}},
		{"a second answer at once", false, []string{hello + evil}},
		{"half of one", false, []string{hello, evil[:20]}},
		{"the end", true, []string{hello}},
		{"the end, later", true, []string{hello, ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newRelays(t)
			p.warm(t)
			p.set(test.closes, test.say...)
			before := p.with.srv.lane.Forwarded()
			for range 3 {
				c := p.with.dial(t, "tcp")
				if got := c.get("/a"); got != "hello" {
					t.Fatal(got)
				}
				time.Sleep(10 * time.Millisecond) // what comes later has come
				other := p.with.dial(t, "tcp")    // on another loop
				for _, c := range []*client{c, other} {
					if got := c.get("/ok"); got != "ok\n" {
						t.Fatalf("the next request got %q", got)
					}
				}
			}
			if p.with.srv.lane.Forwarded() == before {
				t.Error("no loop has asked")
			}
		})
	}
}
