package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/store"
	"millrace/store/memory"
)

// comeback makes a connection and reports whether it resumed a session
// that c knows. Some bytes go both ways, so that the client has read its ticket.
func comeback(t *testing.T, dial func() (net.Conn, error), c *tls.Config) bool {
	t.Helper()
	nc, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	tc := tls.Client(nc, c)
	defer tc.Close()
	if _, err := io.WriteString(tc, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := tc.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return tc.ConnectionState().DidResume
}

// returning is a client that keeps tickets.
func returning() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", ClientSessionCache: tls.NewLRUClientSessionCache(8)}
}

func (r *rig) dialer() func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.Dial("tcp", r.secure) }
}

// A session lives on when the config is loaded again, whatever has changed in it.
func TestSessionOutlivesReload(t *testing.T) {
	r := start(t, plan{})
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		r.setup.TLS.MinVersion = ""
		if err := r.srv.Reload(r.setup); err != nil {
			t.Fatal(err)
		}
		c := returning()
		c.MaxVersion = version
		if comeback(t, r.dialer(), c) {
			t.Error("the first connection resumed a session")
		}
		if !comeback(t, r.dialer(), c) {
			t.Errorf("%s: the second has not", tls.VersionName(version))
		}
		if version == tls.VersionTLS13 {
			r.setup.TLS.MinVersion = "1.3"
		}
		writeCert(t, r.setup.TLS.Cert, r.setup.TLS.Key, "another")
		if err := r.srv.Reload(r.setup); err != nil {
			t.Fatal(err)
		}
		if !comeback(t, r.dialer(), c) {
			t.Errorf("%s: after a reload it has not", tls.VersionName(version))
		}
	}
}

const testSecret = "a secret that machines have in common"

// What one server began, another one goes on with, if they share their keys.
func TestSessionsAreShared(t *testing.T) {
	shared := memory.New(1 << 20)
	var rigs []*rig
	for _, secret := range []string{testSecret, testSecret, testSecret + "?"} {
		r := start(t, plan{})
		r.setup.Tickets = SharedTickets{Store: shared, Secret: secret}
		if err := r.srv.Reload(r.setup); err != nil {
			t.Fatal(err)
		}
		rigs = append(rigs, r)
	}
	for deadline := time.Now().Add(patience); !slices.Equal(rigs[0].sealed(), rigs[1].sealed()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("two servers do not agree on a key")
		}
		for _, r := range rigs[:2] { // at the start both may have written: the next look finds that out
			r.srv.tickets.syncStore(t.Context())
			r.srv.tls.Load().SetSessionTicketKeys(r.srv.tickets.current(time.Now()))
		}
	}
	c := returning()
	if comeback(t, rigs[0].dialer(), c) {
		t.Error("the first connection resumed a session")
	}
	for i, want := range []bool{true, true, false} {
		if got := comeback(t, rigs[i].dialer(), c.Clone()); got != want {
			t.Errorf("at server %d: resumed %v, want %v", i, got, want)
		}
	}
}

// sealed is the key that a server seals its tickets with.
func (r *rig) sealed() []byte {
	k := r.srv.tickets.current(time.Now())[0]
	return k[:]
}

// Tickets are good for a day at least, and for a day and a half at most.
func TestTicketKeysRotate(t *testing.T) {
	dir := t.TempDir()
	files := KeyPair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	writeCert(t, files.Cert, files.Key, "first")
	synctest.Test(t, func(t *testing.T) {
		certs := &certificates{errors: slog.New(slog.DiscardHandler)}
		if err := certs.load([]KeyPair{files}); err != nil {
			t.Fatal(err)
		}
		conf := newTLS(TLSOptions{}, certs)
		keys := newTickets(certs.errors)
		ctx, cancel := context.WithCancel(t.Context())
		go keys.run(ctx, conf.SetSessionTicketKeys)
		synctest.Wait()
		dial := func() (net.Conn, error) {
			client, srv := net.Pipe()
			go func() {
				tc := tls.Server(srv, conf)
				if _, err := tc.Read(make([]byte, 100)); err == nil {
					_, _ = tc.Write([]byte("x"))
				}
				_ = srv.Close()
			}()
			return client, nil
		}
		for _, c := range []struct {
			age  time.Duration
			want bool
		}{{0, true}, {11 * time.Hour, true}, {24 * time.Hour, true}, {36*time.Hour + time.Minute, false}} {
			client := returning()
			if comeback(t, dial, client) {
				t.Error("the first connection resumed a session")
			}
			time.Sleep(c.age)
			if got := comeback(t, dial, client); got != c.want {
				t.Errorf("after %v: resumed %v, want %v", c.age, got, c.want)
			}
			if n := len(keys.current(time.Now())); n > 3 {
				t.Errorf("%d keys", n)
			}
		}
		cancel()
		synctest.Wait()
	})
}

// breakable is a store that can be out of order.
type breakable struct {
	store.Store
	down atomic.Bool
}

// Get implements [store.Store].
func (b *breakable) Get(ctx context.Context, key string) (*store.Object, error) {
	if b.down.Load() {
		return nil, store.ErrDown
	}
	return b.Store.Get(ctx, key)
}

