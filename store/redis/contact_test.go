package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/store"
)

// TestCatchUp: a machine that was cut off has all messages of others at its first question
// after it can reach the server again, and is not held up before that.
func TestCatchUp(t *testing.T) {
	for name, cut := range map[string]func(*servertest.Relay){"refused": (*servertest.Relay).Refuse, "lost": (*servertest.Relay).Lose} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits more than it works
			s := start(t)
			relay := servertest.NewRelay(t, s.addr)
			var heard told
			var behind atomic.Int64
			a := open(t, Options{URL: s.url()})
			b := open(t, Options{URL: "redis://" + relay.Addr(), Message: heard.message, Began: heard.began, Timeout: time.Second, OnLag: func() { behind.Add(1) }})
			servertest.Eventually(t, "it listens", b.CaughtUp)
			for i := range 4 {
				before := behind.Load()
				cut(relay)
				servertest.Eventually(t, "it notices", func() bool { return !b.CaughtUp() })
				if behind.Load() == before {
					t.Error("nobody was told that it is cut off")
				}
				message := fmt.Sprint("message ", i)
				if err := a.Publish(t.Context(), []byte(message)); err != nil {
					t.Fatal(err)
				}
				servertest.Eventually(t, "it knows that the server is down", func() bool { return !b.health.up() })
				var longest time.Duration
				for range 20 {
					begin := time.Now()
					if err := b.CatchUp(t.Context()); !errors.Is(err, store.ErrDown) {
						t.Fatalf("while it is cut off: %v", err)
					}
					longest = max(longest, time.Since(begin))
				}
				if longest > 500*time.Millisecond { // in truth 50; machines in tests may be slow
					t.Errorf("a question took %v", longest)
				}
				relay.Heal()
				if err := b.CatchUp(t.Context()); err != nil {
					t.Errorf("at the first question: %v", err)
				} else if !heard.has(message)() {
					t.Errorf("%q was not heard at the first question", message)
				}
			}
		})
	}
}

// TestCatchUpWithoutHearing: who can never hear, since it may not, or since the server is a
// replica, is told so at once.
func TestCatchUpWithoutHearing(t *testing.T) {
	s := start(t)
	s.do("ACL SETUSER limited on >secret ~* &* +@all -xrange")
	var heard told
	deaf := open(t, Options{URL: "redis://limited:secret@" + s.addr, Message: heard.message, Timeout: 5 * time.Second})
	master := start(t)
	host, port, _ := strings.Cut(master.addr, ":")
	other := start(t)
	other.do("REPLICAOF %s %s", host, port)
	replica := open(t, Options{URL: other.url(), Message: heard.message, Timeout: 5 * time.Second})
	for what, r := range map[string]*Redis{"may not": deaf, "a replica": replica} {
		begin := time.Now()
		err := r.CatchUp(t.Context())
		if took := time.Since(begin); !errors.Is(err, store.ErrDown) || took > 4*time.Second {
			t.Errorf("%s: %v after %v", what, err, took)
		}
	}
}

