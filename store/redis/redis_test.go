package redis

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/store"
	"millrace/store/storetest"
)

func TestStore(t *testing.T) {
	s := start(t)
	reopen := func(t *testing.T) store.Store { return open(t, Options{URL: s.url()}) }
	fresh := func(t *testing.T) store.Store {
		s.do("FLUSHALL")
		return reopen(t)
	}
	storetest.Run(t, fresh, reopen)
}

// roundTrip puts an object and gets it again.
func roundTrip(t *testing.T, r *Redis, key, body string) {
	t.Helper()
	if err := storetest.PutText(r, key, body); err != nil {
		t.Fatal(err)
	}
	if got, err := storetest.GetText(r, key); err != nil || got != body {
		t.Fatalf("got %.50q, %v; want %.50q", got, err, body)
	}
}

// TestUnixSocket, with a password and a database of its own.
func TestUnixSocket(t *testing.T) {
	socket := filepath.Join(socketDir(t), "redis.sock")
	s := start(t, "--unixsocket", socket, "--requirepass", "open:sesame")
	roundTrip(t, open(t, Options{URL: "unix://:open%3Asesame@" + socket + "?db=3"}), "key", "body")
	other := open(t, Options{URL: "redis://:open%3Asesame@" + s.addr + "/4"})
	if _, err := storetest.GetText(other, "key"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("from another database: %v", err)
	}
	roundTrip(t, open(t, Options{URL: "redis://default:open%3Asesame@" + s.addr + "/3"}), "key", "another")
}

// TestWrongPassword: the store is down, and the log tells why but not the password.
func TestWrongPassword(t *testing.T) {
	s := start(t, "--requirepass", "right")
	var log bytes.Buffer
	r := open(t, Options{URL: "redis://:not-the-one@" + s.addr, ErrorLog: slog.New(slog.NewTextHandler(&log, nil))})
	if err := storetest.PutText(r, "key", "body"); !errors.Is(err, store.ErrDown) {
		t.Errorf("put: %v", err)
	}
	r.Close()
	if !strings.Contains(log.String(), "WRONGPASS") || strings.Contains(log.String(), "not-the-one") {
		t.Errorf("the log says:\n%s", &log)
	}
}

func TestTLS(t *testing.T) {
	cert, key := servertest.Files(t, servertest.Make(t, "redis"), t.TempDir())
	port := servertest.FreePort(t)
	start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no")
	url := "rediss://127.0.0.1:" + port
	r := open(t, Options{URL: url + "?ca=" + cert})
	roundTrip(t, r, "key", strings.Repeat("body", 100_000))
	roundTrip(t, open(t, Options{URL: url + "?skip_verify=true"}), "key", "body")
	untrusting := open(t, Options{URL: url})
	if err := storetest.PutText(untrusting, "key", "secret"); !errors.Is(err, store.ErrDown) {
		t.Errorf("with a certificate that is not trusted: %v", err)
	}
}

// TestBounds of bodies, heads, buffers and messages.
func TestBounds(t *testing.T) {
	s := start(t)
	r := open(t, Options{URL: s.url(), Largest: 1000})
	roundTrip(t, r, "fits", strings.Repeat("x", 1000))
	if err := storetest.PutText(r, "large", strings.Repeat("x", 1001)); !errors.Is(err, store.ErrFull) {
		t.Errorf("announced too large: %v", err)
	}
	w, err := r.Create(t.Context(), "large", -1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 1001)); !errors.Is(err, store.ErrFull) {
		t.Errorf("grown too large: %v", err)
	}
	if err := w.Commit(make([]byte, mostHead+1)); !errors.Is(err, store.ErrFull) {
		t.Errorf("a head of %d bytes: %v", mostHead+1, err)
	}
	if err := r.Publish(t.Context(), make([]byte, mostMessage+1)); err == nil {
		t.Error("a message too large is published")
	}

	large := open(t, Options{URL: s.url(), Largest: 16 << 20})
	var held []store.Writer
	for {
		w, err := large.Create(t.Context(), "key", 16<<20-headRoom)
		if err != nil {
			if !errors.Is(err, store.ErrFull) {
				t.Error(err)
			}
			break
		}
		held = append(held, w)
	}
	if len(held) != mostBuffered>>24 {
		t.Errorf("%d writers of 16 MiB are possible at once", len(held))
	}
	for _, w := range held {
		w.Abort()
	}
	if n := large.buffered.Load() + r.buffered.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
	if _, err := Open(Options{URL: s.url(), Largest: mostLargest + 1}); err == nil {
		t.Error("Largest has no bound")
	}
}

