package signin

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// The password is "myPassword"; made by htpasswd -s.
const weakHash = "{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE="

// TestFileOfPasswords: while the file is gone nobody of it is let in, and who is
// taken out of it is out within a second, remembered or not.
func TestFileOfPasswords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "users")
		put := func(text string) {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		put("alice:" + weakHash + "\n")
		g, err := New(Options{File: file}, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
		try := func(when string, want int) {
			t.Helper()
			r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			r.SetBasicAuth("alice", "myPassword")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s: %d, want %d", when, w.Code, want)
			}
		}
		try("at first", 200)
		try("remembered", 200)
		put("carol:" + weakHash + "\n")
		time.Sleep(lookEvery)
		try("taken out", 401)
		put("alice:" + weakHash + "\ncarol:" + weakHash + "\n")
		time.Sleep(lookEvery)
		try("again in", 200)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookEvery)
		try("the file is gone", 401)
		put("alice:" + weakHash + "\n")
		time.Sleep(lookEvery)
		try("it is back", 200)
	})
}

// TestTurns: whoever guesses keeps nobody else out, and what waits is bounded.
func TestTurns(t *testing.T) {
	guesser, visitor := clientOf(netip.MustParseAddr("2001:db8::1")), clientOf(netip.MustParseAddr("192.0.2.7"))
	if guesser != clientOf(netip.MustParseAddr("2001:db8::2")) || guesser == clientOf(netip.Addr{}) {
		t.Error("who is one client")
	}
	q := newCheckQueue(1)
	if q.join(guesser) != nil {
		t.Fatal("a turn that is free is not given")
	}
	var all []*waiter
	for range maxWaiting {
		all = append(all, q.join(guesser))
	}
	late := q.join(visitor)
	if last := all[maxWaiting-1]; last.ok || len(q.waiting) != maxWaiting {
		t.Errorf("%d wait", len(q.waiting))
	} else {
		<-last.ready // it has gone for the visitor
	}
	q.release(guesser, false)
	if !all[0].ok || late.ok {
		t.Error("of those who are the first of their clients the first goes first")
	}
	q.release(guesser, false)
	if !late.ok || all[1].ok {
		t.Error("a client with one request waits behind one with a thousand")
	}
	q.release(visitor, true)
	for len(q.waiting) > 0 {
		q.release(guesser, false)
	}
	first, second := q.join(guesser), q.join(visitor)
	q.release(guesser, false)
	if first.ok || !second.ok {
		t.Error("who was wrong a thousand times goes first")
	}
	many := newCheckQueue(4)
	for range 2 {
		if many.join(guesser) != nil {
			t.Fatal("half of the turns are not given to one client")
		}
	}
	third := many.join(guesser)
	if third == nil || many.join(visitor) != nil {
		t.Fatal("one client has more than half of the turns, or another has none of the rest")
	}
	if many.release(visitor, true); third.ok {
		t.Error("a client that has half of the turns gets one more")
	}
	if many.release(guesser, true); !third.ok {
		t.Error("nobody gets the turn that is given back")
	}
	for a := visitor.Addr(); len(q.guessers) > 1; a = a.Next() {
		q.remember(clientOf(a))
		if len(q.guessers) == maxGuessers {
			q.remember(clientOf(a.Next())) // begins anew
		}
	}
	if len(q.guessers) > maxGuessers {
		t.Errorf("%d guessers are remembered", len(q.guessers))
	}
}

// TestNoTurn: a password that cannot be checked in time is not called wrong.
func TestNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, Options{Passwords: map[string]string{"alice": weakHash}})
		busy := g.way.(*passwords).turns
		for busy.free > 0 {
			busy.acquire(t.Context(), clientOf(netip.Addr{}))
		}
		r := request("GET", "/")
		r.SetBasicAuth("alice", "myPassword")
		if w, _ := through(g, r); w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header().Get("Www-Authenticate") != "" {
			t.Errorf("%d %q", w.Code, w.Header())
		}
		if busy.shouldWarn(r) {
			t.Error("it is said for each request")
		}
		if time.Sleep(warnInterval); !busy.shouldWarn(r) {
			t.Error("it is not said again")
		}
		ctx, gone := context.WithCancel(t.Context())
		gone()
		if busy.acquire(ctx, clientOf(netip.Addr{})) || len(busy.waiting) > 0 {
			t.Error("who is gone waits")
		}
		busy.release(clientOf(netip.Addr{}), true)
		if w, _ := through(g, r); w.Code != 200 {
			t.Errorf("with a turn: %d", w.Code)
		}
	})
}

// TestDecoy: for a name that nobody has a hash is checked that somebody has, so that
// the time which the answer takes does not tell.
func TestDecoy(t *testing.T) {
	users := map[string]string{"alice": weakHash, "bob": "$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/"}
	p := gate(t, Options{Passwords: users}).way.(*passwords)
	seen := map[string]bool{}
	for i := range 100 {
		name := fmt.Sprint("nobody", i)
		once := p.decoy(name)
		if seen[once] = true; p.decoy(name) != once {
			t.Errorf("%s is checked in two ways", name)
		}
	}
	if len(seen) != 2 || !seen[users["alice"]] || !seen[users["bob"]] {
		t.Errorf("names that nobody has are checked with %v", seen)
	}
}
