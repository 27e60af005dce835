package millrace_test

import (
	"cmp"
	"errors"
	"fmt"
	"go/build"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module is the name that go.mod gives us.
const module = "millrace"

// A room is a folder of packages: its name, and what stands in it from the top
// down. Packages between two bars do not know each other; "." is the package of the
// folder itself.
type room struct{ dir, inside string }

// layers is the order of the program, from the top down: one line for each room. A
// package may import from rooms of groups below its own, never from another room
// of its group; and within its room from behind a bar, never from before one.
//
// Adding a package: put it as far down as what it imports allows. If no place fits,
// two packages want to know each other; that is a question for a review, not for a
// new line.
var layers = [][]room{
	{
		{"cmd", "millrace millrace-lab millrace-slim"},
		{"examples", "embedded-site everything"},
		{"packaging", "image rename sbom"},
	},
	{
		{"cmd/internal", "cachecmd docscmd packcmd wscmd | servecmd | explaincmd imagescmd importcmd labcmd opscmd | cli"},
	},
	{
		{".", "."}, // package millrace: the library that other programs import
		{"importer", "compare | apache caddy nginx | importertest plan | draft"},
	},
	{
		{"internal/engine", ". slim"}, // the only place where jobs meet
	},
	{
		{"internal/config", "."},
	},
	{
		{"images", "control | . | params worker | convert | codec icc jpeg | container header picture queue remote sandbox"},
	},
	{
		{"static", ". packer | original packfile"},
		{"cache", "control | . | fetch | tier | object rules | purge | fill key rfc9111"},
		{"websocket", "control | . | channels | conn hub | auth centrifuge client frame page"},
		{"php", "."},
		{"internal/plugin", "."},
		{"lab", ". | experiment/cache experiment/embed experiment/images experiment/packed experiment/proof experiment/protocols experiment/proxy experiment/sendfile experiment/tls experiment/websocket | experiment | trial | gate pgo | live load/h2load report subject | load | link load/client record site stats"},
	},
	{
		{"internal/server", "certs h3 | . guard"},
	},
	{
		{"proxy", "."},
	},
	{
		{"internal/upstream", ". | fastcgi faulty http1 spool"},
		{"internal/lane", "."},
	},
	{
		{"internal/ops", "admin dashboard | chart exposition otlp slow"},
		{"internal/route", "rulefile site | headers match"},
	},
	{
		{"internal/access", "admit signin | challenge password token"},
	},
	{
		{"store", "bus/bustest bus/nats disk memory redis s3 storetest | . bus"},
	},
	{
		{"internal/observe", "accesslog trace | logfile meter redact"},
	},
	{
		{"internal/process", "confine gogc handover steer"},
	},
	{
		{"internal/wire", "dictionary | compress | lean pages | h2 message negotiate send | netset | condition epoll field lookup proxyline stall urlpath"},
	},
	{
		{"internal/bytesize", "."},
		{"docs", "."},                      // the manual's pages
		{"internal/process", "servertest"}, // for the tests of all others
	},
}

// isolated packages measure or serve others and must stay independent: they
// may import no package of ours but the ones named.
var isolated = map[string][]string{
	"lab": {"internal/observe/meter", "internal/ops/chart", "internal/wire/epoll"},
}

// thirdParty says which modules outside the standard library a package may
// import. A module covers all its packages.
var thirdParty = map[string][]string{
	"internal/access/admit":     {"github.com/dchest/siphash"}, // with a key that another process can have
	"internal/access/password":  {"golang.org/x/crypto"},
	"internal/config":           {"github.com/goccy/go-yaml", "github.com/invopop/jsonschema"},
	"internal/server":           {"golang.org/x/sys", "golang.org/x/net", "golang.org/x/crypto"}, // names of hosts; OCSP
	"internal/ops/otlp":         {"google.golang.org/protobuf"},                                  // protowire, not its reflection
	"internal/plugin":           {"github.com/tetratelabs/wazero", "golang.org/x/net"},
	"internal/server/certs":     {"github.com/caddyserver/certmagic", "github.com/mholt/acmez/v3", "go.uber.org/zap", "golang.org/x/time"},
	"internal/ops/admin":        {"github.com/google/pprof", "github.com/prometheus/procfs"}, // the difference of two profiles; what the kernel says of this process
	"internal/server/h3":        {"github.com/quic-go/quic-go", "github.com/quic-go/qpack"},
	"internal/lane":             {"golang.org/x/sys", "golang.org/x/net"},
	"internal/wire/h2":          {"golang.org/x/net"},
	"internal/wire/send":        {"golang.org/x/sys"},
	"internal/process/steer":    {"golang.org/x/sys", "golang.org/x/net"}, // programs for the kernel
	"internal/wire/epoll":       {"golang.org/x/sys"},
	"internal/process/handover": {"golang.org/x/sys"}, // the clock that systemd goes by
	"internal/ops/chart":        {"golang.org/x/image"},
	"lab/subject":               {"golang.org/x/sys"},
	"lab/experiment":            {"github.com/goccy/go-yaml"},
	"lab/link":                  {"golang.org/x/sys"},
	"lab/load":                  {"golang.org/x/sys", "github.com/goccy/go-yaml"}, // files of scenarios
	"lab/load/client":           {"golang.org/x/net", "github.com/gobwas/ws", "github.com/quic-go/quic-go"},
	"lab/record":                {"golang.org/x/sys"},
	"lab/live":                  {"charm.land/bubbletea/v2", "charm.land/lipgloss/v2", "golang.org/x/term"},
	"lab/pgo":                   {"github.com/google/pprof"},
	"cache/tier":                {"github.com/maypok86/otter/v2"},
	"store/disk":                {"golang.org/x/sys"},
	"cache/rfc9111":             {"github.com/dunglas/httpsfv"},
	"store/redis":               {"github.com/redis/rueidis"},
	"store/bus/nats":            {"github.com/nats-io/nats.go"},
	"internal/wire/field":       {"golang.org/x/net"}, // httpguts: tokens and lists of them
	"images/codec":              {"github.com/gen2brain/avif", "github.com/gen2brain/webp", "golang.org/x/image", "golang.org/x/sys"},
	"images/convert":            {"golang.org/x/image"}, // decoders
	"images/sandbox":            {"github.com/landlock-lsm/go-landlock", "golang.org/x/sys", "kernel.org/pub/linux/libs/security/libcap/psx"},
	"images/worker":             {"golang.org/x/sys"},
	"internal/process/confine":  {"github.com/landlock-lsm/go-landlock", "golang.org/x/sys"},
	"images/remote":             {"golang.org/x/time"},                                 // a log line once in a while
	"store/s3":                  {"github.com/minio/minio-go/v7", "golang.org/x/time"}, // a log line once in a while
	"websocket":                 {"golang.org/x/time"},                                 // a log line once in a while
	"internal/access/token":     {"github.com/golang-jwt/jwt/v5", "github.com/MicahParks/jwkset"},
	"websocket/centrifuge":      {"google.golang.org/protobuf"}, // protowire
	"websocket/conn":            {"golang.org/x/sys"},
	"websocket/frame":           {"github.com/klauspost/compress"},

	// What reads the command line.
	"cmd/millrace":           {"github.com/alecthomas/kong"},
	"cmd/internal/cli":       {"github.com/alecthomas/kong"},
	"cmd/internal/cachecmd":  {"github.com/alecthomas/kong"},
	"cmd/internal/docscmd":   {"github.com/yuin/goldmark"},
	"cmd/internal/labcmd":    {"github.com/alecthomas/kong"},
	"cmd/internal/imagescmd": {"github.com/alecthomas/kong"},
	"cmd/internal/packcmd":   {"github.com/alecthomas/kong"},
	"cmd/internal/servecmd":  {"github.com/alecthomas/kong"},
	"cmd/internal/wscmd":     {"github.com/alecthomas/kong"},

	"cmd/internal/opscmd": {"charm.land/bubbletea/v2", "charm.land/lipgloss/v2", "github.com/charmbracelet/x/ansi"},
	"internal/wire/compress": {
		"github.com/andybalholm/brotli",
		"github.com/klauspost/compress",
	},
	"internal/ops/dashboard": {"github.com/google/pprof"}, // reads CPU profiles
	"packaging/rename":       {"github.com/google/pprof"},
	"packaging/image":        {"golang.org/x/crypto/x509roots/fallback"}, // certificates of public CAs
	"static": {
		"github.com/andybalholm/brotli",
		"github.com/fsnotify/fsnotify",
		"github.com/klauspost/compress",
		"golang.org/x/sys",
	},
}

// thirdPartyTests are the modules that a package's tests may import on top of
// thirdParty; those under "" are open to the tests of every package.
var thirdPartyTests = map[string][]string{
	"":                         {"github.com/google/go-cmp", "go.uber.org/goleak"},
	"internal/engine":          {"go.opentelemetry.io/proto/otlp", "google.golang.org/protobuf", "github.com/letsencrypt/pebble/v2", "github.com/miekg/dns", "github.com/quic-go/quic-go", "github.com/golang-jwt/jwt/v5"}, // a CA, its DNS; a client of HTTP/3; who signs tokens
	"internal/ops/admin":       {"github.com/prometheus/client_golang"},                                                                                                                                                    // a linter of metrics
	"internal/ops/exposition":  {"github.com/prometheus/client_golang", "github.com/prometheus/common"},                                                                                                                    // what reads and writes the format elsewhere
	"internal/ops/otlp":        {"go.opentelemetry.io/proto/otlp", "google.golang.org/protobuf"},                                                                                                                           // a collector's types
	"internal/access/signin":   {"github.com/golang-jwt/jwt/v5"},                                                                                                                                                           // who signs tokens
	"internal/plugin":          {"github.com/http-wasm/http-wasm-host-go"},                                                                                                                                                 // another host, and the suite of the ABI's makers
	"websocket/auth":           {"github.com/golang-jwt/jwt/v5"},
	"cmd/millrace":             {"github.com/rogpeppe/go-internal", "github.com/quic-go/quic-go", "golang.org/x/net", "github.com/anishathalye/porcupine"}, // streams without a window; histories of several machines
	"lab/experiment/proxy":     {"github.com/gobwas/ws"},                                                                                                   // an echo
	"lab/live":                 {"github.com/charmbracelet/x/ansi"},                                                                                        // what knows how wide a text is
	"lab/load":                 {"github.com/HdrHistogram/hdrhistogram-go"},                                                                                // what our histogram is measured against
	"lab/stats":                {"golang.org/x/perf"},
	"cache/purge":              {"github.com/anishathalye/porcupine"}, // linearizability of purges
	"cache":                    {"github.com/dunglas/httpsfv"},        // what our Cache-Status is read with
	"static":                   {"github.com/andybalholm/brotli", "github.com/klauspost/compress"},
	"internal/wire/dictionary": {"github.com/klauspost/compress"},

	"lab/experiment/protocols": {"github.com/quic-go/quic-go"}, // a server of HTTP/3

	// The oracles of what we write.
	"images/codec":     {"golang.org/x/image"},
	"images/container": {"github.com/gen2brain/avif", "github.com/gen2brain/webp", "golang.org/x/image"},
	"images/worker":    {"golang.org/x/image"},

	// The oracles of our frames, and clients.
	"internal/server":      {"golang.org/x/net"}, // HTTP/2 frame by frame
	"websocket":            {"github.com/gobwas/ws", "github.com/lxzan/gws", "golang.org/x/net", "github.com/centrifugal/centrifuge-go", "github.com/centrifugal/gocent/v3"},
	"websocket/centrifuge": {"github.com/centrifugal/protocol", "google.golang.org/protobuf"},
	"websocket/channels":   {"github.com/gobwas/ws", "golang.org/x/sys"}, // pairs of sockets
	"websocket/conn":       {"github.com/gobwas/ws", "github.com/lxzan/gws"},
	"websocket/frame":      {"github.com/gobwas/ws", "github.com/lxzan/gws"},
}

// A goPackage is one directory's package as far as the rules care.
type goPackage struct {
	dir         string // with slashes, "." for the root
	name        string
	imports     []string
	onlyInTests []string
	files       []string // without tests
	testFiles   []string
}

// modulePackages reads every package of this module: all directories with Go
// files but testdata, hidden ones and other modules. Files for every operating
// system count, so an import behind a build constraint is seen too.
func modulePackages(t *testing.T) []goPackage {
	t.Helper()
	var packages []goPackage
	err := filepath.WalkDir(".", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if dir != "." && skipDir(dir) {
			return filepath.SkipDir
		}
		ctx := build.Default
		ctx.UseAllFiles = true
		p, err := ctx.ImportDir(dir, 0)
		if _, none := errors.AsType[*build.NoGoError](err); none {
			return nil
		}
		if err != nil {
			t.Errorf("reading %s: %v", dir, err)
			return nil
		}
		tests := slices.Concat(p.TestImports, p.XTestImports)
		packages = append(packages, goPackage{
			dir:         filepath.ToSlash(dir),
			name:        p.Name,
			imports:     p.Imports,
			onlyInTests: slices.DeleteFunc(tests, func(i string) bool { return slices.Contains(p.Imports, i) }),
			files:       slices.Concat(p.GoFiles, p.CgoFiles),
			testFiles:   slices.Concat(p.TestGoFiles, p.XTestGoFiles),
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 2 {
		t.Fatalf("found %d packages: this test must run in the root of the module", len(packages))
	}
	return packages
}

// skipDir reports whether the go command would not look into dir either.
func skipDir(dir string) bool {
	base := filepath.Base(dir)
	if base == "testdata" || base[0] == '.' || base[0] == '_' || dir == "bin" {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil // another module: tools, lab/bench/subjects
}

// A place is where a package stands in layers.
type place struct {
	room          string
	group, inside int // lines and bars above it
}

// placeOf finds a package in layers.
func placeOf(dir string) (place, bool) {
	for i, group := range layers {
		for _, r := range group {
			for j, packages := range strings.Split(r.inside, "|") {
				for p := range strings.FieldsSeq(packages) {
					if path.Join(r.dir, p) == dir {
						return place{r.dir, i, j}, true
					}
				}
			}
		}
	}
	return place{}, false
}

// ours cuts the module's name off an import path.
func ours(importPath string) (dir string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// TestLayers holds every import between our own packages against layers.
func TestLayers(t *testing.T) {
	packages, arrows := modulePackages(t), 0
	defer func() {
		t.Logf("%d packages import %d of ours, %.2f each", len(packages), arrows, float64(arrows)/float64(len(packages)))
	}()
	for _, p := range packages {
		self, ok := placeOf(p.dir)
		if !ok {
			t.Errorf("package %s has no place: add it to its room in the table layers in layers_test.go, as far down as what it imports allows", p.dir)
			continue
		}
		for _, imported := range p.imports {
			dir, ok := ours(imported)
			if !ok {
				continue
			}
			arrows++
			if why := forbidden(p.dir, dir); why != "" {
				t.Errorf("%s imports %s: %s", p.dir, dir, why)
			}
		}
		// A test may look down as its package may, and around in its room;
		// looking up would tie the layers together through the tests.
		for _, imported := range p.onlyInTests {
			dir, ok := ours(imported)
			if !ok {
				continue
			}
			if there, _ := placeOf(dir); there.room == self.room {
				continue
			}
			if why := forbidden(p.dir, dir); why != "" {
				t.Errorf("a test of %s imports %s: %s", p.dir, dir, why)
			}
		}
	}
}

// forbidden says why a package may not import another, or "" where it may.
func forbidden(from, to string) string {
	self, _ := placeOf(from)
	other, ok := placeOf(to)
	only, alone := isolated[self.room]
	switch {
	case !ok:
		return "it has no place in the table layers in layers_test.go; add it"
	case self.room == other.room && self.inside < other.inside:
		return ""
	case self.room == other.room && self.inside > other.inside, self.group > other.group:
		return "that is higher up; move what is needed down, or hand it in from above"
	case self.group == other.group:
		return "neither stands above the other; let a package above join them through a standard interface (http.Handler, fs.FS …), or move what they share further down"
	case alone && !slices.Contains(only, to):
		return fmt.Sprintf("%s stands alone and may import only %s", self.room, strings.Join(only, " and "))
	}
	return ""
}

// TestThirdParty holds every import from other modules against the golden
// lists, which keeps each dependency where it was argued for.
func TestThirdParty(t *testing.T) {
	everywhere := thirdPartyTests[""]
	for _, p := range modulePackages(t) {
		allowed := thirdParty[p.dir]
		for _, imported := range p.imports {
			if !standardOrOurs(imported) && !coveredBy(imported, allowed) {
				t.Errorf("%s imports %s, which is not on its list: do without it or, if the dependency is worth it, "+
					"add its module to thirdParty in layers_test.go and give the reason in the commit", p.dir, imported)
			}
		}
		inTests := slices.Concat(allowed, everywhere, thirdPartyTests[p.dir])
		for _, imported := range p.onlyInTests {
			if !standardOrOurs(imported) && !coveredBy(imported, inTests) {
				t.Errorf("a test of %s imports %s, which is not on its list: do without it or "+
					"add its module to thirdPartyTests in layers_test.go and give the reason in the commit", p.dir, imported)
			}
		}
	}
}

// standardOrOurs reports whether an import needs no entry: the standard
// library has no dot in the first element of its paths.
func standardOrOurs(importPath string) bool {
	if _, ok := ours(importPath); ok {
		return true
	}
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// coveredBy reports whether an import is one of the modules or inside one.
func coveredBy(importPath string, modules []string) bool {
	return slices.ContainsFunc(modules, func(m string) bool {
		return importPath == m || strings.HasPrefix(importPath, m+"/")
	})
}

// TestLayerTable checks the tables themselves: a package in two places would make
// the order depend on which is found first.
func TestLayerTable(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range slices.Concat(layers...) {
		for p := range strings.FieldsSeq(strings.ReplaceAll(r.inside, "|", " ")) {
			dir := path.Join(r.dir, p)
			if seen[dir] {
				t.Errorf("package %s stands twice in layers", dir)
			}
			seen[dir] = true
		}
	}
	for name, lists := range map[string]map[string][]string{"thirdParty": thirdParty, "thirdPartyTests": thirdPartyTests} {
		for _, p := range sortedKeys(lists) {
			if p != "" && !seen[p] {
				t.Errorf("%s names the package %s, which has no place in layers", name, p)
			}
		}
	}
	for _, p := range modulePackages(t) {
		delete(seen, p.dir)
	}
	for _, p := range sortedKeys(seen) {
		t.Errorf("layers_test.go names the package %s, which does not exist: delete it", p)
	}
}

// TestForbidden shows that the rules can fail: each arrow that must not be is
// refused, and its neighbour that may be is not.
func TestForbidden(t *testing.T) {
	for _, c := range []struct {
		from, to string
		refused  bool
	}{
		{"cmd/millrace", ".", false},
		{".", "cmd/millrace", true},
		{"static", "internal/lane", false},
		{"internal/lane", "static", true},
		{"static", "cache", true}, // one job must not know another
		{"internal/server", "static", true},
		{"internal/observe/meter", "internal/wire/send", false},
		{"internal/wire/send", "internal/observe/meter", true},
		{"lab", "internal/observe/meter", false},
		{"lab", "internal/wire/send", true}, // below it, yet not ours to use
		{"lab/load", "internal/ops/chart", false},
		{"lab/load", "internal/lane", true},
		{"lab", "lab/load", false},
		{"lab/load", "lab", true}, // up, within a room
		{"cache", "cache/key", false},
		{"cache/key", "cache/purge", true}, // two parts of one job
		{"cache/key", "images/params", true},
		{"static", "nowhere", true},
	} {
		if why := forbidden(c.from, c.to); (why != "") != c.refused {
			t.Errorf("%s imports %s: refused with %q, want refused = %v", c.from, c.to, why, c.refused)
		}
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
