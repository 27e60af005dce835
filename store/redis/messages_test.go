package redis

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"millrace/internal/process/servertest"
	"millrace/store"
	"millrace/store/storetest"
)

// TestChanged: a machine is told what others did, not what it did itself.
func TestChanged(t *testing.T) {
	t.Parallel() // it waits more than it works
	s := start(t)
	var heardA, heardB told
	a := open(t, Options{URL: s.url(), Changed: heardA.changed})
	b := open(t, Options{URL: s.url(), Changed: heardB.changed})
	roundTrip(t, a, "warm", "up")
	roundTrip(t, b, "up", "warm")
	roundTrip(t, a, "by a", "1")
	roundTrip(t, b, "by b", "1")
	if err := b.Delete(t.Context(), "by a"); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, b, "käse {x}\x00\n", "1")
	servertest.Eventually(t, "a hears of what b put", heardA.hasKey("by b"))
	servertest.Eventually(t, "a hears of what b deleted", heardA.hasKey("by a"))
	servertest.Eventually(t, "a hears of a key of any bytes", heardA.hasKey("käse {x}\x00\n"))
	servertest.Eventually(t, "b hears of what a put", heardB.hasKey("by a"))
	if heardA.hasKey("warm")() || heardB.hasKey("by b")() {
		t.Error("one hears of what it did itself")
	}
	if err := b.Publish(t.Context(), []byte("message")); err != nil {
		t.Fatal(err)
	}

	all, _, _ := heardA.count()
	s.do("FLUSHALL")
	servertest.Eventually(t, "a hears that all is gone", heardA.allOver(all))

	// What happens while there is no connection is not told key by key.
	all, _, _ = heardA.count()
	s.do("CLIENT KILL TYPE normal")
	servertest.Eventually(t, "a hears that it may have missed something", heardA.allOver(all))
	servertest.Eventually(t, "a hears single keys again", func() bool {
		return storetest.PutText(b, "later", "x") == nil && heardA.hasKey("later")()
	})
	if heardA.hasKey("messages")() || heardA.hasKey("")() {
		t.Error("something is told that is not an object")
	}
}

// TestMessages: everybody gets all of them in one order.
func TestMessages(t *testing.T) {
	t.Parallel() // it waits more than it works
	s := start(t)
	var heardA, heardB told
	a := open(t, Options{URL: s.url(), Message: heardA.message})
	b := open(t, Options{URL: s.url(), Message: heardB.message})
	servertest.Eventually(t, "both listen", func() bool { return a.Position() != "" && b.Position() != "" })
	for i := range 300 {
		if err := []*Redis{a, b}[i%2].Publish(t.Context(), fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Publish(t.Context(), []byte("end")); err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, "a has all", heardA.has("end"))
	servertest.Eventually(t, "b has all", heardB.has("end"))
	_, _, inA := heardA.count()
	_, _, inB := heardB.count()
	want := strings.TrimSpace(strings.ReplaceAll(fmt.Sprintln(numbers(300)), "[", ""))
	if want = strings.ReplaceAll(want, "]", " end"); inA != want || inB != want {
		t.Errorf("a heard %s\nb heard %s", inA, inB)
	}

	// A machine that comes back goes on where it was; a new one begins now.
	position := a.Position()
	a.Close()
	if err := b.Publish(t.Context(), []byte("missed")); err != nil {
		t.Fatal(err)
	}
	var again, fresh told
	open(t, Options{URL: s.url(), Message: again.message, From: position})
	newcomer := open(t, Options{URL: s.url(), Message: fresh.message})
	servertest.Eventually(t, "the new one listens", func() bool { return newcomer.Position() != "" })
	if err := b.Publish(t.Context(), []byte("last")); err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, "the last message", again.has("last"))
	servertest.Eventually(t, "the last message", fresh.has("last"))
	if _, _, m := again.count(); m != "missed last" {
		t.Errorf("who comes back hears %q", m)
	}
	if _, _, m := fresh.count(); m != "last" {
		t.Errorf("who is new hears %q", m)
	}

	// One that wants all from the beginning gets it, and what comes.
	var whole told
	open(t, Options{URL: s.url(), Message: whole.message, From: Beginning})
	servertest.Eventually(t, "what is kept", whole.has("last"))
	if _, lost, m := whole.count(); lost != 0 || m != want+" missed last" {
		t.Errorf("from the beginning: lost %d, %q", lost, m)
	}
}

