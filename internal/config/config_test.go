package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/internal/lane"
	"millrace/internal/observe/accesslog"
	"millrace/internal/server"
	"millrace/internal/server/guard"
	"millrace/static"
)

// update rewrites what the tests compare with: go test ./internal/config -update
var update = flag.Bool("update", false, "rewrite the golden files and the documents made from the code")

// TestFindings holds the whole report of every file in testdata/bad against
// the .want beside it: the messages are what a user gets to see of this
// package.
func TestFindings(t *testing.T) {
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	if len(files) < 10 {
		t.Fatalf("found %d files", len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			cfg, err := Load(file)
			if _, ok := errors.AsType[Findings](err); !ok || cfg != nil {
				t.Fatalf("Load = %v, %v; want findings and no config", cfg, err)
			}
			want := strings.TrimSuffix(file, "yaml") + "want"
			got := err.Error() + "\n"
			if *update {
				if err := os.WriteFile(want, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			golden, err := os.ReadFile(want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(golden), got); diff != "" {
				t.Errorf("the report is another than in %s (-update rewrites it):\n%s", want, diff)
			}
		})
	}
}

func TestFullConfig(t *testing.T) {
	dir := writeCertificate(t)
	t.Setenv("MILLRACE_TEST_DIR", dir)
	t.Setenv("MILLRACE_TEST_CONNECTIONS", "99")
	got, err := Load("testdata/good/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	public := filepath.Join("testdata", "public")
	want := &Config{
		Listen: []string{"127.0.0.1:0"},
		TLS: server.TLSOptions{
			Listen: []string{"127.0.0.1:0", "unix:" + filepath.Join("testdata", "good", "tls.sock")},
			Cert:   filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), Redirect: new(true),
		},
		Log:    accesslog.Options{Format: "json", File: "-"},
		Admin:  got.Admin,
		Lane:   lane.Options{Off: true, Memory: 128 << 20},
		Limits: server.Options{Connections: 99, HeaderTimeout: 90 * time.Second, HeaderBytes: 32768},
		Sites: []Site{
			{Hosts: []string{"example.org", "*.example.org", "192.0.2.1", "2001:db8::1"}, Routes: map[string]Route{
				"/":      {Static: &static.Options{Root: public}},
				"/old/":  {Redirect: &guard.Redirect{To: "https://example.org/$x/", Status: 301}},
				"/gone":  {Deny: &guard.Deny{Status: 410}},
				"/plain": {Deny: &guard.Deny{}},
			}},
			{Hosts: []string{"other.example"}, Routes: map[string]Route{"/": {Static: &static.Options{Root: public}}}},
		},
	}
	if got.Admin.Listen != Off {
		t.Errorf("admin.listen = %q", got.Admin.Listen)
	}
	if fmt.Sprintf("%+v", got.Sites[1].Hosts) != "[other.example]" || got.Routes() != 5 {
		t.Errorf("%d routes, second site's hosts %q", got.Routes(), got.Sites[1].Hosts)
	}
	if diff := cmp.Diff(want, got, ignoreUnexported()); diff != "" {
		t.Errorf("config differs (-want +got):\n%s", diff)
	}
}

func TestDefaults(t *testing.T) {
	cfg, err := Parse("testdata/x.yaml", []byte("sites: [{routes: {/: {static: {root: public}}}}]"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ForDir("testdata/public"), cfg, ignoreUnexported()); diff != "" {
		t.Errorf("a file with one site is not ForDir (-ForDir +file):\n%s", diff)
	}
	if cfg.Log.Format != "combined" || !cmp.Equal(cfg.Listen, []string{DefaultListen}) {
		t.Errorf("log %q, listen %q", cfg.Log.Format, cfg.Listen)
	}
}

func TestLoadMissing(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "no.yaml"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Load = %v, want one that wraps ErrNotExist", err)
	}
}

// TestSettings: a flag wins over the file, what is wrong with it is reported
// under its own name, and the rest of the file is still checked.
func TestSettings(t *testing.T) {
	file := []byte("listen: [':80']\nlog: {format: common}\nsites: [{routes: {/: {static: {root: public}}}}]")
	cfg, err := Parse("testdata/x.yaml", file,
		Setting{"listen", []string{"127.0.0.1:0", "unix:$x.sock"}, "--listen"},
		Setting{"log.format", []string{"off"}, "MILLRACE_LOG"},
		Setting{"lane.off", []string{"true"}, "--no-lane"},
		Setting{"admin.listen", []string{"127.0.0.1:9000"}, "--admin"},
	)
	if err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(cfg.Listen, []string{"127.0.0.1:0", "unix:$x.sock"}) || cfg.Log.Format != Off || !cfg.Lane.Off || cfg.Admin.Listen != "127.0.0.1:9000" {
		t.Errorf("settings did not win: %+v", cfg)
	}

	_, err = Parse("testdata/x.yaml", append(file, "\nlan: {}"...),
		Setting{"tls.cert", []string{"missing.pem"}, "--tls-cert"},
		Setting{"admin.listen", []string{"127.0.0.1:80"}, "--admin"},
		Setting{"nonsense.key", []string{"x"}, "--nonsense"},
	)
	for _, want := range []string{
		"--tls-cert: a certificate without its key", "--tls-cert: cannot read missing.pem",
		"--admin: 127.0.0.1:80 is used twice\n    listen has :80 in line 1",
		"testdata/x.yaml:4:1: unknown key \"lan\"", "--nonsense: there is no key",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the report lacks %q:\n%v", want, err)
		}
	}
}