// TestServerFull: Redis at its limit that may not evict is not a server that is down.
func TestServerFull(t *testing.T) {
	s := start(t, "--maxmemory", "4mb", "--maxmemory-policy", "noeviction")
	r := open(t, Options{URL: s.url()})
	roundTrip(t, r, "small", "x")
	var err error
	for range 10 {
		if err = storetest.PutText(r, "a"+strings.Repeat("b", 9), strings.Repeat("x", 4<<20)); err != nil {
			break
		}
	}
	if !errors.Is(err, store.ErrFull) || r.Stats().Down {
		t.Errorf("with a full server: %v, %+v", err, r.Stats())
	}
}

// TestPrefix: two sites in one Redis have neither objects nor messages nor counts in common,
// and a user with rights to the keys of one needs no others.
func TestPrefix(t *testing.T) {
	s := start(t)
	rights := "+get +set +touch +unlink +exists +xadd +xrange +xread +hset +hdel +hgetall +time +eval +evalsha +script|load +ping +hello +select +client +cluster|slots +cluster|shards +info +dbsize"
	var stores []*Redis
	var heard [2]told
	for i, site := range []string{"one", "one-more"} {
		s.do("ACL SETUSER %s on >secret ~%s:* %s", site, site, rights)
		var log lines
		r := open(t, Options{
			URL: "redis://" + site + ":secret@" + s.addr + "?prefix=" + site, Message: heard[i].message, Began: heard[i].began,
			ErrorLog: slog.New(slog.NewTextHandler(&log, nil)),
		})
		servertest.Eventually(t, site+" listens", r.caughtUp.Load)
		roundTrip(t, r, "key", site)
		if counted, err := r.Count(t.Context(), []Count{{Name: "client", Cost: time.Minute}}); err != nil || counted[0].Ahead > time.Minute {
			t.Errorf("%s counts from %v: %v", site, counted, err)
		}
		if err := r.Publish(t.Context(), []byte("of "+site)); err != nil {
			t.Error(err)
		}
		servertest.Eventually(t, site+" hears itself", heard[i].has("of "+site))
		if strings.Contains(log.String(), "WARN") {
			t.Errorf("with the rights of the manual:\n%s", log.String())
		}
		stores = append(stores, r)
	}
	roundTrip(t, stores[0], "key", "again")
	if got, err := storetest.GetText(stores[1], "key"); got != "one-more" {
		t.Errorf("the other site has %q, %v", got, err)
	}
	for i := range heard {
		if lost, m := heard[i].count(); lost != 0 || len(strings.Fields(m)) != 2 || len(heard[i].runs) != 1 {
			t.Errorf("site %d heard %q, in the runs %q", i, m, heard[i].runs)
		}
	}
	if n := s.do(`EVAL "local n = 0 for _, k in ipairs(redis.call('keys', '*')) do if string.sub(k, 1, 4) ~= 'one:' and string.sub(k, 1, 9) ~= 'one-more:' then n = n + 1 end end return n" 0`); n != ":0" {
		t.Errorf("%s keys are not below a prefix", n)
	}
}

// TestExpire: Redis forgets an object when its writer says so, and what it is told to be used
// counts as such.
func TestExpire(t *testing.T) {
	t.Parallel() // it waits more than it works
	s := start(t)
	r := open(t, Options{URL: s.url()})
	w, err := r.Create(t.Context(), "key", 4)
	if err != nil {
		t.Fatal(err)
	}
	w.(store.Expiring).Expire(time.Minute)
	_, _ = w.Write([]byte("body"))
	if err := w.Commit(nil); err != nil {
		t.Fatal(err)
	}
	if left := s.do("PTTL millrace:o:key"); len(left) > len(":60000") || left > ":60000" {
		t.Errorf("it is forgotten in %s ms", left)
	}
	idle := func() string { return s.do("OBJECT IDLETIME millrace:o:key") }
	servertest.Eventually(t, "it has not been used for a while", func() bool { return idle() > ":1" })
	if err := r.Touch(t.Context(), []string{"none", "key"}); err != nil {
		t.Fatal(err)
	}
	if got := idle(); got > ":1" {
		t.Errorf("after it was used: idle for %s s", got)
	}
}

