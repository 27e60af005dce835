package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/cache"
	"millrace/proxy"
)

func TestCacheConfig(t *testing.T) {
	cfg, err := Load("testdata/good/cache.yaml")
	if err != nil {
		t.Fatal(err)
	}
	routes := cfg.Sites[0].Routes
	var short cache.Options
	short.To = []string{"http://127.0.0.1:5000"}
	if diff := cmp.Diff(&short, routes["/short/"].Cache); diff != "" {
		t.Errorf("the short form of a cache (-want +got):\n%s", diff)
	}
	var several proxy.Options
	several.To = []string{"http://127.0.0.1:5000", "http://127.0.0.1:5001"}
	if diff := cmp.Diff(&several, routes["/several/"].Proxy); diff != "" {
		t.Errorf("the short form of a proxy (-want +got):\n%s", diff)
	}
	socket := routes["/socket/"].Proxy
	if want := "unix:" + filepath.Join("testdata", "good", "app.sock"); socket.To[0] != want {
		t.Errorf("a socket's path is %q, want it relative to the file: %q", socket.To[0], want)
	}
	socket.TLS.CA = "ca.pem"
	cfg.resolve("etc")
	if want := filepath.Join("etc", "ca.pem"); socket.TLS.CA != want {
		t.Errorf("tls.ca is %q, want it relative to the file: %q", socket.TLS.CA, want)
	}
	if cfg, err = Load("testdata/good/cache.yaml"); err != nil {
		t.Fatal(err)
	}
	routes = cfg.Sites[0].Routes
	nothing, soon := time.Duration(0), 10*time.Second
	var long cache.Options
	long.To, long.Balance = []string{"http://127.0.0.1:5000", "http://localhost:5001"}, "hash"
	long.Health.Path, long.Health.Interval = "/healthz", time.Second
	long.TrustForwarded = []string{"10.0.0.0/8"}
	long.TTL, long.CORS.Origins, long.Key.DropTracking = 5*time.Minute, []string{"https://blog.example"}, true
	long.Disk, long.DiskSize = filepath.Join("testdata", "good", "cache"), 1<<30
	long.Rules = []cache.Rule{
		{Path: "/api/live", TTL: &nothing}, // another thing than
		{Path: "/api/none"},
		{Status: []string{"404"}, TTL: &soon, StaleIfError: &nothing},
	}
	if diff := cmp.Diff(&long, routes["/api/"].Cache); diff != "" {
		t.Errorf("the long form (-want +got):\n%s", diff)
	}
}

// TestOneCacheForEqualOptions: routes may share a folder when they share all.
func TestOneCacheForEqualOptions(t *testing.T) {
	const file = "sites: [{routes: {/a/: {cache: &c {to: http://127.0.0.1:5000, disk: kept}}, /b/: {cache: *c}}}]"
	if _, err := Parse("x.yaml", []byte(file)); err != nil {
		t.Error(err)
	}
	_, err := Parse("x.yaml", []byte(strings.Replace(file, "*c", "{to: http://127.0.0.1:5000, disk: ./kept/, ttl: 5m}", 1)))
	if err == nil || !strings.Contains(err.Error(), "belongs to another cache") {
		t.Errorf("two caches in one folder: %v", err)
	}
}

