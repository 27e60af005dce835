package accesslog

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/internal/observe/logfile"
)

func TestOptionsCheck(t *testing.T) {
	share := func(f float64) *float64 { return &f }
	for key, o := range map[string]Options{
		"rotate":   {Rotate: logfile.Options{Size: 1 << 20}},
		"to":       {To: "udp://"},
		"messages": {Messages: "stderr"},
		"fields":   {Format: "json", Fields: []string{"time", "cookie"}},
		"sample":   {Sample: share(math.NaN())},
		"slow":     {Slow: -1},
	} {
		if faults := o.Check(); faults[key] == nil || len(faults) != 1 {
			t.Errorf("%+v: %v, want one about %s", o, faults, key)
		}
	}
	for _, o := range []Options{
		{Format: "combined", Fields: []string{"time"}},
		{Format: "json", Fields: []string{"time", "time"}},
		{Format: "json", Fields: []string{"path", "target"}},
		{To: "journald", File: "a.log"},
		{Sample: share(1.1)},
		{To: "udp://host:99999"},
		{To: "journald?facility=local3"},
		{To: "syslog?facility=kern"},
	} {
		if len(o.Check()) != 1 {
			t.Errorf("%+v: %v", o, o.Check())
		}
	}
	good := Options{Format: "json", Fields: without("target"), To: "tcp://[::1]?facility=local7", Messages: "syslog", Sample: share(0), Slow: time.Second}
	if faults := good.Check(); len(faults) > 0 {
		t.Error(faults)
	}
}

// without are all fields but one.
func without(name string) []string {
	return slices.DeleteFunc(slices.Clone(fieldNames), func(n string) bool { return n == name })
}

// All fields at once say what the usual line says, and a few more things.
func TestFields(t *testing.T) {
	r := example
	r.ID, r.Secure, r.Target = "a-1", true, "/a?b=\"c"
	var usual map[string]any
	if err := json.Unmarshal([]byte(line(jsonLines, &r)), &usual); err != nil {
		t.Fatal(err)
	}
	usual["path"], usual["scheme"] = "/a", "https"
	for _, left := range []string{"target", "path"} {
		all, err := parseFields(without(left))
		if err != nil {
			t.Fatal(err)
		}
		got := string(appendLine(nil, jsonLines, all, &r, &clock{}))
		var m map[string]any
		if err := json.Unmarshal([]byte(got), &m); err != nil {
			t.Fatal(err, got)
		}
		m[left] = usual[left]
		if diff := cmp.Diff(usual, m); diff != "" {
			t.Error(diff)
		}
		l := r
		long := strings.Repeat("\u2028", 10_000)
		l.Target, l.Host, l.Referer, l.UserAgent, l.ID, l.Method, l.Proto, l.Remote = long, long, long, long, long, long, long, long
		if n := len(appendLine(nil, jsonLines, all, &l, &clock{})); n > maxLine {
			t.Errorf("the longest line has %d bytes, want at most %d", n, maxLine)
		}
	}
	two, err := parseFields([]string{"status", "path"})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(appendLine(nil, jsonLines, two, &r, &clock{})); got != `{"status":200,"path":"/a"}`+"\n" {
		t.Errorf("the line is %s", got)
	}
}

// A tenth of the usual requests, and all errors and slow ones.
func TestSample(t *testing.T) {
	const each = 10_000
	share := 0.1
	path := filepath.Join(t.TempDir(), "log")
	l, err := Open(Options{Format: "json", File: path, Fields: []string{"target"}, Sample: &share, Slow: time.Second}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	usual := 0
	for i := range each {
		r := Record{Time: time.Unix(0, int64(i)*10_007_000), Status: 200, Target: "usual"}
		if l.Wants(r.Time, r.Status, r.Duration) {
			usual++
		}
		l.Write(&r)
		r.Target, r.Status = "error", 404
		l.Write(&r)
		r.Target, r.Status, r.Duration = "slow", 200, time.Second
		l.Write(&r)
		if i%100 == 0 {
			time.Sleep(time.Millisecond) // for the writer
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	count := func(what string) int { return strings.Count(string(b), what) }
	if count("error") != each || count("slow") != each {
		t.Errorf("%d errors and %d slow ones of %d", count("error"), count("slow"), each)
	}
	if n := count("usual"); n < each/10*9/10 || n > each/10*11/10 || n != usual {
		t.Errorf("%d usual ones of %d, of which Wants knew %d", n, each, usual)
	}
}

// A log that is rotated has each line once.
func TestRotatedLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := Open(Options{Format: "common", File: path, Rotate: logfile.Options{Size: 64 << 10, Plain: true}}, nil, func(err error, _ uint64) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	const lines = 5000
	for i := range lines {
		l.Write(numbered(i))
		if i%50 == 0 {
			l.full <- struct{}{}
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range files {
		for _, target := range targets(t, f) {
			seen[target] = true
		}
	}
	if len(files) < 3 || len(seen) != lines {
		t.Errorf("%d lines in %d files, want %d in several", len(seen), len(files), lines)
	}
	for i := range lines {
		if !seen[fmt.Sprint("/", i)] {
			t.Fatalf("line %d is missing", i)
		}
	}
}
