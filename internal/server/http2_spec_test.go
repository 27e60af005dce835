//go:build !race

package server

import (
	"encoding/xml"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/internal/lane"
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
// tools/h2spec/go.mod.
func TestH2spec(t *testing.T) {
	cmd := exec.Command("go", "tool", "-C", filepath.Join("..", "..", "tools", "h2spec"), "-n", "h2spec")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -pgo=off", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("h2spec of tools/h2spec cannot be built: %v", err)
	}
	for name, o := range map[string]lane.Options{"lane": {}, "no lane": {Off: true}} {
		t.Run(name, func(t *testing.T) {
			r := start(t, plan{lane: o, handler: offering(page(smallBody), lane.Rule{})})
			r.teach(t, "tls", "/")
			program := strings.TrimSpace(string(out))
			passed, failed := h2spec(t, program, r.secure)
			if passed < 134 || len(failed) > 0 {
				// Its tests have time limits, which a busy machine can pass.
				var again []string
				passed, again = h2spec(t, program, r.secure)
				failed = slices.DeleteFunc(failed, func(f string) bool { return !slices.Contains(again, f) })
			}
			if passed < 134 {
				t.Errorf("%d tests passed", passed)
			}
			for _, f := range failed {
				t.Errorf("failed, twice: %s", f)
			}
		})
	}
}

// h2spec runs the program and returns how many tests passed, and which others than h2specFaults did not.
func h2spec(t *testing.T, program, addr string) (passed int, failed []string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "report.xml")
	out, err := exec.Command(program, "-t", "-k", "-h", host, "-p", port, "-o", "5", "-j", report).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) { // it fails where a test does
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var suites struct {
		Suites []struct {
			Cases []struct {
				Package string    `xml:"package,attr"`
				Name    string    `xml:"classname,attr"`
				Failure *struct{} `xml:"failure"`
				Error   *struct{} `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(b, &suites); err != nil {
		t.Fatal(err)
	}
	for _, s := range suites.Suites {
		for _, c := range s.Cases {
			name := c.Package + " " + c.Name
			switch {
			case c.Failure == nil && c.Error == nil:
				passed++
			case h2specFaults[name] == "":
				failed = append(failed, name)
			}
		}
	}
	return passed, failed
}
