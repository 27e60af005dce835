package engine_test

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"millrace/cache/control"
	"millrace/cache/purge"
	"millrace/internal/process/servertest"
)

// snapshots is a Redis with snapshots, which are taken when the test says so.
type snapshots struct {
	*servertest.Process
	t                 *testing.T
	exe, port, folder string
	args              []string
}

func startSnapshots(t *testing.T, args ...string) *snapshots {
	t.Helper()
	exe, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is missing: install the package redis-server")
	}
	s := &snapshots{servertest.New(t), t, exe, servertest.FreePort(t), t.TempDir(), args}
	s.run()
	return s
}

func (s *snapshots) run() {
	s.t.Helper()
	args := append([]string{"--port", s.port, "--bind", "127.0.0.1", "--save", "", "--dir", s.folder}, s.args...)
	s.Run(exec.Command(s.exe, args...), 20*time.Second, func() error {
		answer, err := s.ask("PING")
		if err == nil && answer != "+PONG" {
			err = fmt.Errorf("it says %s", answer)
		}
		return err
	})
}

// ask sends an inline command, and returns the first line of the answer.
func (s *snapshots) ask(command string) (string, error) {
	text, err := s.text(command)
	line, _, _ := strings.Cut(text, "\r")
	return line, err
}

// text is ask with the whole answer.
func (s *snapshots) text(command string) (string, error) {
	nc, err := net.Dial("tcp", "127.0.0.1:"+s.port)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := fmt.Fprintf(nc, "%s\r\nQUIT\r\n", command); err != nil {
		return "", err
	}
	text, err := io.ReadAll(nc)
	return string(text), err
}

// holds waits until the answer for a URL is stored.
func (s *snapshots) holds(url string) {
	s.t.Helper()
	servertest.Eventually(s.t, url+" is in Redis", func() bool {
		answer, err := s.ask(`EVAL "return #redis.call('keys', ARGV[1])" 0 "millrace:o:*` + url + `*"`)
		return err == nil && answer == ":1"
	})
}

// TestRolledBackRedis: what was purged hard stays so for a machine that starts after
// Redis came back from a snapshot that is older than the purge, whether or not a machine
// that had heard of the purge is still there, and also if the new one has it on its disk.
func TestRolledBackRedis(t *testing.T) {
	for _, c := range []struct {
		name    string
		witness bool // the machines that have heard of the purge run on
		disk    bool // the machine that starts has a disk, of an earlier run
		off     bool // the lane
	}{
		{name: "seen", witness: true},
		{name: "unseen"},
		{name: "unseen, without the lane", off: true},
		{name: "disk", disk: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			redis := startSnapshots(t)
			url, _ := api(t, 0)
			yaml := func(disk string) string {
				return fmt.Sprintf("listen: 127.0.0.1:0\nlane: {off: %v}\nsites: [{routes: {/: {cache: {to: %q, disk: %q, shared: \"redis://127.0.0.1:%s\"}}}}]", c.off, url, disk, redis.port)
			}
			dir, old := "", map[string]bool{}
			if c.disk {
				dir = t.TempDir()
				t.Run("an earlier run", func(t *testing.T) {
					nc := dial(t, start(t, parse(t, yaml(dir))).Addrs()[0])
					_, body := nc.get("s", "/x")
					old[body] = true
					redis.holds("http://s/x")
				})
			}
			purged := func(t *testing.T) {
				one, caches := startWithAdmin(t, yaml(""))
				a, b := dial(t, one.Addrs()[0]), dial(t, start(t, parse(t, yaml(""))).Addrs()[0])
				believe(t, a, b)
				_, body := a.get("s", "/x")
				old[body] = true
				redis.holds("http://s/x")
				if answer, err := redis.ask("SAVE"); err != nil || answer != "+OK" {
					t.Fatalf("SAVE: %s, %v", answer, err)
				}
				if _, err := caches.Purge(t.Context(), control.Purge{Selector: purge.Selector{URL: "http://s/x", Hard: true}}); err != nil {
					t.Fatal(err)
				}
				redis.Kill()
			}
			if c.witness {
				purged(t)
			} else {
				t.Run("before", purged)
			}
			redis.run()
			b := dial(t, start(t, parse(t, yaml(dir))).Addrs()[0])
			if !c.disk { // what is on the disk must not come back either before Redis is there
				believe(t, dial(t, start(t, parse(t, yaml(""))).Addrs()[0]), b)
			}
			if _, body := b.get("s", "/x"); old[body] {
				t.Errorf("what was purged came back: %q", body)
			}
		})
	}
}

// believe waits until what one machine fetches is taken from Redis by another.
func believe(t *testing.T, from, by *conn) {
	t.Helper()
	n := 0
	servertest.Eventually(t, "one machine takes what the other has fetched", func() bool {
		n++
		path := fmt.Sprint("/believe/", n)
		_, body := from.get("s", path)
		time.Sleep(20 * time.Millisecond) // it is written in the background
		_, other := by.get("s", path)
		return other == body
	})
}

// TestFullRedis: with a Redis that has room for a part alone, and evicts all the time, the
// API is asked no more often than without one.
func TestFullRedis(t *testing.T) {
	const machines, paths, rounds = 3, 40, 3
	asks := func(t *testing.T, shared string) int64 {
		url, asked := api(t, 64<<10)
		yaml := fmt.Sprintf("listen: 127.0.0.1:0\nsites: [{routes: {/: {cache: {to: %q, shared: %q}}}}]", url, shared)
		var conns []*conn
		for range machines {
			conns = append(conns, dial(t, start(t, parse(t, yaml)).Addrs()[0]))
		}
		for range rounds {
			for i := range paths {
				for _, c := range conns {
					c.get("s", fmt.Sprint("/", i))
				}
			}
			time.Sleep(50 * time.Millisecond) // what Redis tells has arrived
		}
		return asked.Load()
	}
	alone := asks(t, "")
	if alone != machines*paths {
		t.Fatalf("without Redis: asked %d times", alone)
	}
	for _, policy := range []string{"allkeys-lru", "volatile-lru"} {
		redis := startSnapshots(t, "--maxmemory", "2mb", "--maxmemory-policy", policy)
		n := asks(t, "redis://127.0.0.1:"+redis.port)
		t.Logf("%s: asked %d times, %d without Redis", policy, n, alone)
		if n > alone {
			t.Errorf("%s: asked %d times, %d without Redis", policy, n, alone)
		}
		if stats, err := redis.text("INFO stats"); err != nil || strings.Contains(stats, "evicted_keys:0\r") {
			t.Errorf("%s: the test does not fill it: %v", policy, err)
		}
		if stream, err := redis.ask("EXISTS millrace:messages"); policy == "volatile-lru" && stream != ":1" {
			t.Errorf("the purges were evicted: %s, %v", stream, err)
		}
	}
}