func TestForDirCheck(t *testing.T) {
	if err := ForDir("testdata/public").Check(); err != nil {
		t.Error(err)
	}
	err := ForDir("testdata/publik").Check()
	if want := "there is no folder testdata/publik\n    did you mean testdata/public?"; err == nil || err.Error() != want {
		t.Errorf("Check = %v, want %s", err, want)
	}
}

func TestExpand(t *testing.T) {
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "a", "EMPTY": "", "DEEP": "${A}", "YAML": "x, y: [z]\n- #"}[name]
		return v, ok
	}
	for in, want := range map[string]string{
		"": "", "plain": "plain", "${A}": "a", "x${A}y${A}": "xaya", "$$": "$", "$${A}": "${A}", "a$$$$b": "a$$b",
		"${EMPTY}": "", "${EMPTY:-d}": "d", "${NO:-}": "", "${NO:-a:-b}": "a:-b", "${DEEP}": "${A}", "${YAML}": "x, y: [z]\n- #",
	} {
		if got, err := expand(in, env); got != want || err != nil {
			t.Errorf("expand(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"$", "a$b", "$A", "${", "${A", "${}", "${NO}", "${1A}", "${A B}", "${A-b}", "$${A}${NO}"} {
		if got, err := expand(in, env); err == nil {
			t.Errorf("expand(%q) = %q, want an error", in, got)
		}
	}
}

// TestNoInjection: what a variable holds is one value, whatever it looks like.
func TestNoInjection(t *testing.T) {
	t.Setenv("MILLRACE_TEST_TO", "/x\"}}}\nlisten: :80 ${HOME} # *a &b")
	_, err := Parse("testdata/x.yaml", []byte("sites: [{routes: {/: {redirect: {to: \"${MILLRACE_TEST_TO}\"}}}}]"))
	found, _ := errors.AsType[Findings](err)
	if len(found) != 1 || !strings.Contains(found[0].Message, "holds a space") {
		t.Errorf("want the one finding that the address holds a space, got:\n%v", err)
	}
	for _, r := range err.Error() {
		if r < ' ' && r != '\n' {
			t.Errorf("the report holds the control character %q", r)
		}
	}
}

// TestRefused: files that are not configs, and files that were made to hurt.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"large":       {strings.Repeat("#", maxBytes+1), "larger than 1 MiB"},
		"flow depth":  {"a: " + strings.Repeat("[", 50000), "levels deep"},
		"flow maps":   {strings.Repeat("{a: ", 50000), "levels deep"},
		"dashes":      {strings.Repeat("- ", 50000), "levels deep"},
		"questions":   {strings.Repeat("? ", 50000), "levels deep"},
		"anchors":     {strings.Repeat("&a ", 50000), "levels deep"},
		"tags":        {strings.Repeat("!a ", 50000), "levels deep"},
		"levels":      {levels(200), "unknown key"},
		"tokens":      {strings.Repeat("- a\n", 60000), "too many"},
		"NUL":         {"listen: \"\x00\"", "1:10: byte 0x00"},
		"UTF-16":      {"\xff\xfea\x00", "1:1: byte 0xff"},
		"escape":      {"listen: \x1b[2J", "byte 0x1b"},
		"alias bomb":  {bomb(), "endless"},
		"self alias":  {"sites: &a [*a]", "not a list"},
		"alias cycle": {"sites: [&a {routes: {/: &b {deny: *a}}}, &c {hosts: *c}]", "unknown key"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := Parse("x.yaml", []byte(c.file))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("after %s: %.300v, want %q", time.Since(start), err, c.want)
			}
			if len(err.Error()) > 64<<10 {
				t.Errorf("a report of %d bytes", len(err.Error()))
			}
		})
	}
}

// levels nests maps by indentation.
func levels(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// bomb is a list of sites that grows tenfold with every line.
func bomb() string {
	var b strings.Builder
	b.WriteString("listen: &l0 [a,a,a,a,a,a,a,a,a,a]\nsites:\n")
	b.WriteString("  - &s0 {hosts: *l0, routes: &r {/: {deny: {}}}}\n")
	for range 30000 {
		b.WriteString("  - *s0\n")
	}
	return b.String()
}

func TestByteOrderMarkAndCRLF(t *testing.T) {
	_, err := Parse("x.yaml", []byte("\ufefflisten: ':0'\r\nsite: 1\r\n"))
	if want := "x.yaml:2:1: unknown key \"site\"\n    2 | site: 1\n      | ^^^^ did you mean \"sites\"?"; err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestNearest(t *testing.T) {
	candidates := []string{"static", "redirect", "deny", "listen", "header_timeout", "header_bytes"}
	for in, want := range map[string]string{
		"statc": "static", "Static": "static", "satic": "static", "redirects": "redirect", "lsiten": "listen",
		"header_time": "header_timeout", "den": "deny", "x": "", "proxy": "", "": "", "cache": "",
		strings.Repeat("a", 5000): "",
	} {
		if got := Nearest(in, candidates); got != want {
			t.Errorf("Nearest(%.20q) = %q, want %q", in, got, want)
		}
	}
}

func TestManyFindings(t *testing.T) {
	var b strings.Builder
	for i := range 80 {
		fmt.Fprintf(&b, "key%d: 1\n", i)
	}
	_, err := Parse("x.yaml", []byte(b.String()))
	if !strings.HasSuffix(err.Error(), fmt.Sprintf("… and %d more", 81-maxFindings)) {
		t.Errorf("the report ends in %q", err.Error()[len(err.Error())-60:])
	}
}
