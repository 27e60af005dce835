// Package arm starts, watches and stops the servers that are measured. An arm
// is one server with one configuration: nginx with a log and nginx without
// are two.
package arm

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
)

// Program is a server's program; arms of one program are compared with each
// other as "the same with a log".
type Program string

// The programs that can be measured.
const (
	Nginx    Program = "nginx"
	NetHTTP  Program = "nethttp"
	FastHTTP Program = "fasthttp"
	Varnish  Program = "varnish"
	GWS      Program = "gws"
	Coder    Program = "coder"
	Gorilla  Program = "gorilla"
	Millrace Program = "millrace"
)

// Debian says which executable an installed peer has, and which package of
// Debian; both empty for what is built here.
func (p Program) Debian() (executable, pkg string) {
	switch p {
	case Nginx:
		return "nginx", "nginx-light"
	case Varnish:
		return "varnishd", "varnish"
	}
	return "", ""
}

// Arm is one server as it is measured. To add one, add it to Files,
// Caches, Sockets or Pictures.
type Arm struct {
	Name    string // in raw data and for --arms: a word
	Title   string // in RESULTS.md
	Program Program
	Logs    bool // writes an access log; compared only with arms that do
	Variant bool // of interest, but in no comparison (millrace --no-lane)

	// Command is the program and its arguments. It may write what the program
	// reads (a config) into e.Dir first.
	Command func(e Env) ([]string, error)

	// TCP tells that it listens at its address alone, and on no UNIX socket.
	TCP bool
	// Any tells that whatever it answers to a request for / shows that it is up.
	Any bool
	// Modes are those that a server of WebSockets can be started in.
	Modes []Mode
	// Purge is the request that makes a cache forget all answers with a tag;
	// nil: it cannot.
	Purge func(e Env, tag string) Purge
}

// Purge is a request to a server, and where it takes that.
type Purge struct {
	Network string // tcp or unix
	Address string
	Text    string // from the request line to the end
}

// Ours tells whether the arm is millrace, in whatever variant.
func (a Arm) Ours() bool { return a.Program == Millrace }

// Env is where an arm runs.
type Env struct {
	Dir     string // the arm's own folder, for everything it writes
	Site    string // the folder that it serves
	Address string // 127.0.0.1:PORT that it listens on
	Bench   string // the repository's folder bench
	Bin     string // the folder of the compiled subjects
	Binary  string // the path of the program millrace

	// What a cache needs.
	Upstream string // host:port that it is in front of
	Memory   int    // MiB that its answers may take

	// What a server of WebSockets does; one with the mode Proxy does it with
	// Upstream.
	Mode Mode

	Images Images // what a server of pictures is told
}

// Socket is the UNIX socket that the arm listens on beside Address.
func (e Env) Socket() string { return filepath.Join(e.Dir, "http.sock") }

// Log is the arm's access log, if it has one.
func (e Env) Log() string { return filepath.Join(e.Dir, "access.log") }

// Admin is millrace's admin socket.
func (e Env) Admin() string { return filepath.Join(e.Dir, "admin.sock") }

// Output is the file that gets what the server prints.
func (e Env) Output() string { return filepath.Join(e.Dir, "output.txt") }

// Files are the arms of bench/run files.
func Files() []Arm {
	return []Arm{
		{Name: "nginx", Title: "nginx", Program: Nginx, Command: nginxCommand("")},
		{Name: "nethttp", Title: "net/http FileServer", Program: NetHTTP, Command: subject("nethttp")},
		{Name: "fasthttp", Title: "fasthttp FS", Program: FastHTTP, Command: subject("fasthttpfs")},
		{Name: "millrace", Title: "millrace", Program: Millrace, Command: millrace("--log", "off")},
		{Name: "millrace-nolane", Title: "millrace --no-lane", Program: Millrace, Variant: true, Command: millrace("--log", "off", "--no-lane")},
		{Name: "nginx-log", Title: "nginx, log", Program: Nginx, Logs: true, Command: nginxCommand("access.log")},
		{Name: "millrace-log", Title: "millrace, log", Program: Millrace, Logs: true, Command: millraceLog},
	}
}

// Caches are the arms of bench/run cache.
func Caches() []Arm {
	return []Arm{
		{Name: "nginx", Title: "nginx", Program: Nginx, TCP: true, Command: nginxCache},
		{Name: "varnish", Title: "Varnish", Program: Varnish, TCP: true, Command: varnishCommand, Purge: varnishPurge},
		{Name: "millrace", Title: "millrace", Program: Millrace, TCP: true, Command: millraceCache, Purge: millracePurge},
	}
}

// Find picks arms by name, in the order of all; unknown gives the names that
// are none.
func Find(all []Arm, names []string) (found []Arm, unknown []string) {
	for _, a := range all {
		if slices.Contains(names, a.Name) {
			found = append(found, a)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(a Arm) bool { return a.Name == name }) {
			unknown = append(unknown, name)
		}
	}
	return found, unknown
}

// subject is the command of a server in this module.
func subject(name string) func(Env) ([]string, error) {
	return func(e Env) ([]string, error) {
		return []string{filepath.Join(e.Bin, name), "-root", e.Site, "-listen", e.Address, "-unix", e.Socket()}, nil
	}
}

// millrace is its command with more flags. The admin socket is on, because the
// share of the lane's answers is read from its metrics.
func millrace(flags ...string) func(Env) ([]string, error) {
	return func(e Env) ([]string, error) {
		argv := []string{
			e.Binary, "serve", e.Site,
			"--listen", e.Address, "--listen", "unix:" + e.Socket(),
			"--admin", "unix:" + e.Admin(),
		}
		return append(argv, flags...), nil
	}
}

func millraceLog(e Env) ([]string, error) {
	return millrace("--log", "combined", "--log-file", e.Log())(e)
}

// millraceCache is its command as a cache.
func millraceCache(e Env) ([]string, error) {
	return []string{
		e.Binary, "cache", "http://" + e.Upstream, "--listen", e.Address,
		"--memory", strconv.Itoa(e.Memory) + "MiB", "--log", "off", "--admin", "unix:" + e.Admin(),
	}, nil
}

// millracePurge is the call of its admin socket.
func millracePurge(e Env, tag string) Purge {
	body, err := json.Marshal(map[string]string{"tag": tag})
	if err != nil {
		panic(err) // a map of strings
	}
	return Purge{
		Network: "unix", Address: e.Admin(),
		Text: fmt.Sprintf("POST /cache/purge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
	}
}
