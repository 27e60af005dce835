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

// layers is the order of the program, from the top down. A package may import
// packages from lines below its own, never from its own line or one above.
//
// Adding a package: put it on the lowest line that is above everything it
// imports. If no line fits, two packages want to know each other; that is a
// question for a review, not for a new line.
var layers = [][]string{
	{"cmd/millrace", "cmd/millrace-slim", "examples/everything", "examples/embedded-site", "packaging/image", "packaging/sbom", "packaging/rename"},
	{".", "importer/compare"}, // package millrace, the root: the library that other programs import
	{"internal/engine", "importer/nginx", "importer/caddy", "importer/apache"}, // engine: the only place where jobs meet
	{"internal/config", "internal/server/certs", "internal/server/h3", "internal/engine/slim"},
	{"static", "images", "php", "cache", "websocket", "lab", "internal/server", "internal/ops/admin"},
	{"proxy", "static/original"},
	{"internal/upstream", "internal/server/guard", "internal/access/signin", "store/disk", "store/memory", "store/redis", "store/s3", "store/bus/nats"},
	{"internal/lane", "static/packer", "internal/wire/dictionary", "internal/ops/dashboard"},
	{"store", "bus", "internal/wire/send", "internal/route/site", "internal/observe/accesslog", "internal/wire/compress", "internal/process/gogc", "static/packfile", "internal/upstream/spool", "internal/ops/otlp", "internal/ops/slow", "internal/ops/exposition", "internal/route/rulefile"},
	{"internal/observe/meter", "internal/wire/negotiate", "internal/wire/condition", "internal/ops/chart", "internal/wire/field", "internal/upstream/fastcgi", "internal/route/match", "internal/access/password", "internal/wire/epoll", "internal/process/servertest", "internal/process/servertest", "internal/wire/h2", "internal/wire/lean", "internal/route/headers", "internal/route/headers", "internal/wire/netset", "internal/access/admit", "internal/access/token", "importer/caddyconf", "importer/apacheconf", "importer/importertest"},
	{"internal/observe/trace", "internal/observe/logfile"},
	{"internal/wire/field", "internal/wire/field", "internal/wire/netset", "internal/wire/stall", "internal/wire/proxyline", "internal/process/handover", "internal/process/confine", "internal/process/steer", "internal/access/token", "internal/observe/redact", "internal/access/challenge", "internal/bytesize", "internal/observe/logfile", "importer/draft", "importer/nginxconf"},
	{"internal/wire/netset", "importer/draft", "importer/draft", "internal/wire/urlpath", "internal/wire/lookup"},
}

