package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/store"
	"millrace/store/storetest"
)

func TestStore(t *testing.T) {
	s := start(t)
	n := 0
	again := func(t *testing.T) store.Store {
		return open(t, Options{URL: strings.Replace(s.url(s.addr, ""), "millrace", fmt.Sprint("test", n), 1)})
	}
	fresh := func(t *testing.T) store.Store {
		n++
		s.bucket(fmt.Sprint("test", n))
		return again(t)
	}
	storetest.Run(t, fresh, again)
}

func mustHave(t *testing.T, st *Store, key, body string) {
	t.Helper()
	if got, err := storetest.GetText(st, key); err != nil || got != body {
		t.Fatalf("got %.50q, %v; want %.50q", got, err, body)
	}
}

// TestMachines: what one store writes, another on the same bucket sees, and
// one with another prefix does not.
func TestMachines(t *testing.T) {
	s := start(t)
	one, two := open(t, Options{URL: s.url(s.addr, "a/b")}), open(t, Options{URL: s.url(s.addr, "a/b/")})
	other := open(t, Options{URL: s.url(s.addr, "a")})
	if err := storetest.PutText(one, "key", "one"); err != nil {
		t.Fatal(err)
	}
	mustHave(t, two, "key", "one")
	if err := storetest.PutText(two, "key", "two"); err != nil {
		t.Fatal(err)
	}
	mustHave(t, one, "key", "two")
	if _, err := storetest.GetText(other, "key"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("under another prefix: %v", err)
	}
	if err := two.Delete(t.Context(), "key"); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.GetText(one, "key"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after another machine's delete: %v", err)
	}
}

