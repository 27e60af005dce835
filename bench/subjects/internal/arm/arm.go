// Package arm starts, watches and stops the servers that are measured. An arm
// is one server with one configuration: nginx with a log and nginx without
// are two.
package arm

import (
	"path/filepath"
	"slices"
)

// Program is a server's program; arms of one program are compared with each
// other as "the same with a log".
type Program string

// The programs that can be measured.
const (
	Nginx    Program = "nginx"
	NetHTTP  Program = "nethttp"
	FastHTTP Program = "fasthttp"
	Millrace Program = "millrace"
)

// Arm is one server as it is measured. To add one, add it to Files.
type Arm struct {
	Name    string // in raw data and for --arms: a word
	Title   string // in RESULTS.md
	Program Program
	Logs    bool // writes an access log; compared only with arms that do
	Variant bool // of interest, but in no comparison (millrace --no-lane)

	// Command is the program and its arguments. It may write what the program
	// reads (a config) into e.Dir first.
	Command func(e Env) ([]string, error)
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
