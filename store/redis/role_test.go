package redis

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/store"
	"millrace/store/storetest"
)

// lines is a log that may be read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// TestReplica: a server that becomes another one's replica is down, which one line says
// with its name, and works again when it is none any more.
func TestReplica(t *testing.T) {
	t.Parallel() // it waits more than it works
	master, s := start(t), start(t)
	var heard told
	var log lines
	r := open(t, Options{URL: s.url(), Message: heard.message, Began: heard.began, ErrorLog: slog.New(slog.NewTextHandler(&log, nil))})
	servertest.Eventually(t, "it listens", r.caughtUp.Load)
	roundTrip(t, r, "key", "body")
	s.follow(master)
	servertest.Eventually(t, "it is down", func() bool { return r.Stats().Down })
	time.Sleep(2 * checkEvery)
	if err := storetest.PutText(r, "key", "body"); !errors.Is(err, store.ErrDown) {
		t.Errorf("writing to a replica: %v", err)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "server="+s.addr) {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
	s.do("REPLICAOF NO ONE")
	begin := time.Now()
	servertest.Eventually(t, "it works again", func() bool {
		_, err := storetest.GetText(r, "key")
		return storetest.PutText(r, "key", "body") == nil && err == nil
	})
	t.Logf("it worked again after %v", time.Since(begin))
	if len(heard.runs) != 2 {
		t.Errorf("the runs %q: what the server has is another one's", heard.runs)
	}
}

// replicated starts a master and its replica, which has all of it.
func replicated(t *testing.T) (master, replica *server) {
	t.Helper()
	master, replica = start(t), start(t)
	replica.follow(master)
	return master, replica
}

// follow makes a server the replica of another one.
func (s *server) follow(master *server) {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(master.addr)
	s.do("REPLICAOF %s %s", host, port)
	servertest.Eventually(s.t, "it is a replica", func() bool {
		return s.do(`EVAL "return string.find(redis.call('INFO', 'replication'), 'master_link_status:up', 1, true) and 1 or 0" 0`) == ":1"
	})
}

func (s *server) isMaster() bool {
	answer, err := s.try(`EVAL "return string.find(redis.call('INFO', 'replication'), 'role:master', 1, true) and 1 or 0" 0`)
	return err == nil && answer == ":1"
}

// healed waits until a store works, and returns how long that took since begin.
func healed(t *testing.T, r *Redis, begin time.Time) time.Duration {
	t.Helper()
	servertest.Eventually(t, "it works", func() bool {
		if storetest.PutText(r, "healed", "body") != nil || r.Publish(t.Context(), []byte("healed")) != nil {
			return false
		}
		_, err := storetest.GetText(r, "healed")
		return err == nil
	})
	return time.Since(begin)
}

// TestMasterAndReplica: of a list of servers that are no cluster the master is used, also
// after another one became it; two masters are refused.
func TestMasterAndReplica(t *testing.T) {
	t.Parallel() // it waits more than it works
	one, two := replicated(t)
	for _, list := range []string{one.addr + "," + two.addr, two.addr + "," + one.addr} {
		roundTrip(t, open(t, Options{URL: "redis://" + list + "/2"}), "key", list)
	}
	var heard told
	var log lines
	r := open(t, Options{
		URL: "redis://" + two.addr + "," + one.addr, Message: heard.message, Began: heard.began, Timeout: defaultTimeout,
		ErrorLog: slog.New(slog.NewTextHandler(&log, nil)),
	})
	healed(t, r, time.Now())
	one.Kill()
	two.do("REPLICAOF NO ONE")
	t.Logf("it works with the new master after %v", healed(t, r, time.Now()))
	one.run() // as a master of its own: nobody has told it
	if got := r.server(); got != two.addr {
		t.Errorf("it uses %s", got)
	}
	late := open(t, Options{URL: "redis://" + two.addr + "," + one.addr, ErrorLog: slog.New(slog.NewTextHandler(&log, nil))})
	if err := storetest.PutText(late, "key", "body"); !errors.Is(err, store.ErrDown) {
		t.Errorf("with two masters: %v", err)
	}
	one.follow(two)
	healed(t, late, time.Now())
	two.Kill()
	one.do("REPLICAOF NO ONE")
	healed(t, r, time.Now())
	if text := log.String(); !strings.Contains(text, "server="+one.addr) || !strings.Contains(text, "server="+two.addr) || strings.Count(text, "each of its own") != 1 {
		t.Errorf("the log:\n%s", text)
	}
	if len(heard.runs) != 3 {
		t.Errorf("the runs %q", heard.runs)
	}
}

// sentinel starts one that watches a master.
func sentinel(t *testing.T, master *server, lines ...string) *server {
	t.Helper()
	s := &server{Process: servertest.New(t), t: t, dir: t.TempDir(), network: "tcp"}
	port := servertest.FreePort(t)
	s.addr = "127.0.0.1:" + port
	host, at, _ := net.SplitHostPort(master.addr)
	config := filepath.Join(s.dir, "sentinel.conf")
	lines = append([]string{
		"port " + port, "bind 127.0.0.1", "sentinel monitor shop " + host + " " + at + " 1",
		"sentinel down-after-milliseconds shop 500", "sentinel failover-timeout shop 3000",
	}, lines...)
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = []string{config, "--sentinel"}
	s.run()
	s.ask("SENTINEL DEBUG info-period 200") // it looks at the servers every 10 s otherwise
	servertest.Eventually(t, "the Sentinel knows the replica", func() bool {
		return strings.Contains(s.ask("SENTINEL REPLICAS shop"), "master-link-status\r\n$2\r\nok")
	})
	return s
}

// ask returns the whole answer of a Sentinel.
func (s *server) ask(command string) string {
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond)) // it has no QUIT
	if _, err := fmt.Fprintf(c, "AUTH watch\r\n%s\r\n", command); err != nil {
		return err.Error()
	}
	text, _ := io.ReadAll(c)
	return string(text)
}