func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// TestTrimmed: who was away for too long is told so, and hears what comes then.
func TestTrimmed(t *testing.T) {
	s := start(t)
	a := open(t, Options{URL: s.url()})
	for _, from := range []string{"", "1-1", "no position"} {
		if from == "" {
			var heard told
			r := open(t, Options{URL: s.url(), Message: heard.message})
			servertest.Eventually(t, "it listens", func() bool { return r.Position() != "" })
			from = r.Position()
			r.Close()
			for range 5 {
				if err := a.Publish(t.Context(), []byte("missed")); err != nil {
					t.Fatal(err)
				}
			}
			s.do("XTRIM millrace:messages MAXLEN 2")
		}
		var heard told
		r := open(t, Options{URL: s.url(), Message: heard.message, From: from})
		servertest.Eventually(t, "loss is told", heard.has("LOST"))
		if err := r.Publish(t.Context(), []byte("next")); err != nil {
			t.Fatal(err)
		}
		servertest.Eventually(t, "the next message", heard.has("next"))
		if _, _, m := heard.count(); m != "LOST next" {
			t.Errorf("from %s: heard %q", from, m)
		}
	}
}

// TestRestart: the server is killed in the middle and comes back, with and
// without what it held.
func TestRestart(t *testing.T) {
	t.Parallel() // it waits more than it works
	for _, kept := range []bool{true, false} {
		t.Run(fmt.Sprint("kept ", kept), func(t *testing.T) {
			var args []string
			if kept {
				args = []string{"--appendonly", "yes", "--appendfsync", "always"}
			}
			s := start(t, args...)
			var heardA, heardB told
			a := open(t, Options{URL: s.url(), Message: heardA.message, Changed: heardA.changed})
			b := open(t, Options{URL: s.url(), Message: heardB.message})
			servertest.Eventually(t, "both listen", func() bool { return a.Position() != "" && b.Position() != "" })
			roundTrip(t, a, "key", "body")
			if err := b.Publish(t.Context(), []byte("before")); err != nil {
				t.Fatal(err)
			}
			servertest.Eventually(t, "the message before", heardA.has("before"))
			all, _, _ := heardA.count()

			s.Kill()
			if err := b.Publish(t.Context(), []byte("during")); !errors.Is(err, store.ErrDown) {
				t.Errorf("publishing without a server: %v", err)
			}
			servertest.Eventually(t, "a notices", func() bool { _, err := storetest.GetText(a, "key"); return errors.Is(err, store.ErrDown) })
			servertest.Eventually(t, "a is told when the connection is lost", heardA.allOver(all))
			all, _, _ = heardA.count()
			s.run()
			if !kept {
				// Somebody else's messages are not taken for the missing ones.
				s.do("XADD millrace:messages * m other")
			}
			servertest.Eventually(t, "b publishes again", func() bool { return b.Publish(t.Context(), []byte("after")) == nil })
			servertest.Eventually(t, "a is told once more when there is one again", heardA.allOver(all))
			if kept {
				servertest.Eventually(t, "the message after", heardA.has("after"))
				if _, lost, m := heardA.count(); lost != 0 || !strings.HasPrefix(m, "before after") {
					t.Errorf("nothing was lost, but a heard %q", m)
				}
				if got, err := storetest.GetText(a, "key"); got != "body" || err != nil {
					t.Errorf("the object: %q, %v", got, err)
				}
				return
			}
			servertest.Eventually(t, "a is told that messages are lost", heardA.has("LOST"))
			servertest.Eventually(t, "b is told that messages are lost", heardB.has("LOST"))
			if err := b.Publish(t.Context(), []byte("finally")); err != nil {
				t.Fatal(err)
			}
			servertest.Eventually(t, "the message finally", heardA.has("finally"))
			if _, err := storetest.GetText(a, "key"); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the object: %v", err)
			}
		})
	}
}