// fleet are machines that share their keys.
type fleet struct {
	machines []*ticketKeys
	store    *breakable
	log      lockedBuffer
}

// add starts n machines more; they run until ctx ends.
func (f *fleet) add(ctx context.Context, n int) {
	for range n {
		m := newTickets(slog.New(slog.NewTextHandler(&f.log, nil)))
		m.share(SharedTickets{Store: f.store, Secret: testSecret})
		f.machines = append(f.machines, m)
		go m.run(ctx, func([][32]byte) {}) // ends with ctx
	}
}

// agree checks that every machine opens what any of them seals now.
func (f *fleet) agree(t *testing.T, when string) {
	t.Helper()
	synctest.Wait()
	for i, a := range f.machines {
		for j, b := range f.machines {
			if !slices.Contains(b.current(time.Now()), a.current(time.Now())[0]) {
				t.Errorf("%s, %v: %d cannot open what %d seals", when, time.Now(), j, i)
			}
		}
	}
}

func TestTicketKeysAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := &fleet{store: &breakable{Store: memory.New(1 << 20)}}
		f.add(ctx, 3)
		time.Sleep(2 * ticketEvery)
		f.agree(t, "at the start")
		seen := map[[32]byte]bool{}
		for range 4 * 24 * 4 {
			time.Sleep(15 * time.Minute)
			f.agree(t, "later")
			seen[f.machines[0].current(time.Now())[0]] = true
		}
		if len(seen) < 8 || len(seen) > 9 {
			t.Errorf("%d keys in four days", len(seen))
		}

		f.store.down.Store(true)
		before := f.machines[0].current(time.Now())[0]
		time.Sleep(30 * time.Hour)
		if f.machines[0].current(time.Now())[0] == before {
			t.Error("without the store the key stays")
		}
		f.store.down.Store(false)
		time.Sleep(2 * ticketEvery)
		f.agree(t, "when the store is back")
		f.add(ctx, 1)
		time.Sleep(2 * ticketEvery)
		f.agree(t, "with a new machine")

		// What somebody else has put there is replaced.
		name := newTicketStore(SharedTickets{f.store, testSecret}).name
		for _, text := range []string{"", "nonsense", strings.Repeat("x", 1<<16)} {
			w, err := f.store.Create(ctx, name, int64(len(text)))
			if err != nil {
				t.Fatal(err)
			}
			if _, err = io.WriteString(w, text); err == nil {
				err = w.Commit(nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * ticketEvery)
			f.agree(t, "after foreign bytes")
			if keys, err := newTicketStore(SharedTickets{f.store, testSecret}).read(ctx); err != nil || len(keys) == 0 {
				t.Errorf("after foreign bytes of %d: %d keys, %v", len(text), len(keys), err)
			}
		}
		if told := f.log.String(); strings.Count(told, "WARN") > 2*len(f.machines) || !strings.Contains(told, "shared again") {
			t.Errorf("the log: %s", told)
		}
		cancel()
		synctest.Wait()
	})
}

func TestTicketOptions(t *testing.T) {
	for _, c := range []struct {
		o    TicketOptions
		want string // the key
	}{
		{TicketOptions{}, ""},
		{TicketOptions{Shared: store.Shared{URL: "redis://h"}, Secret: testSecret}, ""},
		{TicketOptions{Shared: store.Shared{URL: "redis://h"}}, "shared"},
		{TicketOptions{Shared: store.Shared{URL: "redis://h"}, Secret: "short"}, "secret"},
		{TicketOptions{Secret: testSecret}, "secret"},
	} {
		if faults := c.o.Check(); len(faults) > 1 || c.want == "" && len(faults) > 0 || c.want != "" && faults[c.want] == nil {
			t.Errorf("%+v: %v", c.o, faults)
		}
	}
}

// A store that fails to write says so, and leaves the keys in place.
func TestTicketStoreIsFull(t *testing.T) {
	m := newTickets(slog.New(slog.DiscardHandler))
	v := newTicketStore(SharedTickets{memory.New(1), testSecret})
	if err := v.write(t.Context(), []ticketKey{newTicketKey(1)}); !errors.Is(err, store.ErrFull) {
		t.Errorf("a full store: %v", err)
	}
	m.share(SharedTickets{v.store, testSecret})
	before := m.current(time.Now())
	m.syncStore(t.Context())
	if !slices.Equal(before, m.current(time.Now())) {
		t.Error("the keys are others")
	}
}

// TestSavedTickets: another process opens the tickets of this one, and seals new
// ones with the same key.
func TestSavedTickets(t *testing.T) {
	one, next := newTickets(slog.New(slog.DiscardHandler)), newTickets(slog.New(slog.DiscardHandler))
	now := time.Now()
	one.current(now.Add(-ticketPeriod)) // two keys
	want := one.current(now)
	next.restore([]byte("of another version"))
	next.restore(one.save())
	if got := next.current(now); len(got) != 2 || !slices.Equal(got, want) {
		t.Errorf("%d keys, and not the same", len(got))
	}
}
