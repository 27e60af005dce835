package engine_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/cache/control"
	"millrace/cache/purge"
	"millrace/internal/process/servertest"
)

// machines are servers that share one Redis. The last of them reaches it over a relay.
type machines struct {
	redis  *snapshots
	relay  *servertest.Relay
	conns  []*conn
	caches *control.Client // of the first
	yaml   string          // of the others
}

func startMachines(t *testing.T, n int, off bool, options string) *machines {
	t.Helper()
	m := &machines{redis: startSnapshots(t)}
	m.relay = servertest.NewRelay(t, "127.0.0.1:"+m.redis.port)
	url, _ := api(t, 0)
	for i := range n {
		to := "127.0.0.1:" + m.redis.port
		if i == n-1 {
			to = m.relay.Addr()
		}
		yaml := fmt.Sprintf("listen: 127.0.0.1:0\nlane: {off: %v}\nsites: [{routes: {/: {cache: {to: %q, shared: \"redis://%s\"%s}}}}]", off, url, to, options)
		srv, caches := startWithAdmin(t, yaml)
		c := dial(t, srv.Addrs()[0])
		_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
		m.conns = append(m.conns, c)
		if i == 0 {
			m.caches, m.yaml = caches, yaml
		}
	}
	believe(t, m.conns[0], m.conns[n-1])
	return m
}

// purge purges at the first machine.
func (m *machines) purge(t *testing.T, path, wait string) error {
	t.Helper()
	_, err := m.caches.Purge(t.Context(), control.Purge{Selector: purge.Selector{URL: "http://s" + path, Hard: true}, Wait: wait})
	return err
}

// listening is how many machines Redis knows.
func (m *machines) listening() int {
	var n int
	answer, err := m.redis.ask("HLEN millrace:{millrace:messages}machines")
	if err == nil {
		_, err = fmt.Sscanf(answer, ":%d", &n)
	}
	if err != nil {
		return -1
	}
	return n
}

// fetched has the last machine serve a path from its memory, and returns the answer.
func (m *machines) fetched(t *testing.T, path string) string {
	t.Helper()
	last := m.conns[len(m.conns)-1]
	_, body := last.get("s", path)
	for range 3 { // the lane has it as well
		if _, again := last.get("s", path); again != body {
			t.Fatalf("%q is not kept: it is %q then", body, again)
		}
	}
	return body
}

// TestCutOff: a machine that was cut off from Redis serves nothing that was purged meanwhile,
// from the first request on that comes when it can reach Redis again. As long as it cannot,
// it goes on with what it has.
func TestCutOff(t *testing.T) {
	for name, cut := range map[string]func(*servertest.Relay){"refused": (*servertest.Relay).Refuse, "lost": (*servertest.Relay).Lose} {
		servertest.WithLaneAndWithout(t, func(t *testing.T, off bool) {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // it waits more than it works
				m := startMachines(t, 3, off, ", stale_while_revalidate: 1h, stale_if_error: 1h")
				for i := range 3 {
					path := fmt.Sprint("/x/", i)
					old := m.fetched(t, path)
					cut(m.relay)
					servertest.Eventually(t, "the one that is cut off is named", func() bool {
						err := m.purge(t, path, "50ms")
						return control.Unannounced(err) && strings.Contains(err.Error(), "not yet on")
					})
					time.Sleep(1500 * time.Millisecond) // it knows by now
					begin := time.Now()
					if _, body := m.conns[2].get("s", path); body != old {
						t.Errorf("while it is cut off: %q, not %q", body, old)
					}
					if took := time.Since(begin); took > time.Second {
						t.Errorf("while it is cut off, an answer took %v", took)
					}
					m.relay.Heal()
					for range 20 {
						if _, body := m.conns[2].get("s", path); body == old {
							t.Fatalf("round %d: after the heal: %q, which was purged", i, body)
						}
					}
					servertest.Eventually(t, "all machines have the next purge", func() bool { return m.purge(t, path, "5s") == nil })
				}
			})
		})
	}
}

// TestTrimmedWhileCutOff: purges that a machine can never hear, since the stream was trimmed
// meanwhile, are not missed either.
func TestTrimmedWhileCutOff(t *testing.T) {
	for _, trim := range []string{"XTRIM millrace:messages MAXLEN 1", "XTRIM millrace:messages MAXLEN 0", "DEL millrace:messages"} {
		servertest.WithLaneAndWithout(t, func(t *testing.T, off bool) {
			m := startMachines(t, 2, off, ", stale_while_revalidate: 1h")
			old := m.fetched(t, "/x")
			m.relay.Refuse()
			if err := m.purge(t, "/x", ""); err != nil {
				t.Fatal(err)
			}
			if err := m.purge(t, "/other", ""); err != nil {
				t.Fatal(err)
			}
			if _, err := m.redis.ask(trim); err != nil {
				t.Fatal(err)
			}
			m.relay.Heal()
			for range 20 {
				if _, body := m.conns[1].get("s", "/x"); body == old {
					t.Fatalf("%s: %q, which was purged", trim, body)
				}
			}
		})
	}
}