// TestRefusals: one line says what the server refuses, and what can be done about it.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		args       []string
		set        string
		want, hint string
	}{
		"full":               {[]string{"--maxmemory", "100kb", "--maxmemory-policy", "noeviction"}, "", "OOM", "volatile-lru"},
		"too few replicas":   {[]string{"--min-replicas-to-write", "1"}, "", "NOREPLICAS", ""},
		"too old":            {[]string{"--rename-command", "XADD", ""}, "", "nknown", "too old"},
		"somebody else's":    {nil, "SET millrace:messages text", "WRONGTYPE", "another one with ?prefix="},
		"without the rights": {nil, "ACL SETUSER default -xadd", "can't run this command", "README.md"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, c.args...)
			if c.set != "" {
				s.do("%s", c.set)
			}
			var log lines
			r := open(t, Options{URL: s.url(), Message: func([]byte, bool) {}, ErrorLog: slog.New(slog.NewTextHandler(&log, nil))})
			for range 20 {
				_ = storetest.PutText(r, "key", "body")
				if err := r.Publish(t.Context(), []byte("message")); err == nil {
					t.Error("a message was published")
				}
			}
			r.Close()
			text := log.String()
			if strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, c.want) || !strings.Contains(text, c.hint) || !strings.Contains(text, "server="+s.addr) || !strings.Contains(text, "prefix=millrace:") {
				t.Errorf("the log:\n%s", text)
			}
		})
	}
}

// TestOldProtocol: a server that has no HELLO is spoken to as before that.
func TestOldProtocol(t *testing.T) {
	s := start(t, "--rename-command", "HELLO", "")
	var heard told
	r := open(t, Options{URL: s.url(), Message: heard.message})
	servertest.Eventually(t, "it listens", r.caughtUp.Load)
	roundTrip(t, r, "key", "body")
	if err := r.Publish(t.Context(), []byte("message")); err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, "a message", heard.has("message"))
	if counted, err := r.Count(t.Context(), []Count{{Name: "client", Cost: time.Second}}); err != nil || counted[0].Ahead < time.Second {
		t.Errorf("counting: %v, %v", counted, err)
	}
}

// TestForeignValue: what we have not written is not an object.
func TestForeignValue(t *testing.T) {
	s := start(t)
	r := open(t, Options{URL: s.url() + "?prefix=p"})
	s.do("SET p:o:string somebody-else")
	s.do("RPUSH p:o:list a")
	for _, key := range []string{"string", "list"} {
		if _, err := storetest.GetText(r, key); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", key, err)
		}
	}
	roundTrip(t, r, "list", "replaced")
	if ttl := s.do("PTTL p:o:list"); ttl == ":-1" {
		t.Error("an object has no expiry")
	}
}

// TestDownAtOpen: the server comes later.
func TestDownAtOpen(t *testing.T) {
	s := start(t)
	s.Kill()
	var heard told
	r := open(t, Options{URL: s.url(), Message: heard.message})
	if _, err := storetest.GetText(r, "key"); !errors.Is(err, store.ErrDown) || !r.Stats().Down {
		t.Errorf("without a server: %v, %+v", err, r.Stats())
	}
	if _, err := r.Create(t.Context(), "key", 1); !errors.Is(err, store.ErrDown) {
		t.Errorf("create without a server: %v", err)
	}
	if err := r.Delete(t.Context(), "key"); !errors.Is(err, store.ErrDown) {
		t.Errorf("delete without a server: %v", err)
	}
	s.run()
	servertest.Eventually(t, "the store works", func() bool { return storetest.PutText(r, "key", "body") == nil })
	if err := r.Publish(t.Context(), []byte("hello")); err != nil {
		t.Error(err)
	}
	if lost, _ := heard.count(); lost != 0 {
		t.Errorf("nothing could be lost before the first connection: %d", lost)
	}
}

// TestStopped: a server that hangs costs a few timeouts, then nothing.
func TestStopped(t *testing.T) {
	t.Parallel() // it waits more than it works
	s := start(t)
	r := open(t, Options{URL: s.url(), Timeout: 300 * time.Millisecond})
	servertest.Eventually(t, "the store works", func() bool { return storetest.PutText(r, "key", "body") == nil })
	s.Signal(syscall.SIGSTOP)
	w, _ := r.Create(t.Context(), "w", -1) // may be refused already
	servertest.Eventually(t, "the store is down", func() bool {
		if _, err := storetest.GetText(r, "key"); !errors.Is(err, store.ErrDown) {
			t.Fatalf("with a server that hangs: %v", err)
		}
		return r.Stats().Down
	})
	if w != nil {
		if err := w.Commit(nil); !errors.Is(err, store.ErrDown) {
			t.Errorf("commit: %v", err)
		}
	}
	s.Signal(syscall.SIGCONT)
	servertest.Eventually(t, "the store works again", func() bool { _, err := storetest.GetText(r, "key"); return err == nil })
}

// TestCloseWhileStopped does not hang.
func TestCloseWhileStopped(t *testing.T) {
	t.Parallel() // it waits more than it works
	s := start(t)
	r := open(t, Options{URL: s.url(), Message: func([]byte, bool) {}})
	servertest.Eventually(t, "it listens", r.caughtUp.Load)
	roundTrip(t, r, "key", "body")
	s.Signal(syscall.SIGSTOP)
	closed := make(chan struct{})
	go func() { r.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Error("Close hangs")
	}
	s.Kill()
	<-closed
}
