// Package confine restricts a process to a list of files and folders (Landlock, Linux 5.19
// and later). The restriction holds until the process ends, and for all processes that it
// starts.
//
// Rights belong to threads, and new threads inherit them. So Enter restricts one thread
// and executes this program anew from it: the new program has the same process id, and
// all of its threads are in one domain. Restricting each thread by itself would make as
// many domains, none of which may signal processes that another one has started.
//
// Landlock's rules are for the files themselves, not for their names. A folder's rule
// holds for everything in it, also later. A file or folder that replaces another one of
// the same name has no rule: that is what [Parents] is for.
package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Access is what may be done with a file, or with all that is in a folder.
type Access uint8

const (
	// Read lets files be read and folders listed.
	Read Access = 1 << iota
	// Execute lets files be executed, and read.
	Execute
	// Write lets files and folders be made, read, written, renamed and removed;
	// links, devices and sockets are not made.
	Write
	// Socket lets UNIX sockets be made, and files removed.
	Socket
)

// Rule allows access to a file, or to a folder and all in it.
type Rule struct {
	Path   string // a file or folder; links are followed once, when the rule is made
	Access Access
	For    string // the key of the config that names it, or what needs it
	// Make: a missing folder is made, for its owner alone.
	Make bool
	// Extra: the config works without the rule, which is for files that may be missing
	// or may be replaced later.
	Extra bool
}

// The modes of [Options].
const (
	Off     = "off"
	Auto    = "auto"
	Require = "require"
)

// Options say what the process may reach beside what the config names. "auto" and
// "require" stand for that mode.
type Options struct {
	// Mode is off, auto (what the kernel has) or require (no start without it).
	// From the start on, the process can then only read its sites and the files
	// that this config names, and write its stores, logs and sockets. A
	// reload cannot change that. Default off.
	Mode string `yaml:"mode"`
	// Read are further files and folders that may be read, as the folder in which
	// deployments make new sites.
	Read []string `yaml:"read"`
	// Write are further folders in which files may be made, changed and removed.
	Write []string `yaml:"write"`
}

