package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"millrace/cache/control"
	"millrace/cache/purge"
)

// change has a script change the value v of the answer for a URL in Redis, which keeps its
// expiry.
func (s *snapshots) change(url, script string) {
	s.t.Helper()
	text := fmt.Sprintf(`EVAL "for _, k in ipairs(redis.call('keys', 'millrace:o:*%s*')) do local v = redis.call('get', k) %s redis.call('set', k, v, 'keepttl') end return 1" 0`, url, script)
	if answer, err := s.ask(text); err != nil || answer != ":1" {
		s.t.Fatalf("%s: %s, %v", text, answer, err)
	}
}

// TestCutValues: a value in Redis of which something is missing is not an answer.
func TestCutValues(t *testing.T) {
	redis := startSnapshots(t)
	url, _ := api(t, 1000)
	yaml := fmt.Sprintf("listen: 127.0.0.1:0\nsites: [{routes: {/: {cache: {to: %q, shared: \"redis://127.0.0.1:%s\"}}}}]", url, redis.port)
	a, b := dial(t, start(t, parse(t, yaml)).Addrs()[0]), dial(t, start(t, parse(t, yaml)).Addrs()[0])
	believe(t, a, b)
	for name, cut := range map[string]string{
		"end": "v = string.sub(v, 1, -2)", "beginning": "v = string.sub(v, 2)", "middle": "v = string.sub(v, 1, 500) .. string.sub(v, 502)",
		"head": "v = string.sub(v, 1, 1100) .. string.sub(v, 1102)", "all": "v = ''", "others": "v = 'somebody else'",
	} {
		path := "/" + name
		_, whole := a.get("s", path)
		redis.holds("http://s" + path)
		redis.change("http://s"+path, cut)
		if status, got := b.get("s", path); status != 200 || len(strings.TrimRight(got, " 0123456789")) != len(path) || len(got) < 1000 || got == whole {
			t.Errorf("without its %s: %d, %.40q of %d bytes", name, status, got, len(got))
		}
	}
}

// TestOthersKeys: where somebody else has a key below the prefix, nothing is shared, which one
// line says, and the site goes on.
func TestOthersKeys(t *testing.T) {
	for _, key := range []string{"millrace:messages", "millrace:{millrace:messages}run"} {
		redis := startSnapshots(t)
		if answer, err := redis.ask("RPUSH " + key + " theirs"); err != nil || answer != ":1" {
			t.Fatal(answer, err)
		}
		url, asked := api(t, 0)
		srv, log := startLoud(t, fmt.Sprintf("listen: 127.0.0.1:0\nsites: [{routes: {/: {cache: {to: %q, shared: \"redis://127.0.0.1:%s\"}}}}]", url, redis.port))
		log.waitFor(t, "WRONGTYPE")
		c := dial(t, srv.Addrs()[0])
		for range 3 {
			if status, body := c.get("s", "/x"); status != 200 || body != "/x 1" {
				t.Errorf("%d, %q", status, body)
			}
		}
		time.Sleep(time.Second) // for more lines
		text := log.String()
		if n := strings.Count(text, "WRONGTYPE"); n != 1 || !strings.Contains(text, "prefix=millrace:") || !strings.Contains(text, "127.0.0.1:"+redis.port) {
			t.Errorf("%s: %d lines:\n%s", key, n, text)
		}
		if asked.Load() != 1 {
			t.Errorf("asked %d times", asked.Load())
		}
		if answer, err := redis.ask("TYPE " + key); err != nil || answer != "+list" {
			t.Errorf("%s is a %s, %v", key, answer, err)
		}
	}
}

// TestUsedKeys: Redis is told what is answered from memory, so that it does not evict that.
func TestUsedKeys(t *testing.T) {
	t.Parallel() // it waits more than it works
	redis := startSnapshots(t)
	url, _ := api(t, 0)
	srv := start(t, parse(t, fmt.Sprintf("listen: 127.0.0.1:0\nsites: [{routes: {/: {cache: {to: %q, shared: \"redis://127.0.0.1:%s\"}}}}]", url, redis.port)))
	c := dial(t, srv.Addrs()[0])
	idle := func(path string) string {
		t.Helper()
		answer, err := redis.ask(`EVAL "return redis.call('object', 'idletime', redis.call('keys', 'millrace:o:*http://s` + path + `*')[1])" 0`)
		if err != nil || !strings.HasPrefix(answer, ":") {
			t.Fatal(answer, err)
		}
		return answer
	}
	for _, path := range []string{"/hot", "/cold"} {
		for range 2 {
			c.get("s", path)
		}
		redis.holds("http://s" + path)
	}
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		c.get("s", "/hot")
	}
	if hot, cold := idle("/hot"), idle("/cold"); hot > ":3" || cold <= hot {
		t.Errorf("not used for %s s what is asked for all the time, for %s s what is not", hot, cold)
	}
}

// TestTwoSites: of two sites in one Redis, a purge of everything purges one.
func TestTwoSites(t *testing.T) {
	redis := startSnapshots(t)
	url, _ := api(t, 0)
	yaml := func(site string) string {
		return fmt.Sprintf("listen: 127.0.0.1:0\nsites: [{routes: {/: {cache: {to: %q, shared: {url: \"redis://127.0.0.1:%s\", prefix: %s}}}}}]", url, redis.port, site)
	}
	srv, purges := startWithAdmin(t, yaml("one"))
	one, more := dial(t, srv.Addrs()[0]), dial(t, start(t, parse(t, yaml("one"))).Addrs()[0])
	two, other := dial(t, start(t, parse(t, yaml("two"))).Addrs()[0]), dial(t, start(t, parse(t, yaml("two"))).Addrs()[0])
	believe(t, one, more)
	believe(t, two, other)
	_, a := one.get("s", "/x")
	_, b := two.get("s", "/x")
	if a == b {
		t.Fatalf("two sites share %q", a)
	}
	if _, err := purges.Purge(t.Context(), control.Purge{Selector: purge.Selector{All: true, Hard: true}}); err != nil {
		t.Fatal(err)
	}
	believe(t, one, more) // it has heard of the purge
	if _, got := more.get("s", "/x"); got == a {
		t.Errorf("what was purged is still there: %q", got)
	}
	if _, got := other.get("s", "/x"); got != b {
		t.Errorf("a purge of one site purges the other: %q, not %q", got, b)
	}
}
