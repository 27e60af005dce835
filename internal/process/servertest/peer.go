package servertest

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Peer is another server or program that a test compares with.
type Peer struct {
	Name    string   // its command
	Package string   // what to install, for who has not
	Env     string   // names another file for it; "" for none
	Version []string // the arguments that make it tell its version; nil: any version does
	Known   []string // versions whose behaviour the test knows, by how they begin, as in "2.4."
}

// Path is the peer's file. The test is skipped where the peer is missing, or of a version
// that the test does not know: what that does differently is no fault of Millrace's.
func (p Peer) Path(t testing.TB) string {
	t.Helper()
	path, why := p.Find()
	if why != "" {
		t.Skip(why)
	}
	return path
}

// Find is Path for who can do without; why says what is amiss, "" for nothing.
func (p Peer) Find() (path, why string) {
	if p.Env != "" {
		path = os.Getenv(p.Env)
	}
	if path == "" {
		var err error
		if path, err = exec.LookPath(p.Name); err != nil {
			return "", fmt.Sprintf("%s is not installed (%s)", p.Name, p.Package)
		}
	}
	if p.Version == nil {
		return path, ""
	}
	out, _ := exec.Command(path, p.Version...).CombinedOutput() // one that fails tells no version
	version := versionIn(string(out))
	if slices.ContainsFunc(p.Known, func(known string) bool { return strings.HasPrefix(version, known) }) {
		return path, ""
	}
	return "", fmt.Sprintf("%s is of version %q, and the test is for %s (%s)", path, version, strings.Join(p.Known, ", "), p.Package)
}

// versionIn is the first version that a text names, as in v2.11.2 or nginx/1.22.1; "" if
// it names none.
func versionIn(text string) string {
	m := regexp.MustCompile(`(?:^|[^\w.])v?(\d+\.\d+[\w.]*)`).FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	return m[1]
}

// Nginx is one of the peers that imports are compared with, as Apache and Caddy are.
func Nginx() Peer {
	return Peer{Name: "nginx", Package: "Debian: nginx", Version: []string{"-v"}, Known: []string{"1.22.", "1.24.", "1.26.", "1.28."}}
}

// Apache is 2.4.
func Apache() Peer {
	return Peer{Name: "apache2", Package: "Debian: apache2", Version: []string{"-v"}, Known: []string{"2.4."}}
}

// Caddy is the one of lab/bench/subjects/caddy; Debian's 2.6 answers errors differently.
func Caddy() Peer {
	return Peer{Name: "caddy", Package: "go build -C lab/bench/subjects/caddy -o FILE ., and MILLRACE_CADDY=FILE names it", Env: "MILLRACE_CADDY", Version: []string{"version"}, Known: []string{"2.11."}}
}

// HAProxy is one of the peers whose patterns the documentation has beside ours.
func HAProxy() Peer {
	return Peer{Name: "haproxy", Package: "Debian: haproxy", Version: []string{"-v"}, Known: []string{"2.6.", "2.8.", "3.0.", "3.2."}}
}

// Varnish is one of the peers whose patterns the documentation has beside ours.
func Varnish() Peer {
	return Peer{Name: "varnishd", Package: "Debian: varnish", Version: []string{"-V"}, Known: []string{"7.", "8."}}
}
