package engine_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
)

// Thousands of sites cost neither a descriptor nor a goroutine each, not even once all
// were visited, and a reload keeps what is the same.
func TestManySites(t *testing.T) {
	const n = 1200 // above manySites
	top := t.TempDir()
	var yaml strings.Builder
	yaml.WriteString("listen: 127.0.0.1:0\nsites:\n")
	for i := range n {
		dir := filepath.Join(top, fmt.Sprint(i))
		write(t, filepath.Join(dir, "index.html"), fmt.Sprintf("site %d", i))
		fmt.Fprintf(&yaml, "- hosts: [s%d.example]\n  routes: {/: {static: {root: %q}}}\n", i, dir)
	}
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	srv := start(t, parse(t, yaml.String()))
	if more := runtime.NumGoroutine() - goroutines; more > 50 {
		t.Errorf("%d goroutines for %d sites", more, n)
	}
	if more := descriptors(t) - files; more > 50 {
		t.Errorf("%d descriptors for %d sites", more, n)
	}
	visit := func() {
		t.Helper()
		c := dial(t, srv.Addrs()[0])
		for i := range n {
			if status, body := c.get(fmt.Sprintf("s%d.example", i), "/"); status != http.StatusOK || body != fmt.Sprintf("site %d", i) {
				t.Fatalf("site %d: %d %q", i, status, body)
			}
		}
		_ = c.Close()
	}
	if os.Getenv("GOGC")+os.Getenv("GOMEMLIMIT") == "" {
		before := gcPercent()
		done := srv.Loading()
		if during := gcPercent(); during >= before {
			t.Errorf("GOGC is %d while a config is loaded, %d before", during, before)
		}
		done()
		if after := gcPercent(); after != before {
			t.Errorf("GOGC is %d after a config was loaded, %d before", after, before)
		}
	}
	visit()
	if more := descriptors(t) - files; more > 600 {
		t.Errorf("%d descriptors for %d sites that were visited", more, n)
	}
	if err := srv.Reload(parse(t, yaml.String())); err != nil {
		t.Fatal(err)
	}
	visit()
}

// gcPercent is GOGC as it is now.
func gcPercent() uint64 {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("needs /proc")
	}
	return len(entries)
}