// rooms is the same order within the packages of layers that have others below
// them: a job and what it is made of. Every such package stands in it. Tests
// are free within a room: a contract's suite lies beside what it tests.
var rooms = map[string][][]string{
	"cache": {
		{"cache/control"},
		{"cache"},
		{"cache/fetch"},
		{"cache/purge", "cache/tier"},
		{"cache/object", "cache/rules"},
		{"cache/fill", "cache/key", "cache/purge", "cache/rfc9111"},
	},
	"images": {
		{"images/control"},
		{"images"},
		{"images/params", "images/worker"},
		{"images/convert"},
		{"images/codec", "images/icc", "images/jpeg"},
		{"images/container", "images/header", "images/picture", "images/queue", "images/remote", "images/sandbox"},
	},
	"websocket": {
		{"websocket/control"},
		{"websocket"},
		{"websocket/channels"},
		{"websocket/conn", "websocket/hub"},
		{"websocket/auth", "websocket/client", "websocket/frame", "websocket/page"},
	},
	"lab": {
		{"lab"},
		{ // experiments do not know each other
			"lab/experiment/cache", "lab/experiment/cache", "lab/experiment/websocket", "lab/experiment/embed",
			"lab/experiment/files", "lab/experiment/images", "lab/experiment/packed", "lab/experiment/images", "lab/experiment/protocols", "lab/experiment/proxy", "lab/experiment/sendfile",
			"lab/experiment/tls", "lab/experiment/websocket",
		},
		{"lab/experiment/cache", "lab/experiment", "lab/experiment", "lab/experiment"},
		{"lab/experiment"},
		{"lab/live", "lab/pgo", "lab/report", "lab/experiment"},
		{"lab/gate", "lab/gate"},
		{"lab/load", "lab/subject"},
		{"lab/link", "lab/load/client", "lab/load/client", "lab/record"},
		{"lab/record", "lab/stats"},
	},
	"internal/upstream": {
		{"internal/upstream", "internal/upstream/faulty"},
		{"internal/upstream/http1"},
	},
	"cmd/millrace": {
		{"cmd/millrace"},
		{"cmd/millrace/internal/cachecmd", "cmd/millrace/internal/opscmd", "cmd/millrace/internal/explaincmd", "cmd/millrace/internal/imagescmd", "cmd/millrace/internal/importcmd", "cmd/millrace/internal/opscmd", "cmd/millrace/internal/packcmd", "cmd/millrace/internal/opscmd", "cmd/millrace/internal/labcmd", "cmd/millrace/internal/opscmd", "cmd/millrace/internal/opscmd", "cmd/millrace/internal/wscmd"},
		{"cmd/millrace/internal/labcmd", "cmd/millrace/internal/servecmd"},
		{"cmd/millrace/internal/cli", "cmd/millrace/internal/cli", "cmd/millrace/internal/cli"},
		{"cmd/millrace/internal/cli", "cmd/millrace/internal/imagescmd"},
		{"cmd/millrace/internal/cli", "cmd/millrace/internal/cli"},
	},
	"store": {
		{"store/storetest"},
		{"store"},
	},
	"bus": {
		{"store/bus/bustest"},
		{"bus"},
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
	"internal/access/admit":    {"github.com/dchest/siphash"}, // with a key that another process can have
	"internal/access/password": {"golang.org/x/crypto"},
	"internal/config":   {"github.com/goccy/go-yaml", "github.com/invopop/jsonschema"},
	"internal/server":   {"golang.org/x/sys", "golang.org/x/net", "golang.org/x/crypto"}, // names of hosts; OCSP
	"internal/ops/otlp":     {"google.golang.org/protobuf"},                                  // protowire, not its reflection
	"internal/server/certs":    {"github.com/caddyserver/certmagic", "github.com/mholt/acmez/v3", "go.uber.org/zap", "golang.org/x/time"},
	"internal/ops/admin":    {"github.com/google/pprof", "github.com/prometheus/procfs"}, // the difference of two profiles; what the kernel says of this process
	"internal/server/h3":       {"github.com/quic-go/quic-go", "github.com/quic-go/qpack"},
	"internal/lane":     {"golang.org/x/sys", "golang.org/x/net"},
	"internal/wire/h2":       {"golang.org/x/net"},
	"internal/wire/send":     {"golang.org/x/sys"},
	"internal/process/steer":    {"golang.org/x/sys", "golang.org/x/net"}, // programs for the kernel
	"internal/wire/epoll":    {"golang.org/x/sys"},
	"internal/process/handover": {"golang.org/x/sys"}, // the clock that systemd goes by
	"internal/ops/chart":    {"golang.org/x/image"},
	"lab/link":          {"golang.org/x/sys"},
	"lab/load":          {"golang.org/x/sys"},
	"lab/load/client":    {"golang.org/x/net"},
	"lab/load/client":   {"github.com/gobwas/ws", "github.com/quic-go/quic-go", "golang.org/x/net"},
	"lab/record":        {"golang.org/x/sys"},
	"lab/subject":       {"golang.org/x/sys"},
	"lab/live":          {"github.com/muesli/cancelreader", "golang.org/x/term"},
	"lab/pgo":           {"github.com/google/pprof"},
	"cache/tier":        {"github.com/maypok86/otter/v2"},
	"store/disk":        {"golang.org/x/sys"},
	"cache/rfc9111":     {"github.com/dunglas/httpsfv"},
	"store/redis":       {"github.com/redis/rueidis"},
	"store/bus/nats":          {"github.com/nats-io/nats.go"},
	"internal/wire/field":    {"golang.org/x/net"}, // httpguts: tokens and lists of them
	"images/codec":      {"github.com/gen2brain/avif", "github.com/gen2brain/webp", "golang.org/x/image", "golang.org/x/sys"},
	"images/convert":    {"golang.org/x/image"}, // decoders
	"images/sandbox":    {"github.com/landlock-lsm/go-landlock", "golang.org/x/sys", "kernel.org/pub/linux/libs/security/libcap/psx"},
	"images/worker":     {"golang.org/x/sys"},
	"internal/process/confine":  {"github.com/landlock-lsm/go-landlock", "golang.org/x/sys"},
	"images/remote":     {"golang.org/x/time"},                                 // a log line once in a while
	"store/s3":          {"github.com/minio/minio-go/v7", "golang.org/x/time"}, // a log line once in a while
	"websocket":         {"golang.org/x/time"},                                 // a log line once in a while
	"internal/access/token":    {"github.com/golang-jwt/jwt/v5"},
	"websocket/conn":    {"golang.org/x/sys"},
	"websocket/frame":   {"github.com/klauspost/compress"},

	"cmd/millrace/internal/opscmd": {"github.com/muesli/cancelreader", "golang.org/x/term"},
	"internal/wire/compress": {
		"github.com/andybalholm/brotli",
		"github.com/klauspost/compress",
	},
	"internal/ops/dashboard": {"github.com/google/pprof"}, // reads CPU profiles
	"packaging/rename":   {"github.com/google/pprof"},
	"packaging/image":    {"golang.org/x/crypto/x509roots/fallback"}, // certificates of public CAs
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
	"":                     {"github.com/google/go-cmp", "go.uber.org/goleak"},
	"internal/engine":      {"go.opentelemetry.io/proto/otlp", "google.golang.org/protobuf", "github.com/letsencrypt/pebble/v2", "github.com/miekg/dns", "github.com/quic-go/quic-go", "github.com/golang-jwt/jwt/v5"}, // a CA, its DNS; a client of HTTP/3; who signs tokens
	"internal/ops/admin":       {"github.com/prometheus/client_golang"},                                                                                                                                                    // a linter of metrics
	"internal/ops/exposition":  {"github.com/prometheus/client_golang", "github.com/prometheus/common"},                                                                                                                    // what reads and writes the format elsewhere
	"internal/ops/otlp":        {"go.opentelemetry.io/proto/otlp", "google.golang.org/protobuf"},                                                                                                                           // a collector's types
	"internal/access/signin":      {"github.com/golang-jwt/jwt/v5"},                                                                                                                                                           // who signs tokens
	"websocket/auth":       {"github.com/golang-jwt/jwt/v5"},
	"cmd/millrace":         {"github.com/rogpeppe/go-internal", "github.com/quic-go/quic-go", "golang.org/x/net"}, // streams without a window
	"lab/experiment/proxy": {"github.com/gobwas/ws"},                                                              // an echo
	"lab/live":             {"github.com/charmbracelet/x/ansi"},                                                   // what knows how wide a text is
	"lab/load":             {"github.com/HdrHistogram/hdrhistogram-go"},                                           // what our histogram is measured against
	"lab/stats":            {"golang.org/x/perf"},
	"cache/purge":          {"github.com/anishathalye/porcupine"}, // linearizability of purges
	"cache":                {"github.com/dunglas/httpsfv"},        // what our Cache-Status is read with
	"static":               {"github.com/andybalholm/brotli", "github.com/klauspost/compress"},
	"internal/wire/dictionary":  {"github.com/klauspost/compress"},

	"lab/experiment/protocols": {"github.com/quic-go/quic-go"}, // a server of HTTP/3

	// The oracles of what we write.
	"images/codec":     {"golang.org/x/image"},
	"images/container": {"github.com/gen2brain/avif", "github.com/gen2brain/webp", "golang.org/x/image"},
	"images/worker":    {"golang.org/x/image"},

	// The oracles of our frames, and clients.
	"internal/server":    {"golang.org/x/net"}, // HTTP/2 frame by frame
	"websocket":          {"github.com/gobwas/ws", "github.com/lxzan/gws", "golang.org/x/net"},
	"websocket/channels": {"github.com/gobwas/ws"},
	"websocket/conn":     {"github.com/gobwas/ws", "github.com/lxzan/gws"},
	"websocket/frame":    {"github.com/gobwas/ws", "github.com/lxzan/gws"},
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

// layerOf is the line of a package in layers, or -1. Packages below a listed
// one (lab/load) count as part of it.
func layerOf(dir string) (line int, listed string) {
	for d := dir; ; d = path.Dir(d) {
		for i, packages := range layers {
			if slices.Contains(packages, d) {
				return i, d
			}
		}
		if d == "." || path.Dir(d) == "." {
			return -1, ""
		}
	}
}

// ours cuts the module's name off an import path.
func ours(importPath string) (dir string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// lineIn is the line of a package in its room, or -1.
func lineIn(room, dir string) int {
	return slices.IndexFunc(rooms[room], func(packages []string) bool { return slices.Contains(packages, dir) })
}

// TestLayers holds every import between our own packages against layers and rooms.
func TestLayers(t *testing.T) {
	packages, arrows := modulePackages(t), 0
	defer func() {
		t.Logf("%d packages import %d of ours, %.2f each", len(packages), arrows, float64(arrows)/float64(len(packages)))
	}()
	for _, p := range packages {
		line, room := layerOf(p.dir)
		if line < 0 {
			t.Errorf("package %s has no layer: add it to the table layers in layers_test.go, on the lowest line above all it imports", p.dir)
			continue
		}
		if p.dir != room && (lineIn(room, p.dir) < 0 || lineIn(room, room) < 0) {
			t.Errorf("package %s has no line in its room: add it, and %s, to rooms[%q] in layers_test.go, on the lowest line above all it imports there", p.dir, room, room)
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
			if _, around := layerOf(dir); around == room {
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
	line, self := layerOf(from)
	below, listed := layerOf(to)
	only, alone := isolated[self]
	switch {
	case below < 0:
		return "it has no layer; add it to the table layers in layers_test.go"
	case listed == self: // within one room
		if line, below = lineIn(self, from), lineIn(self, to); below < 0 {
			return "it has no line in its room; add it to rooms in layers_test.go"
		}
	case alone && !slices.Contains(only, listed):
		return fmt.Sprintf("%s stands alone and may import only %s", self, strings.Join(only, " and "))
	}
	switch {
	case below == line:
		return "both are on one line; let a package above join them through a standard interface (http.Handler, fs.FS …), or move what they share further down"
	case below < line:
		return "that is higher up; move what is needed down, or hand it in from above"
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

// TestLayerTable checks the tables themselves: a package on two lines would
// make the order depend on which is found first.
func TestLayerTable(t *testing.T) {
	seen := map[string]int{}
	for i, packages := range layers {
		for _, p := range packages {
			if before, twice := seen[p]; twice {
				t.Errorf("package %s is on line %d and on line %d of layers", p, before+1, i+1)
			}
			seen[p] = i
		}
	}
	for _, room := range sortedKeys(rooms) {
		if _, known := seen[room]; !known {
			t.Errorf("rooms has %s, which is not in layers", room)
		}
		inside := map[string]bool{}
		for _, p := range slices.Concat(rooms[room]...) {
			if _, listed := layerOf(p); listed != room {
				t.Errorf("rooms[%q] has the package %s, which layers has in %s", room, p, listed)
			}
			if inside[p] {
				t.Errorf("package %s is twice in rooms[%q]", p, room)
			}
			inside[p], seen[p] = true, 0
		}
	}
	for _, p := range modulePackages(t) {
		delete(seen, p.dir)
	}
	for _, p := range sortedKeys(seen) {
		t.Errorf("layers_test.go names the package %s, which does not exist: delete it", p)
	}
	for name, lists := range map[string]map[string][]string{"thirdParty": thirdParty, "thirdPartyTests": thirdPartyTests} {
		for _, p := range sortedKeys(lists) {
			if p == "" {
				continue
			}
			if line, _ := layerOf(p); line < 0 {
				t.Errorf("%s names the package %s, which has no layer", name, p)
			}
		}
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
		{"internal/wire/send", "internal/observe/meter", false},
		{"internal/observe/meter", "internal/wire/negotiate", true}, // two leaves
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