// TestSentinel: when Sentinels have made another server the master, that one is used, whether
// the old one was killed, hangs, or was told to give way. One line says what was lost.
func TestSentinel(t *testing.T) {
	t.Parallel() // it waits more than it works
	for name, fail := range map[string]func(master, sentinel *server){
		"killed": func(master, _ *server) { master.Kill() },
		"hangs":  func(master, _ *server) { master.Signal(syscall.SIGSTOP) },
		"told":   func(_, sentinel *server) { sentinel.do("SENTINEL FAILOVER shop") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master, replica := replicated(t)
			watch := sentinel(t, master)
			var heard told
			var log lines
			r := open(t, Options{
				URL: "redis-sentinel://127.0.0.1:1," + watch.addr + "?master=shop", Message: heard.message, Began: heard.began, Timeout: defaultTimeout,
				ErrorLog: slog.New(slog.NewTextHandler(&log, nil)),
			})
			healed(t, r, time.Now())
			if got := r.server(); got != master.addr {
				t.Errorf("it uses %s, the master is %s", got, master.addr)
			}
			fail(master, watch)
			_, port, _ := net.SplitHostPort(replica.addr)
			var begin time.Time
			servertest.Eventually(t, "the replica is the master", func() bool {
				begin = time.Now()
				return strings.Contains(watch.ask("SENTINEL GET-MASTER-ADDR-BY-NAME shop"), port)
			})
			servertest.Eventually(t, "it uses the new master", func() bool { return r.server() == replica.addr })
			took := healed(t, r, begin)
			t.Logf("it works again %v after that", took)
			if took > 5*time.Second { // 2 s on a machine that has nothing else to do
				t.Error("that is too long")
			}
			servertest.Eventually(t, "the run of the new master", func() bool { heard.mu.Lock(); defer heard.mu.Unlock(); return len(heard.runs) > 1 })
			text := log.String()
			if n := strings.Count(text, "level=WARN"); n > 1 || n == 1 && !strings.Contains(text, "server="+master.addr) {
				t.Errorf("%d warnings:\n%s", n, text)
			}
			if name == "hangs" {
				master.Signal(syscall.SIGCONT)
				servertest.Eventually(t, "the old one is a replica", func() bool { return !master.isMaster() })
				if got, err := storetest.GetText(r, "healed"); got != "body" || r.server() != replica.addr {
					t.Errorf("afterwards: %q, %v from %s", got, err, r.server())
				}
			}
		})
	}
}

// TestSentinelPasswords: Sentinels have a password of their own; a name of a master that they do
// not know is told.
func TestSentinelPasswords(t *testing.T) {
	t.Parallel() // it waits more than it works
	master, replica := start(t, "--requirepass", "data", "--masterauth", "data"), start(t, "--masterauth", "data")
	replica.follow(master)
	watch := sentinel(t, master, "requirepass watch", "sentinel sentinel-pass watch", "sentinel auth-pass shop data")
	url := "redis-sentinel://:data@" + watch.addr + "?sentinel_password=watch&master="
	roundTrip(t, open(t, Options{URL: url + "shop"}), "key", "body")
	var log lines
	r := open(t, Options{URL: url + "other", ErrorLog: slog.New(slog.NewTextHandler(&log, nil))})
	if err := storetest.PutText(r, "key", "body"); !errors.Is(err, store.ErrDown) {
		t.Errorf("with a wrong name: %v", err)
	}
	r.Close()
	if text := log.String(); !strings.Contains(text, "No such master") || strings.Contains(text, "watch") || strings.Contains(text, "data") {
		t.Errorf("the log:\n%s", text)
	}
}