// UnmarshalText lets a config say "sandbox: auto".
func (o *Options) UnmarshalText(text []byte) error {
	mode := string(text)
	if mode == "false" { // YAML 1.1 reads off as that
		mode = Off
	}
	if why := checkMode(mode); why != nil {
		return why
	}
	o.Mode = mode
	return nil
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error {
	if err := checkMode(o.Mode); err != nil {
		return map[string]error{"mode": err}
	}
	return nil
}

func checkMode(mode string) error {
	switch mode {
	case "", Off, Auto, Require:
		return nil
	}
	return fmt.Errorf("%q is not a way to use the sandbox: write off, auto or require", mode)
}

// On reports whether the process is to be confined.
func (o Options) On() bool { return o.Mode == Auto || o.Mode == Require }

// Same reports whether both mean the same.
func (o Options) Same(other Options) bool {
	return o.On() == other.On() && slices.Equal(o.Read, other.Read) && slices.Equal(o.Write, other.Write)
}

// ErrMissing is wrapped by errors of kernels without Landlock.
var ErrMissing = errors.New("the kernel has no Landlock")

// Granted is a rule that is in force.
type Granted struct {
	Path         string // where it was, without links
	Access       Access
	Device, File uint64
}

// covers reports whether path, which has no links, is the rule's file or in its folder,
// and whether that is still the same file or folder as at the start.
func (g Granted) covers(path string) bool {
	if !below(path, g.Path) {
		return false
	}
	device, file, err := identify(g.Path)
	return err == nil && device == g.Device && file == g.File
}

// Domain is the set of rules that a process is confined to.
type Domain struct {
	Version int // Landlock's
	Scoped  bool
	Granted []Granted
}

// Reads returns the number of rules for reading.
func (d *Domain) Reads() int { return d.count(Read) }

// Writes returns the number of rules for changing files.
func (d *Domain) Writes() int { return d.count(Write | Socket) }

func (d *Domain) count(a Access) (n int) {
	for _, g := range d.Granted {
		if g.Access&a != 0 {
			n++
		}
	}
	return n
}

// Beyond returns the rules that the domain does not cover. Rules for missing files are
// left out, unless the file may be made.
func (d *Domain) Beyond(rules []Rule) (beyond []Rule) {
	for _, r := range rules {
		if path, ok := lookUp(r); ok && !r.Extra && !d.covers(path, r.Access) {
			beyond = append(beyond, r)
		}
	}
	return beyond
}

// lookUp returns the file or folder that a rule is for; for a missing one that may be
// made, the closest folder above it.
func lookUp(r Rule) (string, bool) {
	path := r.Path
	for {
		found, err := filepath.EvalSymlinks(path)
		if err == nil {
			return found, true
		}
		if r.Access&(Write|Socket) == 0 || path == filepath.Dir(path) {
			return "", false
		}
		path = filepath.Dir(path)
	}
}

func (d *Domain) covers(path string, wanted Access) bool {
	for _, g := range d.Granted {
		if wanted&g.Access != 0 && g.covers(path) {
			wanted &^= g.Access
		}
	}
	return wanted == 0
}

// Make makes the missing folders of rules that ask for it. Errors are dropped: the
// process reports a missing folder when it needs it.
func Make(rules []Rule) {
	for _, r := range rules {
		if r.Make && os.MkdirAll(filepath.Dir(r.Path), 0o755) == nil { //nolint:gosec // see above
			_ = os.Mkdir(r.Path, 0o700)
		}
	}
}

// Writable returns the folder whose rule lets the process change or replace a file, or a
// link on its path; "": none does. A rule for sockets does not count: it only allows to
// remove files.
func Writable(rules []Rule, file string) string {
	for _, name := range linksTo(file) {
		for _, r := range rules {
			if dir, ok := lookUp(r); ok && r.Access&Write != 0 && below(name, dir) {
				return dir
			}
		}
	}
	return ""
}

// mostLinks bounds the links that are followed one after the other (MAXSYMLINKS has
// 40).
const mostLinks = 40

// linksTo returns the names that decide which file an absolute path leads to: all
// symbolic links on the path, each under its name with earlier links resolved, and the
// file.
func linksTo(file string) (names []string) {
	rest, at := file, "/"
	for links := 0; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
		if name == "" {
			continue
		}
		next := filepath.Join(at, name)
		to, err := os.Readlink(next)
		if err != nil || links == mostLinks {
			at = next
			continue
		}
		links++
		names = append(names, next)
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = to + "/" + rest
	}
	return append(names, at)
}

// below reports whether a path is that of a folder or of something in it.
func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// Parents returns rules for the folder of a file or folder, and where it is a link, for
// the folder of its target: programs change a file by renaming a new one over it, and
// deployments do so with folders. There is no rule for a folder that is [Broad].
func Parents(path string, access Access, key string) (rules []Rule) {
	const mostLinks = 8
	for range mostLinks {
		if dir := filepath.Dir(path); !Broad(dir) {
			rules = append(rules, Rule{Path: dir, Access: access, For: key, Extra: true})
		}
		to, err := os.Readlink(path)
		if err != nil {
			return rules
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return rules
}

// shared are folders of the second level that belong to no single program.
var shared = []string{
	"/usr/bin", "/usr/lib", "/usr/libexec", "/usr/local", "/usr/sbin", "/usr/share", "/usr/local/bin", "/usr/local/etc", "/usr/local/lib", "/usr/local/share",
	"/var/backups", "/var/cache", "/var/lib", "/var/local", "/var/log", "/var/mail", "/var/opt", "/var/run", "/var/spool", "/var/tmp",
	"/run/user", "/run/lock", "/proc/self", "/dev/shm", "/etc/ssl/private",
}

// Broad reports whether a folder holds files of many programs or users: /, the folders
// directly below it, home folders, and some of the system's.
func Broad(dir string) bool {
	up := filepath.Dir(dir)
	if up == "/" || up == "/home" || up == "/run/user" || slices.Contains(shared, dir) || dir == filepath.Clean(os.TempDir()) {
		return true
	}
	home, err := os.UserHomeDir()
	return err == nil && filepath.Clean(home) == dir
}