// TestLargeHead: heads may have 1 MiB, far more than S3's own metadata.
func TestLargeHead(t *testing.T) {
	s := start(t)
	st := open(t, Options{URL: s.url(s.addr, "")})
	head := bytes.Repeat([]byte("0123456789abcdef"), mostHead/16)
	w, err := st.Create(t.Context(), "key", 4)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, "body")
	if err := w.Commit(head); err != nil {
		t.Fatal(err)
	}
	o, err := st.Get(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(o.Head, head) || o.Size != 4 {
		t.Errorf("head of %d bytes, body of %d", len(o.Head), o.Size)
	}
	if err := st.Walk(t.Context(), func(key string, h []byte, size int64) error {
		if key != "key" || !bytes.Equal(h, head) || size != 4 {
			t.Errorf("walked over %q with a head of %d bytes, size %d", key, len(h), size)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	w, err = st.Create(t.Context(), "key", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(append(head, 'x')); !errors.Is(err, store.ErrFull) {
		t.Errorf("a head of more than 1 MiB: %v", err)
	}
}

// TestLargest: what is larger is refused early, and a miss where another
// machine has stored it.
func TestLargest(t *testing.T) {
	s := start(t)
	large, small := open(t, Options{URL: s.url(s.addr, "")}), open(t, Options{URL: s.url(s.addr, ""), Largest: 1000})
	body := strings.Repeat("x", 3<<20)
	if err := storetest.PutText(large, "key", body); err != nil {
		t.Fatal(err)
	}
	mustHave(t, large, "key", body)
	o, err := large.Get(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	if o.File == nil {
		t.Error("a large body is not in a file")
	}
	if held := large.spooled.held.Load(); held < 3<<20 {
		t.Errorf("%d bytes are counted while it is open", held)
	}
	o.Close()
	if _, err := storetest.GetText(small, "key"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("getting what is too large: %v", err)
	}
	if err := storetest.PutText(small, "key", body); !errors.Is(err, store.ErrFull) {
		t.Errorf("putting what is too large: %v", err)
	}
	w, err := small.Create(t.Context(), "key", -1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, body); !errors.Is(err, store.ErrFull) {
		t.Errorf("writing too much: %v", err)
	}
	w.Abort()
	for _, st := range []*Store{large, small} {
		if m, f := st.memory.held.Load(), st.spooled.held.Load(); m != 0 || f != 0 {
			t.Errorf("after all, %d and %d bytes are counted", m, f)
		}
	}
}

func TestWalk(t *testing.T) {
	s := start(t)
	st, other := open(t, Options{URL: s.url(s.addr, "here")}), open(t, Options{URL: s.url(s.addr, "there")})
	want := map[string]int64{}
	const objects = 2*page + 7
	for i := range objects {
		key := fmt.Sprintf("key %d%s", i, strings.Repeat("/long", i%2*1000))
		want[key] = int64(i)
		if err := storetest.PutText(st, key, strings.Repeat("b", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := storetest.PutText(other, "not this one", "b"); err != nil {
		t.Fatal(err)
	}
	raw(t, st, "here/readme.txt", []byte("Someone else's, and longer than our preamble."))
	if err := os.WriteFile(filepath.Join(s.dir, "millrace/here/empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := front{key: []byte("misplaced"), size: 0}
	raw(t, st, "here/copy", appendFront(nil, f))
	got := map[string]int64{}
	if err := st.Walk(t.Context(), func(key string, head []byte, size int64) error {
		if string(head) != "head of "+key {
			t.Errorf("%.40q has the head %.40q", key, head)
		}
		got[key] = size
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) {
		t.Errorf("walked over %d objects, want %d: %.60q", len(got), len(want), slices.Sorted(maps.Keys(got)))
	}
	stop := errors.New("stop")
	if err := st.Walk(t.Context(), func(string, []byte, int64) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("walk that was stopped: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := st.Walk(ctx, func(string, []byte, int64) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("walk with a canceled context: %v", err)
	}
}

// TestForeign: what is not ours, damaged or of another key is a miss.
func TestForeign(t *testing.T) {
	s := start(t)
	st := open(t, Options{URL: s.url(s.addr, "")})
	body := []byte("some body that is long enough")
	sp := &spool{s: st}
	sp.Write(body)
	good := append(appendFront(nil, front{key: []byte("key"), head: []byte("head of key"), size: int64(len(body)), sum: sp.sum}), body...)
	sp.close()
	raw(t, st, st.name("key"), good)
	mustHave(t, st, "key", string(body))
	for i := range good {
		if i%7 != 0 && i > preamble { // each request costs a little
			continue
		}
		bad := bytes.Clone(good)
		bad[i] ^= 1
		raw(t, st, st.name("key"), bad)
		if _, err := storetest.GetText(st, "key"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("byte %d is another: %v", i, err)
		}
	}
	for _, n := range []int{1, preamble - 1, preamble, len(good) - 1} {
		raw(t, st, st.name("key"), good[:n])
		if _, err := storetest.GetText(st, "key"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	raw(t, st, st.name("other"), good)
	if _, err := storetest.GetText(st, "other"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another key's object: %v", err)
	}
	if st.Stats().Down {
		t.Error("the store is down for what it found")
	}
}

// TestRestart kills the server in the midst of work, and starts it again.
func TestRestart(t *testing.T) {
	s := start(t)
	var log logged
	st := open(t, Options{URL: s.url(s.addr, ""), ErrorLog: slog.New(slog.NewTextHandler(&log, nil))})
	if err := storetest.PutText(st, "kept", "body"); err != nil {
		t.Fatal(err)
	}
	w, err := st.Create(t.Context(), "late", -1)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, "late")
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprint("key ", i)
				if err := storetest.PutText(st, key, strings.Repeat(key, 1000)); err != nil {
					if !errors.Is(err, store.ErrDown) {
						t.Errorf("put: %v", err)
					}
					time.Sleep(time.Millisecond)
				}
				if body, err := storetest.GetText(st, key); err == nil && body != strings.Repeat(key, 1000) {
					t.Error("half an object")
				}
			}
		})
	}
	s.Kill()
	servertest.Eventually(t, "the store is down", func() bool { return st.Stats().Down })
	if _, err := storetest.GetText(st, "kept"); !errors.Is(err, store.ErrDown) {
		t.Errorf("get while it is down: %v", err)
	}
	if _, err := st.Create(t.Context(), "key", 1); !errors.Is(err, store.ErrDown) {
		t.Errorf("create while it is down: %v", err)
	}
	if err := w.Commit([]byte("head of late")); !errors.Is(err, store.ErrDown) {
		t.Errorf("commit while it is down: %v", err)
	}
	s.run()
	servertest.Eventually(t, "the store is back", func() bool { return !st.Stats().Down })
	close(stop)
	all.Wait()
	mustHave(t, st, "kept", "body")
	if _, err := storetest.GetText(st, "late"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("what could not be committed: %v", err)
	}
	if !log.has("s3 does not work")() || !log.has("s3 answers")() {
		t.Errorf("the log says:\n%s", &log.b)
	}
	if log.has(s.secret)() || log.has(escapedSecret(s.secret))() {
		t.Error("the secret is in the log")
	}
}

// TestNoServer: Open does not fail; calls fail quickly, and later at once.
func TestNoServer(t *testing.T) {
	st := open(t, Options{URL: "s3+http://key:secret@127.0.0.1:" + servertest.FreePort(t) + "/bucket"})
	if _, err := storetest.GetText(st, "key"); !errors.Is(err, store.ErrDown) {
		t.Errorf("get: %v", err)
	}
	servertest.Eventually(t, "the store is down", func() bool { return st.Stats().Down })
	for range 1000 { // with a request each, that would take minutes
		if _, err := storetest.GetText(st, "key"); !errors.Is(err, store.ErrDown) {
			t.Fatalf("get: %v", err)
		}
	}
}

// TestMistakes: the error says what to look at, and never the secret.
func TestMistakes(t *testing.T) {
	s := start(t)
	for name, c := range map[string]struct{ url, says string }{
		"secret": {"s3+http://" + s.key + ":wrong%2Fsecret@" + s.addr + "/millrace", "check the secret"},
		"key":    {"s3+http://WRONGKEY:" + escapedSecret(s.secret) + "@" + s.addr + "/millrace", "check the access key"},
		"bucket": {strings.Replace(s.url(s.addr, ""), "millrace", "nothing", 1), "s3 mb s3://nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			var log logged
			st := open(t, Options{URL: c.url, ErrorLog: slog.New(slog.NewTextHandler(&log, nil))})
			_, gets := storetest.GetText(st, "key")
			puts := storetest.PutText(st, "key", "body")
			walks := st.Walk(t.Context(), func(string, []byte, int64) error { return nil })
			for _, err := range []error{gets, puts, walks} {
				if !errors.Is(err, store.ErrDown) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v", err)
				}
				for _, secret := range []string{s.secret, escapedSecret(s.secret), "wrong/secret", "wrong%2Fsecret"} {
					if strings.Contains(err.Error(), secret) || log.has(secret)() {
						t.Errorf("the secret is told: %v", err)
					}
				}
			}
			servertest.Eventually(t, "the log says it", log.has(c.says))
		})
	}
}

// slowly forwards connections to the server; while held, nothing comes back.
type slowly struct {
	l    net.Listener
	mu   sync.Mutex
	held bool
	cond *sync.Cond
	all  sync.WaitGroup
}

func startSlowly(t *testing.T, to string) *slowly {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &slowly{l: l}
	p.cond = sync.NewCond(&p.mu)
	p.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.forward(c, to) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.hold(false)
		p.all.Wait()
	})
	return p
}

func (p *slowly) forward(c net.Conn, to string) {
	defer c.Close()
	up, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer up.Close()
	p.all.Go(func() {
		io.Copy(up, c)
		up.Close()
	})
	b := make([]byte, 4096)
	for {
		n, err := up.Read(b)
		p.mu.Lock()
		for p.held {
			p.cond.Wait()
		}
		p.mu.Unlock()
		if _, werr := c.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (p *slowly) hold(held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
	p.cond.Broadcast()
}

// TestSlow: a server that is silent holds nobody longer than his context, nor
// longer than Timeout, and is soon asked no more.
func TestSlow(t *testing.T) {
	s := start(t)
	p := startSlowly(t, s.addr)
	url := s.url(p.l.Addr().String(), "")
	st := open(t, Options{URL: url})
	if err := storetest.PutText(st, "key", "body"); err != nil {
		t.Fatal(err)
	}
	p.hold(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := st.Get(ctx, "key"); !errors.Is(err, context.DeadlineExceeded) { // Timeout is far away
		t.Errorf("get with a deadline: %v", err)
	}
	if st.Stats().Down {
		t.Error("a caller's impatience made the store down")
	}
	p.hold(false)
	mustHave(t, st, "key", "body")
	p.hold(true)
	impatient := open(t, Options{URL: url, Timeout: 50 * time.Millisecond})
	for range slowCalls {
		if _, err := storetest.GetText(impatient, "key"); !errors.Is(err, store.ErrDown) {
			t.Errorf("get: %v", err)
		}
	}
	servertest.Eventually(t, "the store is down", func() bool { return impatient.Stats().Down })
	p.hold(false)
}

// TestCloseBreaksOff: Close does not wait for a silent server.
func TestCloseBreaksOff(t *testing.T) {
	s := start(t)
	p := startSlowly(t, s.addr)
	st := open(t, Options{URL: s.url(p.l.Addr().String(), ""), Timeout: time.Hour})
	if err := storetest.PutText(st, "key", "body"); err != nil {
		t.Fatal(err)
	}
	p.hold(true)
	done := make(chan error)
	go func() {
		_, err := storetest.GetText(st, "key")
		done <- err
	}()
	servertest.Eventually(t, "the call is under way", func() bool { return len(st.calls) > 0 })
	st.Close()
	if err := <-done; !errors.Is(err, store.ErrDown) {
		t.Errorf("get while closing: %v", err)
	}
}

// TestNothingLeft: neither bodies that were aborted nor temporary files.
func TestNothingLeft(t *testing.T) {
	s := start(t)
	t.Setenv("TMPDIR", t.TempDir())
	st := open(t, Options{URL: s.url(s.addr, "")})
	w, err := st.Create(t.Context(), "key", -1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(os.Getenv("TMPDIR"))
	if len(files) != 0 || err != nil {
		t.Errorf("temporary files: %v, %v", files, err)
	}
	w.Abort()
	if err := st.Walk(t.Context(), func(key string, _ []byte, _ int64) error {
		t.Errorf("there is %q", key)
		return nil
	}); err != nil {
		t.Error(err)
	}
}
