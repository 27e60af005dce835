package engine_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/internal/process/servertest"
)

// statuses sends requests over one connection and returns the statuses.
func statuses(t *testing.T, nc net.Conn, n int, path string, header ...string) (all []int) {
	t.Helper()
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	answers := bufio.NewReader(nc)
	for range n {
		if _, err := fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, strings.Join(append(header, ""), "\r\n")); err != nil {
			t.Fatal(err)
		}
		a, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, a.Body); err != nil {
			t.Fatal(err)
		}
		all = append(all, a.StatusCode)
	}
	return all
}

// dialFrom connects from an address of this machine.
func dialFrom(t *testing.T, from, url string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	nc, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(strings.TrimPrefix(url, "http://"), "https://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return nc
}

// TestGates: lists and limits hold for hot answers as for all others, for the
// client behind a trusted proxy, and for paths that nothing answers.
func TestGates(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "home", "a.html": "a", "office/index.html": "office", "open/index.html": "open"})
	servertest.WithLaneAndWithout(t, func(t *testing.T, off bool) {
		yaml := `
listen: 127.0.0.1:0
lane: {off: ` + strconv.FormatBool(off) + `}
limits: {trusted_proxies: [127.0.0.2]}
sites:
- access: {deny: [127.0.0.3, 198.51.100.7]}
  rate_limit: {rate: 6/h, except: [127.0.0.9]}
  rules: [{path: /rule, respond: fine}]
  routes:
    /: {static: {root: ` + dir + `}, try: ['{path}', /office/]}
    /office/: {static: {root: ` + dir + `/office}, access: {allow: [127.0.0.9, 127.0.0.10]}}
    /open/: {static: {root: ` + dir + `/open}, access: {off: true}, rate_limit: 3/h}
`
		srv := start(t, parse(t, yaml))
		url := srv.Addrs()[0]
		for _, c := range []struct {
			from, path, header, want string
		}{
			{"127.0.0.1", "/", "", "[200 200 200 200 200 200 429 429]"},
			{"127.0.0.1", "/a.html", "", "[429 429 429 429 429 429 429 429]"}, // the site's limit
			{"127.0.0.1", "/nothing/here", "", "[429 429 429 429 429 429 429 429]"},
			{"127.0.0.3", "/", "", "[403 403 403 403 403 403 403 403]"},
			{"127.0.0.3", "/rule", "", "[403 403 403 403 403 403 403 403]"},
			{"127.0.0.3", "/open/", "", "[200 200 200 429 429 429 429 429]"}, // both limits, the route's first
			{"127.0.0.4", "/office/", "", "[403 403 403 403 403 403 403 403]"},
			{"127.0.0.4", "/is-not-there", "", "[403 403 403 403 403 403 429 429]"}, // by try
			{"127.0.0.9", "/office/", "", "[200 200 200 200 200 200 200 200]"},
			{"127.0.0.9", "/is-not-there", "", "[200 200 200 200 200 200 200 200]"},
			{"127.0.0.2", "/", "X-Forwarded-For: 198.51.100.7", "[403 403 403 403 403 403 403 403]"},
			{"127.0.0.2", "/", "X-Forwarded-For: 198.51.100.8", "[200 200 200 200 200 200 429 429]"},
			{"127.0.0.2", "/", "X-Forwarded-For: 198.51.100.7, 198.51.100.9", "[200 200 200 200 200 200 429 429]"},
			{"127.0.0.5", "/", "X-Forwarded-For: 127.0.0.9", "[200 200 200 200 200 200 429 429]"}, // forged
		} {
			var header []string
			if c.header != "" {
				header = []string{c.header}
			}
			if got := fmt.Sprint(statuses(t, dialFrom(t, c.from, url), 8, c.path, header...)); got != c.want {
				t.Errorf("%+v: %s", c, got)
			}
		}
	})
}

// TestLimitOverProtocols: a limit by a header field holds on every road, which
// each protocol has its own of.
func TestLimitOverProtocols(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "home"})
	everyWay(t, fmt.Sprintf(`
sites:
- routes:
    /: {static: {root: %q}, rate_limit: {rate: 5/h, header: User-Agent}}
    /key/: {respond: key, rate_limit: {rate: 5/h, header: X-Api-Key}}
`, dir), func(w *way) {
		for path, name := range map[string]string{"/": "User-Agent", "/key/": "X-Api-Key"} {
			var got []int
			for range 8 {
				resp, _ := w.ask(http.MethodGet, path, "", name, "of "+w.protocol)
				got = append(got, resp.StatusCode)
				if resp.StatusCode == http.StatusTooManyRequests && (resp.Header.Get("Retry-After") != "720" || resp.Header.Get("Ratelimit") != `"header";r=0;t=720`) {
					w.Errorf("%v", resp.Header)
				}
			}
			if fmt.Sprint(got) != "[200 200 200 200 200 429 429 429]" {
				w.Errorf("by %s: %v", name, got)
			}
		}
	})
}