// TestAnnounce: whoever publishes learns which machines have the message.
func TestAnnounce(t *testing.T) {
	t.Parallel() // it waits more than it works
	s := start(t)
	relay := servertest.NewRelay(t, s.addr)
	var heard [3]told
	var all [3]*Redis
	for i, url := range []string{s.url(), s.url(), "redis://" + relay.Addr()} {
		all[i] = open(t, Options{URL: url, Name: fmt.Sprint("web ", i), Message: heard[i].message, Began: heard[i].began, Timeout: 2 * time.Second})
	}
	for i := range all {
		servertest.Eventually(t, "it listens", all[i].CaughtUp)
	}
	announce := func(message string, wait time.Duration) ([]string, error) {
		t.Helper()
		await, err := all[0].Announce(t.Context(), []byte(message))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		return await(ctx)
	}
	for i := range 20 {
		message := fmt.Sprint("message ", i)
		if missing, err := announce(message, patience); err != nil || len(missing) > 0 {
			t.Fatalf("missing %q, %v", missing, err)
		}
		for j := range heard {
			if !heard[j].has(message)() {
				t.Fatalf("machine %d has acknowledged %q, which it does not have", j, message)
			}
		}
	}

	relay.Refuse()
	if missing, err := announce("while one is cut off", 300*time.Millisecond); err != nil || len(missing) != 1 || !strings.HasPrefix(missing[0], "web 2") {
		t.Errorf("while one is cut off: missing %q, %v", missing, err)
	}
	servertest.Eventually(t, "it is called silent", func() bool {
		missing, err := announce("again", time.Millisecond)
		return err == nil && slices.ContainsFunc(missing, func(m string) bool { return strings.HasPrefix(m, "web 2, silent for ") })
	})
	relay.Heal()
	if missing, err := announce("healed", patience); err != nil || len(missing) > 0 || !heard[2].has("while one is cut off")() {
		t.Errorf("healed: missing %q, %v", missing, err)
	}

	// Who ends is not waited for; who has died, not after another of its name has come.
	if err := all[1].Close(); err != nil {
		t.Fatal(err)
	}
	relay.Refuse()
	servertest.Eventually(t, "it notices", func() bool { return !all[2].CaughtUp() })
	if err := all[2].Close(); err != nil {
		t.Fatal(err)
	}
	if missing, err := announce("one has died", 300*time.Millisecond); err != nil || len(missing) != 1 {
		t.Errorf("one has died: missing %q, %v", missing, err)
	}
	time.Sleep(silentFor + time.Second)
	var later told
	r := open(t, Options{URL: s.url(), Name: "web 2", Message: later.message, Began: later.began})
	servertest.Eventually(t, "the new one listens", r.CaughtUp)
	if missing, err := announce("a new one of its name", patience); err != nil || len(missing) > 0 {
		t.Errorf("a new one of its name: missing %q, %v", missing, err)
	}
}

// TestAnnounceWithoutRight: where machines may not acknowledge, nobody is told that all have
// it.
func TestAnnounceWithoutRight(t *testing.T) {
	s := start(t)
	s.do("ACL SETUSER limited on >secret ~* &* +@all -hset")
	var heard told
	r := open(t, Options{URL: "redis://limited:secret@" + s.addr, Message: heard.message, Began: heard.began})
	servertest.Eventually(t, "it listens", r.CaughtUp)
	await, err := r.Announce(t.Context(), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if missing, err := await(ctx); !errors.Is(err, errUnmarked) || !errors.Is(err, store.ErrDown) {
		t.Errorf("missing %q, %v", missing, err)
	}
}

// TestReaches: entries of a stream are in the order of their two numbers.
func TestReaches(t *testing.T) {
	ids := []string{"0-0", "0-1", "9-0", "9-9", "9-10", "10-0", "1526919030474-55", "1526919030474-100"}
	for i, a := range ids {
		for j, b := range ids {
			if got := reaches(a, b); got != (i >= j) {
				t.Errorf("%s is at %s: %v", a, b, got)
			}
		}
	}
	if reaches("", "0-1") {
		t.Error("who has read nothing has read something")
	}
}

// TestClock: a difference of seconds is corrected, one that somebody should do something
// about is said once.
func TestClock(t *testing.T) {
	var log lines
	r := &Redis{log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, ahead := range []time.Duration{300 * time.Millisecond, -time.Hour, -time.Hour + time.Second, 2 * time.Second} {
		r.setClock(ahead)
		if got := r.ClockAhead(); got != ahead.Round(time.Second) {
			t.Errorf("%v ahead became %v", ahead, got)
		}
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "ahead=-1h0m0s") {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}

// TestUsual: one late answer changes little of what is taken for usual.
func TestUsual(t *testing.T) {
	var c contact
	for range 50 {
		c.took(2 * time.Millisecond)
	}
	c.took(200 * time.Millisecond)
	if got := time.Duration(c.usual.Load()); got > 30*time.Millisecond {
		t.Errorf("after one late answer %v", got)
	}
	for range 50 {
		c.took(40 * time.Millisecond)
	}
	if got := time.Duration(c.usual.Load()); got < 35*time.Millisecond || got > 45*time.Millisecond {
		t.Errorf("after many %v", got)
	}
}
