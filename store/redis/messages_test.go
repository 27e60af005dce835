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

// TestMessages: everybody gets all of them in one order.
func TestMessages(t *testing.T) {
	t.Parallel() // it waits more than it works
	s := start(t)
	var heardA, heardB told
	a := open(t, Options{URL: s.url(), Message: heardA.message})
	b := open(t, Options{URL: s.url(), Message: heardB.message})
	servertest.Eventually(t, "both listen", func() bool { return a.caughtUp.Load() && b.caughtUp.Load() })
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
	_, inA := heardA.count()
	_, inB := heardB.count()
	want := strings.TrimSpace(strings.ReplaceAll(fmt.Sprintln(numbers(300)), "[", ""))
	if want = strings.ReplaceAll(want, "]", " end"); inA != want || inB != want {
		t.Errorf("a heard %s\nb heard %s", inA, inB)
	}

	// Who comes later gets what was published in this run of the server, and what comes.
	var later told
	open(t, Options{URL: s.url(), Message: later.message, Began: later.began})
	servertest.Eventually(t, "what was published before", later.has("end"))
	if err := b.Publish(t.Context(), []byte("last")); err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, "the last message", later.has("last"))
	if lost, m := later.count(); lost != 0 || m != want+" last" || len(later.runs) != 1 {
		t.Errorf("who comes later: lost %d, %q, in the runs %q", lost, m, later.runs)
	}
}

func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// TestTrimmed: who misses messages is told so, and hears what comes then.
func TestTrimmed(t *testing.T) {
	s := start(t)
	a := open(t, Options{URL: s.url()})
	var there told
	r := open(t, Options{URL: s.url(), Message: there.message})
	servertest.Eventually(t, "it listens", r.caughtUp.Load)
	for range 5 {
		if err := a.Publish(t.Context(), []byte("missed")); err != nil {
			t.Fatal(err)
		}
	}
	s.do("XTRIM millrace:messages MAXLEN 2")
	var late told
	open(t, Options{URL: s.url(), Message: late.message})
	servertest.Eventually(t, "who comes later is told of the loss", late.has("LOST"))
	s.do("DEL millrace:messages")
	servertest.Eventually(t, "who was there is told of the loss", there.has("LOST"))
	servertest.Eventually(t, "the next messages", func() bool {
		return a.Publish(t.Context(), []byte("next")) == nil && late.has("next")() && there.has("next")()
	})
}

// TestUnknownRun: a user that may not ask for the server's run hears of what is published
// from now on.
func TestUnknownRun(t *testing.T) {
	for name, rights := range map[string]string{"no INFO": "+@all -info", "no scripts": "+@all -@scripting"} {
		s := start(t)
		s.do("ACL SETUSER limited on >secret ~* &* %s", rights)
		var heard told
		r := open(t, Options{URL: "redis://limited:secret@" + s.addr, Message: heard.message, Began: heard.began})
		servertest.Eventually(t, name+": it listens", r.caughtUp.Load)
		if err := r.Publish(t.Context(), []byte("message")); err != nil {
			t.Fatal(err)
		}
		servertest.Eventually(t, name+": a message", heard.has("message"))
		if lost, m := heard.count(); lost != 1 || m != "LOST message" || len(heard.runs) != 0 {
			t.Errorf("%s: %d, %q, the runs %q", name, lost, m, heard.runs)
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
			a := open(t, Options{URL: s.url(), Message: heardA.message, Began: heardA.began})
			b := open(t, Options{URL: s.url(), Message: heardB.message, Began: heardB.began})
			servertest.Eventually(t, "both listen", func() bool { return a.caughtUp.Load() && b.caughtUp.Load() })
			roundTrip(t, a, "key", "body")
			if err := b.Publish(t.Context(), []byte("before")); err != nil {
				t.Fatal(err)
			}
			servertest.Eventually(t, "the message before", heardA.has("before"))

			s.Kill()
			if err := b.Publish(t.Context(), []byte("during")); !errors.Is(err, store.ErrDown) {
				t.Errorf("publishing without a server: %v", err)
			}
			servertest.Eventually(t, "a notices", func() bool { _, err := storetest.GetText(a, "key"); return errors.Is(err, store.ErrDown) })
			s.run()
			if !kept {
				// Somebody else's messages are not taken for the missing ones: before the run's
				// beginning they are not heard, after it they are as good as any.
				s.do("XADD millrace:messages * m other")
			}
			servertest.Eventually(t, "b publishes again", func() bool { return b.Publish(t.Context(), []byte("after")) == nil })
			servertest.Eventually(t, "the message after", heardA.has("after"))
			servertest.Eventually(t, "both listen again", func() bool { return a.caughtUp.Load() && b.caughtUp.Load() })
			if lost, m := heardA.count(); lost != 0 || !strings.HasPrefix(strings.Replace(m, "before other ", "before ", 1), "before after") || len(heardA.runs) != 2 || len(heardB.runs) != 2 || heardA.runs[1] != heardB.runs[1] {
				t.Errorf("in the runs %q and %q, a heard %q", heardA.runs, heardB.runs, m)
			}
			if got, err := storetest.GetText(a, "key"); kept && (got != "body" || err != nil) || !kept && !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the object: %q, %v", got, err)
			}
		})
	}
}

// TestRunIsSeldomAskedFor: a message does not have each machine ask in which run the server
// is: the stream says when another one begins.
func TestRunIsSeldomAskedFor(t *testing.T) {
	s := start(t)
	var heard told
	r := open(t, Options{URL: s.url(), Message: heard.message, Began: heard.began})
	servertest.Eventually(t, "it listens", r.caughtUp.Load)
	for i := range 100 {
		message := fmt.Sprint("message ", i)
		s.do("XADD millrace:messages * m \"%s\"", message)
		servertest.Eventually(t, message, heard.has(message))
	}
	var n int
	answer := s.do(`EVAL "return tonumber(string.match(redis.call('INFO','commandstats'), 'cmdstat_info:calls=(%%d+)'))" 0`)
	if _, err := fmt.Sscanf(answer, ":%d", &n); err != nil || n > 100 {
		t.Errorf("INFO was asked %s times for 100 messages, %v", answer, err)
	}
	s.do("XADD millrace:messages * run nobody/")
	s.do("XADD millrace:messages * m strange")
	servertest.Eventually(t, "it goes on behind an entry that is not ours", heard.has("strange"))
	s.do("SET millrace:{millrace:messages}run other")
	s.do("XADD millrace:messages * run other/")
	servertest.Eventually(t, "it hears of another run", func() bool {
		heard.mu.Lock()
		defer heard.mu.Unlock()
		return len(heard.runs) == 2
	})
}