// TestLimitsOutliveReloads: a reload that changes something else forgets nothing.
func TestLimitsOutliveReloads(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "home"})
	yaml := "listen: 127.0.0.1:0\nsites: [{routes: {/: {static: {root: " + dir + "}, rate_limit: 6/h}}}]\n"
	srv := start(t, parse(t, yaml))
	url := srv.Addrs()[0]
	if got := fmt.Sprint(statuses(t, dialFrom(t, "127.0.0.1", url), 4, "/")); got != "[200 200 200 200]" {
		t.Fatal(got)
	}
	for i := range 3 {
		if err := srv.Reload(parse(t, yaml+fmt.Sprintf("limits: {idle_timeout: %ds}\n", 60+i))); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(statuses(t, dialFrom(t, "127.0.0.1", url), 4, "/")); got != "[200 200 429 429]" {
		t.Error(got)
	}
	if err := srv.Reload(parse(t, strings.Replace(yaml, "6/h", "2/h", 1))); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(statuses(t, dialFrom(t, "127.0.0.1", url), 4, "/")); got != "[200 200 429 429]" {
		t.Error(got)
	}
}

// TestRefusals: who is refused at a hot answer gets, byte for byte, what the handler
// would have sent.
func TestRefusals(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "home"})
	said := map[bool]map[string][]string{true: {}, false: {}} // without the lane, and with it
	servertest.WithLaneAndWithout(t, func(t *testing.T, off bool) {
		for name, more := range map[string]string{"rate": "rate_limit: {rate: 4/h}", "page": "rate_limit: {rate: 4/h}, errors: {429: /full.txt}", "field": "rate_limit: {rate: 4/h}, headers: {set: {X-Own: a}}"} {
			srv := start(t, parse(t, "listen: 127.0.0.1:0\nlane: {off: "+strconv.FormatBool(off)+"}\nsites: [{"+more+", routes: {/: {static: {root: "+dir+"}}, /full.txt: {respond: full}}}]"))
			nc := dialFrom(t, "127.0.0.1", srv.Addrs()[0])
			_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
			in := bufio.NewReader(nc)
			for _, method := range []string{"GET", "GET", "GET", "GET", "GET", "HEAD", "GET"} {
				if _, err := fmt.Fprintf(nc, "%s / HTTP/1.1\r\nHost: localhost\r\n\r\n", method); err != nil {
					t.Fatal(err)
				}
				var head strings.Builder
				length := 0
				for line := ""; line != "\r\n"; {
					var err error
					if line, err = in.ReadString('\n'); err != nil {
						t.Fatal(err)
					}
					if n, ok := strings.CutPrefix(line, "Content-Length: "); ok && method == "GET" {
						length, _ = strconv.Atoi(strings.TrimSpace(n))
					}
					if !strings.HasPrefix(line, "Date: ") {
						head.WriteString(line)
					} else {
						head.WriteString("Date\r\n")
					}
				}
				body := make([]byte, length)
				if _, err := io.ReadFull(in, body); err != nil {
					t.Fatal(err)
				}
				said[off][name] = append(said[off][name], head.String()+string(body))
			}
		}
	})
	for _, name := range []string{"rate", "page", "field"} {
		one, other := said[false][name], said[true][name]
		for i := range one {
			if one[i] != other[i] {
				t.Errorf("%s, request %d:\n%s\nis not\n%s", name, i, one[i], other[i])
			}
		}
		if !strings.Contains(one[4], " 429 ") || strings.Contains(one[3], " 429 ") {
			t.Errorf("%s: %q", name, one)
		}
	}
}

// TestLimitCountsEachValue: who repeats the field that a limit counts by, in whatever
// spelling, is counted by each value, on every road.
func TestLimitCountsEachValue(t *testing.T) {
	app := application(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "app") })
	everyWay(t, `sites:
- routes:
    /own/: {respond: own, rate_limit: {rate: 3/h, header: X-Api-Key}}
    /app/: {proxy: '`+app+`', rate_limit: {rate: 3/h, header: X-Api-Key}}
    /agent/: {respond: own, rate_limit: {rate: 3/h, header: User-Agent}}
`, func(w *way) {
		n := 0
		fresh := func() string { n++; return fmt.Sprint(w.Name(), n) }
		for _, path := range []string{"/own/", "/app/", "/agent/"} {
			field, spelled := "X-Api-Key", "X_api-key"
			if path == "/agent/" {
				field, spelled = "User-Agent", "User_agent"
			}
			for name, head := range map[string]func(key string) []string{
				"first":   func(key string) []string { return []string{field, key, field, fresh()} },
				"last":    func(key string) []string { return []string{field, fresh(), field, key} },
				"middle":  func(key string) []string { return []string{field, fresh(), field, key, field, fresh()} },
				"spelled": func(key string) []string { return []string{field, fresh(), spelled, key} },
				"alone":   func(key string) []string { return []string{spelled, key, field, ""} },
				"twice":   func(key string) []string { return []string{field, key, field, key} },
			} {
				if path == "/agent/" && name != "spelled" { // Go's clients send one
					continue
				}
				key, got := fresh(), ""
				for range 5 {
					resp, _ := w.ask("GET", path, "", head(key)...)
					got += fmt.Sprint(resp.StatusCode, " ")
				}
				if got != "200 200 200 429 429 " {
					w.Errorf("%s, the key is %s: %s", path, name, got)
				}
			}
			many := []string{}
			for range 20 {
				many = append(many, "X-Api-Key", fresh())
			}
			if resp, _ := w.ask("GET", path, "", many...); path != "/agent/" && resp.StatusCode != 429 {
				w.Errorf("%s with many values: %d", path, resp.StatusCode)
			}
		}
	})
}