// TestStartAfterTrimming: a machine that starts when the stream does not reach back to the
// beginning of the server's run takes from Redis what was stored after an announcement that is
// still there, and not what may be older than a purge that is not.
func TestStartAfterTrimming(t *testing.T) {
	m := startMachines(t, 2, false, "")
	a := m.conns[0]
	old := m.fetched(t, "/old")
	m.redis.holds("http://s/old")
	for _, path := range []string{"/old", "/1", "/2"} {
		if err := m.purge(t, path, "5s"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.redis.ask("XTRIM millrace:messages MAXLEN 2"); err != nil {
		t.Fatal(err)
	}
	if err := m.purge(t, "/3", "5s"); err != nil {
		t.Fatal(err)
	}
	_, young := a.get("s", "/young")
	m.redis.holds("http://s/young")
	c := dial(t, start(t, parse(t, m.yaml)).Addrs()[0])
	servertest.Eventually(t, "the new one listens", func() bool { return m.purge(t, "/4", "5s") == nil && m.listening() == 3 })
	if _, body := c.get("s", "/young"); body != young {
		t.Errorf("what was stored after the last purge is not taken from Redis: %q, not %q", body, young)
	}
	if _, body := c.get("s", "/old"); body == old {
		t.Errorf("%q, which was purged", body)
	}
}

// TestMonth: a machine comes back after so long that the stream does not reach back to its
// last run. What was purged meanwhile is not served from its disk; what it could not tell the
// others is told.
func TestMonth(t *testing.T) {
	redis := startSnapshots(t)
	relay := servertest.NewRelay(t, "127.0.0.1:"+redis.port)
	url, _ := api(t, 0)
	dir := t.TempDir()
	yaml := func(disk, address string) string {
		return fmt.Sprintf("listen: 127.0.0.1:0\nsites: [{routes: {/: {cache: {to: %q, disk: %q, stale_while_revalidate: 1h, shared: \"redis://%s\"}}}}]", url, disk, address)
	}
	one, caches := startWithAdmin(t, yaml("", "127.0.0.1:"+redis.port))
	a := dial(t, one.Addrs()[0])
	var old, others string
	t.Run("a month ago", func(t *testing.T) {
		srv, mine := startWithAdmin(t, yaml(dir, relay.Addr()))
		b := dial(t, srv.Addrs()[0])
		believe(t, a, b)
		for range 3 { // the second request has it written to the disk
			_, old = b.get("s", "/x")
		}
		_, others = a.get("s", "/y")
		relay.Refuse()
		servertest.Eventually(t, "it is cut off", func() bool {
			_, err := mine.Purge(t.Context(), control.Purge{Selector: purge.Selector{URL: "http://s/y", Hard: true}})
			return control.Unannounced(err)
		})
	})
	for _, path := range []string{"/x", "/z"} {
		if _, err := caches.Purge(t.Context(), control.Purge{Selector: purge.Selector{URL: "http://s" + path, Hard: true}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 300 { // longer than what one reads at once
		if _, err := redis.ask("XADD millrace:messages * from x"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := redis.ask("XTRIM millrace:messages MAXLEN 200"); err != nil {
		t.Fatal(err)
	}
	relay.Heal()
	b := dial(t, start(t, parse(t, yaml(dir, relay.Addr()))).Addrs()[0])
	for range 20 {
		if _, body := b.get("s", "/x"); body == old {
			t.Fatalf("%q was purged in that month", body)
		}
	}
	servertest.Eventually(t, "the others hear of its purge", func() bool { _, body := a.get("s", "/y"); return body != others })
}

// TestPurgeOverHTTP: POST /cache/purge waits, too, and names who does not have it.
func TestPurgeOverHTTP(t *testing.T) {
	m := startMachines(t, 2, false, "")
	ask := func(body string) (*http.Response, string) {
		t.Helper()
		resp, err := m.caches.HTTP.Post(m.caches.Base+control.Prefix+"purge", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var b strings.Builder
		if err := resp.Write(&b); err != nil {
			t.Fatal(err)
		}
		return resp, b.String()
	}
	if resp, body := ask(`{"tag": "x", "wait": "10s"}`); resp.StatusCode != http.StatusOK {
		t.Errorf("%s", body)
	}
	m.relay.Refuse()
	if resp, body := ask(`{"tag": "x", "wait": "100ms"}`); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, `"missing":["`) {
		t.Errorf("%s", body)
	}
	for _, wait := range []string{"x", "-1s", "0s", "1h"} {
		if resp, body := ask(`{"tag": "x", "wait": "` + wait + `"}`); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s", body)
		}
	}
}