func TestUpstream(t *testing.T) {
	for in, want := range map[string]string{
		":5000": "http://127.0.0.1:5000", "127.0.0.1:5000": "http://127.0.0.1:5000", "localhost:5000": "http://localhost:5000",
		"api.example:80/v1/": "http://api.example:80/v1/", "[::1]:5000": "http://[::1]:5000",
		"http://a": "http://a", "https://a/b": "https://a/b", "h2c://a:1": "h2c://a:1", "unix:/run/x": "unix:/run/x",
	} {
		if got, err := Upstream(in); got != want || err != nil {
			t.Errorf("Upstream(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for in, hint := range map[string]string{
		"": "for example http://127.0.0.1:5000", "5000": "write http://127.0.0.1:5000", "app": "write http://app",
		"/run/x": "write unix:/run/x", "::1": "write http://[::1]", ":0": "write http://:0", "a b": "for example http://127.0.0.1:5000",
	} {
		if got, err := Upstream(in); err == nil || !strings.HasSuffix(err.Error(), hint) {
			t.Errorf("Upstream(%q) = %q, %v; want the hint %q", in, got, err, hint)
		}
	}
}

func TestReached(t *testing.T) {
	for _, c := range []struct {
		listen, upstream string
		self             bool
	}{
		{"127.0.0.1:8080", "http://127.0.0.1:8080", true},
		{"127.0.0.1:8080", "http://localhost:8080/x", true},
		{"127.0.0.1:8080", "http://0.0.0.0:8080", true},
		{"127.0.0.1:8080", "http://127.0.0.1:8081", false},
		{"127.0.0.1:8080", "http://[::1]:8080", false},
		{"127.0.0.1:8080", "http://127.0.0.2:8080", false},
		{"127.0.0.1:8080", "http://[::ffff:127.0.0.1]:8080", true},
		{"localhost:8080", "http://127.0.0.1:8080", true},
		{"localhost:8080", "http://LOCALHOST:8080", true},
		{":8080", "http://[::1]:8080", true},
		{":8080", "http://127.0.0.1:8080", true},
		{":8080", "http://192.0.2.1:8080", false}, // TEST-NET-1: never of this machine
		{":8080", "http://app.example:8080", false},
		{"0.0.0.0:8080", "http://[::1]:8080", false},
		{"[::]:8080", "http://[::1]:8080", true},
		{"[::]:8080", "http://127.0.0.1:8080", false},
		{":80", "http://127.0.0.1", true},
		{":443", "https://localhost", true},
		{":80", "h2c://localhost", true},
		{":0", "http://127.0.0.1:0", false},
		{"unix:x.sock", "unix:./x.sock", true},
		{"unix:x.sock", "unix:y.sock", false},
		{":80", "http://%zz", false},
	} {
		a, err := ParseAddress(c.listen)
		if err != nil {
			t.Fatal(err)
		}
		if _, got := reached(c.upstream, []listener{{a, "listen[0]"}}); got != c.self {
			t.Errorf("%s leads to a listener at %s: %v, want %v", c.upstream, c.listen, got, c.self)
		}
	}
}

func TestForCacheSettings(t *testing.T) {
	c := ForCache("http://127.0.0.1:5000")
	err := c.Check(
		Setting{"cache.ttl", []string{"5m"}, "--ttl"},
		Setting{"cache.cors.origins", []string{"https://a.example", "https://b.example"}, "--cors"},
		Setting{"cache.key.sort_query", []string{"true"}, "--sort-query"},
		Setting{"proxy.balance", []string{"hash"}, "--balance"}, // no route has that job
		Setting{"listen", []string{"127.0.0.1:0"}, "--listen"},
	)
	if err != nil {
		t.Fatal(err)
	}
	o := c.Sites[0].Routes["/"].Cache
	if o.TTL != 5*time.Minute || len(o.CORS.Origins) != 2 || !o.Key.SortQuery || c.Listen[0] != "127.0.0.1:0" {
		t.Errorf("the settings led to %+v", o)
	}
	refusesSettings(t, func() *Config { return ForCache("http://127.0.0.1:5000") }, map[typed]string{
		{"cache.preset", "fast", "--preset"}:              "--preset: preset \"fast\" is unknown",
		{"cache.ttl", "5", "--ttl"}:                       "--ttl: \"ttl\" must be a duration like 10s",
		{"cache.to", "http://127.0.0.1:8080", "UPSTREAM"}: "UPSTREAM: http://127.0.0.1:8080 is this server itself",
		{"cache.disk", "../config/upstream.go", "--disk"}: "--disk: ../config/upstream.go is a file",
		{"cache.tttl", "5", "--tttl"}:                     "--tttl: there is no key \"cache.tttl\"",
	})
}

// typed is a setting of one value.
type typed struct{ key, value, from string }

// refusesSettings expects each setting to be a mistake, with these words.
func refusesSettings(t *testing.T, cfg func() *Config, wants map[typed]string) {
	t.Helper()
	for setting, want := range wants {
		err := cfg().Check(Setting{setting.key, []string{setting.value}, setting.from})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", setting, err, want)
		}
	}
}

func TestPublished(t *testing.T) {
	got, err := parsePublished("c.json", []byte("{\n\t\"HostPort\": \":5001\",\n\t\"Stacosys\": \"http://127.0.0.1:8100\",\n\t\"CorsOrigin\": \"https:\\/\\/blog.example\"\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := ForCache("http://127.0.0.1:8100")
	o := want.Sites[0].Routes["/"].Cache
	want.Listen, o.TTL, o.CORS.Origins = []string{":5001"}, 5*time.Minute, []string{"https://blog.example"}
	if diff := cmp.Diff(want, got, ignoreUnexported()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for file, want := range map[string]string{
		"":                      "\"Stacosys\" is missing",
		"{":                     "c.json:1:1: the map that is opened here",
		"[]":                    "not with a list",
		"{}":                    "\"Stacosys\" is missing",
		`{"HostPort": ":80"}`:   "\"Stacosys\" is missing",
		`{"Stacosys": 5}`:       "c.json:1:14: \"5\" does not say how to talk",
		`{"Stacosys": ":5000"}`: "",
		`{"Stacosys": "http://a", "HostPort": "80"}`:             "c.json:1:38: \"80\" is not an address: it has no port",
		`{"Stacosys": "http://a", "Hostport": ":80"}`:            "c.json:1:26: unknown key \"Hostport\"\n    1 | {\"Stacosys\": \"http://a\", \"Hostport\": \":80\"}\n      |                          ^^^^^^^^^^ did you mean \"HostPort\"?",
		`{"Stacosys": "http://a", "CorsOrigin": "blog"}`:         "c.json:1:40",
		`{"Stacosys": "http://127.0.0.1:80", "HostPort": ":80"}`: "this server itself",
		`{"Stacosys": "http://a/$x", "CorsOrigin": "*"}`:         "",
		`{"Stacosys": "http://a", "Stacosys": "http://b"}`:       "a second time",
		`{"Stacosys": ["http://a"]}`:                             "must be text, not a list",
	} {
		_, err := parsePublished("c.json", []byte(file))
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", file, err)
			}
			continue
		}
		if found, ok := errors.AsType[Findings](err); !ok || !strings.Contains(found.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
		if found, _ := errors.AsType[Findings](err); len(found) > 1 {
			t.Errorf("%s: one mistake has %d findings:\n%v", file, len(found), err)
		}
	}
}

// TestFromPublished: what init writes means the same as the file it was made
// from, whatever stands in that.
func TestFromPublished(t *testing.T) {
	for name, text := range map[string]string{
		"all":    `{"HostPort": ":5001", "Stacosys": "http://127.0.0.1:8100", "CorsOrigin": "*"}`,
		"least":  `{"Stacosys": "127.0.0.1:8100"}`,
		"dollar": `{"Stacosys": "http://127.0.0.1:8100/${HOME}/$"}`,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.json")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			want, err := Published(file)
			if err != nil {
				t.Fatal(err)
			}
			yaml, err := FromPublished(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Parse("millrace.yaml", []byte(yaml))
			if err != nil {
				t.Fatalf("%v\n%s", err, yaml)
			}
			if diff := cmp.Diff(want, got, ignoreUnexported()); diff != "" {
				t.Errorf("%s\n(-json +yaml):\n%s", yaml, diff)
			}
		})
	}
}
