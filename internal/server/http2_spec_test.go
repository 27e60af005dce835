//go:build !race

package server

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"millrace/internal/lane"
	"millrace/internal/process/servertest"
)

// h2specFaults are the tests of h2spec that may fail: net/http's answers as well.
// The list may only shrink. Those of a kind "sometimes" depend on who is faster,
// an answer of the handler or the next frame of the test.
var h2specFaults = map[string]string{
	"http2/8.1.2.2 Sends a HEADERS frame that contains the connection-specific header field":                                                             "answered with 400",
	`http2/8.1.2.2 Sends a HEADERS frame that contains the TE header field with any value other than "trailers"`:                                         "answered with 400",
	`http2/8.1.2.6 Sends a HEADERS frame with the "content-length" header field which does not equal the DATA frame payload length`:                      "sometimes",
	`http2/8.1.2.6 Sends a HEADERS frame with the "content-length" header field which does not equal the sum of the multiple DATA frames payload length`: "sometimes",
	"http2/6.9.2 Changes SETTINGS_INITIAL_WINDOW_SIZE after sending HEADERS frame":                                                                       "sometimes",
	"http2/6.5.3 Sends multiple values of SETTINGS_INITIAL_WINDOW_SIZE":                                                                                  "net/http takes no setting twice",
}

// TestH2spec has h2spec look at both servers. Its version is pinned in
// packaging/tools/h2spec/go.mod.
func TestH2spec(t *testing.T) {
	t.Parallel() // it mostly waits
	cmd := exec.Command("go", "tool", "-C", filepath.Join("..", "..", "packaging", "tools", "h2spec"), "-n", "h2spec")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -trimpath", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("h2spec of packaging/tools/h2spec cannot be built: %v", err)
	}
	servertest.WithLaneAndWithout(t, func(t *testing.T, off bool) {
		t.Parallel()
		r := start(t, plan{lane: lane.Options{Off: off}, handler: offering(page(smallBody), lane.Rule{})})
		r.teach(t, "tls", "/")
		program := strings.TrimSpace(string(out))
		passed, failed := h2spec(t, program, r.secure)
		if passed < 134 {
			t.Errorf("%d tests passed", passed)
		}
		for _, f := range failed {
			t.Errorf("failed, and failed again: %s", f)
		}
	})
}

// h2spec runs the program and returns how many tests passed, and which others than
// h2specFaults did not. Many tests wait for what must not come, so its parts run
// at once.
func h2spec(t *testing.T, program, addr string) (passed int, failed []string) {
	t.Helper()
	parts := []string{"generic/1", "generic/2", "generic/3", "generic/4", "generic/5", "http2/3", "http2/4", "http2/5", "http2/6", "http2/7", "http2/8", "hpack"}
	results := make([]h2specResult, len(parts))
	var all sync.WaitGroup
	for i, part := range parts {
		report := filepath.Join(t.TempDir(), "report.xml")
		all.Go(func() { results[i] = h2specPart(program, addr, part, report) })
	}
	all.Wait()
	for i, r := range results {
		// Its tests have time limits, which a busy machine can pass.
		for range 2 {
			if r.err != nil || len(r.failed) > 0 {
				r = h2specPart(program, addr, parts[i], filepath.Join(t.TempDir(), "report.xml"))
			}
		}
		if r.err != nil {
			t.Fatalf("%s: %v", parts[i], r.err)
		}
		passed += r.passed
		failed = append(failed, r.failed...)
	}
	return passed, failed
}

type h2specResult struct {
	passed int
	failed []string
	err    error
}

func h2specPart(program, addr, part, report string) (r h2specResult) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return h2specResult{err: err}
	}
	out, err := exec.Command(program, "-t", "-k", "-h", host, "-p", port, "-o", "5", "-j", report, part).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) { // it fails where a test does
		return h2specResult{err: fmt.Errorf("%w\n%s", err, out)}
	}
	b, err := os.ReadFile(report)
	if err != nil {
		return h2specResult{err: fmt.Errorf("%w\n%s", err, out)}
	}
	var suites struct {
		Suites []struct {
			Cases []struct {
				Package string    `xml:"package,attr"`
				Name    string    `xml:"classname,attr"`
				Skipped *struct{} `xml:"skipped"`
				Failure *struct{} `xml:"failure"`
				Error   *struct{} `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(b, &suites); err != nil {
		return h2specResult{err: err}
	}
	for _, s := range suites.Suites {
		for _, c := range s.Cases {
			name := c.Package + " " + c.Name
			switch {
			case c.Skipped != nil:
			case c.Failure == nil && c.Error == nil:
				r.passed++
			case h2specFaults[name] == "":
				r.failed = append(r.failed, name)
			}
		}
	}
	return r
}
