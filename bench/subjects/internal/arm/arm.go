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
	Millrace Program = "millrace"
)

// Debian says which executable an installed peer has, and which package of
// Debian; both empty for what is built here.
func (p Program) Debian() (executable, pkg string) {
	switch p {
	case Nginx:
		return "nginx", "nginx-light"
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
