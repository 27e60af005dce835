package former

// This file starts the servers of the experiments about files, and has the site
// that they serve.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/lab/subject"
	"millrace/lab/trial"
)

const (
	// startTime is how long a server may take until it listens.
	startTime = 10 * time.Second
	// packTime is how long packing the site may take.
	packTime = time.Minute
)

// A Place is where one server of an arm lives. Placebos and restarts have
// places of their own.
type Place struct {
	Site    string // the folder that is served
	Dir     string // an empty one for what the server writes
	Address string // host:port
	Second  string // another one, for servers that listen for HTTPS as well
	Socket  string // path of a UNIX socket
	Memory  string // an empty folder in memory, where the system has that, of a launch that asks for it
}

// shownPlace stands for any in the commands that a report shows.
func shownPlace() Place {
	return Place{Site: "SITE", Dir: "DIR", Address: "127.0.0.1:PORT", Second: "127.0.0.1:PORT2", Socket: "SOCKET", Memory: "MEMORY"}
}

// A Launch is how a server is started at a place.
type Launch struct {
	Missing error // why it cannot be; then nothing else is set
	Exe     string
	Version string
	Args    func(Place) []string
	Prepare func(Place) error             // writes its config; may be nil
	URLs    func(Place) map[string]string // beside those that all have, by workload; may be nil
	Socket  bool                          // it listens on the socket, too, and opens that last
	Memory  bool                          // it wants the folder in memory
}

// errNoNginxConfig is why nginx is not measured outside of a checkout.
var errNoNginxConfig = errors.New("its config is in millrace's repository, lab/bench/peers/nginx: run this in a checkout")

// Servers starts servers on one site. Set it up before the first start.
type Servers struct {
	Env      Env
	Programs *Programs
	Site     string   // the folder that is served
	Probed   []string // paths that a server that has just started is asked for; none: it is not

	places   atomic.Int64      // handed out
	launches map[string]Launch // by arm, for those that can run

	mu     sync.Mutex         // guards probes
	probes map[string][]Probe // by arm: what it answers, seen when it first started
}

// Arm is an arm that is started with l.
func (s *Servers) Arm(name, about string, l Launch) trial.Arm {
	a := trial.Arm{Name: name, About: about}
	if l.Missing != nil {
		a.Skipped = strings.TrimSpace(l.Missing.Error())
		return a
	}
	a.Version, a.Size = l.Version, subject.Size(l.Exe)
	a.Command = append([]string{filepath.Base(l.Exe)}, l.Args(shownPlace())...)
	if s.launches == nil {
		s.launches = map[string]Launch{}
	}
	s.launches[name] = l
	a.Start = func(ctx context.Context) (*trial.Instance, error) {
		in, err := s.start(ctx, l, exec.Command)
		if err == nil {
			err = s.look(ctx, name, in)
		}
		return in, err
	}
	return a
}

// Start starts the server of an arm with a command that is made as exec.Command
// does it.
func (s *Servers) Start(ctx context.Context, arm string, command func(string, ...string) *exec.Cmd) (*trial.Instance, error) {
	return s.start(ctx, s.launches[arm], command)
}

// start runs a server at a new place.
func (s *Servers) start(ctx context.Context, l Launch, command func(string, ...string) *exec.Cmd) (*trial.Instance, error) {
	return subject.Retry(ctx, func() (*trial.Instance, error) {
		dir := filepath.Join(s.Env.Work, strconv.FormatInt(s.places.Add(1), 10))
		if err := os.Mkdir(dir, 0o755); err != nil { // nginx's workers may have another account
			return nil, fmt.Errorf("making a folder for the server: %w", err)
		}
		address, err := subject.FreeAddress()
		if err != nil {
			return nil, err
		}
		second, err := subject.FreeAddress()
		if err != nil {
			return nil, err
		}
		p := Place{Site: s.Site, Dir: dir, Address: address, Second: second, Socket: filepath.Join(dir, "s")}
		if l.Memory {
			if p.Memory, err = inMemory(); err != nil {
				return nil, err
			}
		}
		process, await, err := l.run(ctx, p, command)
		if err != nil {
			return nil, errors.Join(err, removeAll(p.Memory))
		}
		in := &trial.Instance{
			URL:  map[string]string{"": "http://" + p.Address + "/"},
			PIDs: []int{process.PID},
			// What it wrote may be large: a cache, or an access log.
			Stop: func() error { return errors.Join(process.Stop(), os.RemoveAll(dir), removeAll(p.Memory)) },
		}
		if l.Socket {
			in.URL["unix"] = await
		}
		if l.URLs != nil {
			maps.Copy(in.URL, l.URLs(p))
		}
		return in, nil
	})
}

// run starts the process at a place. await is where it was seen to listen.
func (l Launch) run(ctx context.Context, p Place, command func(string, ...string) *exec.Cmd) (process *subject.Process, await string, err error) {
	if l.Prepare != nil {
		if err := l.Prepare(p); err != nil {
			return nil, "", err
		}
	}
	await = p.Address
	if l.Socket {
		await = "unix:" + p.Socket
	}
	process, err = subject.Start(ctx, command(l.Exe, l.Args(p)...), await, startTime)
	return process, await, err
}

// inMemory makes a folder in Linux's file system in memory, or among temporary
// files where there is none.
func inMemory() (string, error) {
	parent := "/dev/shm"
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		parent = ""
	}
	dir, err := os.MkdirTemp(parent, "millrace-lab-")
	if err != nil {
		return "", fmt.Errorf("making a folder for the server: %w", err)
	}
	return dir, nil
}

// removeAll removes a folder, where there is one.
func removeAll(dir string) error {
	if dir == "" {
		return nil
	}
	return os.RemoveAll(dir)
}

// Subject starts a program of lab/bench/subjects on the site; module is the one
// whose version is told.
func (s *Servers) Subject(key, module string, args func(Place) []string) Launch {
	exe, err := s.Programs.Path(key)
	if err != nil {
		return Launch{Missing: err}
	}
	return Launch{Exe: exe, Version: subject.GoVersion(exe, module), Args: args}
}

// FileServerProgram is lab/bench/subjects/fileserver with one library alone, so that sizes and memory are
// those of that library. tags are its build tags: the library, and disk where no site
// is to be embedded.
func FileServerProgram(key string, tags ...string) Program {
	return Program{Key: key, Name: "fileserver", Flags: []string{"-tags=single," + strings.Join(tags, ",")}}
}

// Millrace starts millrace itself on the site, without a log as the others unless
// the flags say otherwise.
func (s *Servers) Millrace(socket bool, flags ...string) Launch {
	l := s.MillraceWith(func(p Place) []string {
		args := []string{"serve", p.Site, "-l", p.Address}
		if socket {
			args = append(args, "-l", "unix:"+p.Socket)
		}
		return append(append(args, "--log", "off", "--admin", "off"), flags...)
	})
	l.Socket = socket
	return l
}

// MillraceWith starts millrace itself with a command line.
func (s *Servers) MillraceWith(args func(Place) []string) Launch {
	exe := s.Env.Millrace
	if exe == "" {
		return Launch{Missing: ErrNoMillrace}
	}
	return Launch{Exe: exe, Version: subject.GoVersion(exe, ""), Args: args}
}

// Packed packs the site into an executable of millrace, file, and starts that. Call
// it when the site is written.
func (s *Servers) Packed(ctx context.Context, file string) Launch {
	if s.Env.Millrace == "" {
		return Launch{Missing: ErrNoMillrace}
	}
	ctx, cancel := context.WithTimeout(ctx, packTime)
	defer cancel()
	if out, err := exec.CommandContext(ctx, s.Env.Millrace, "pack", s.Site, "-o", file).CombinedOutput(); err != nil {
		return Launch{Missing: fmt.Errorf("packing the site: %w: %s", err, bytes.TrimSpace(out))}
	}
	return Launch{Exe: file, Version: subject.GoVersion(file, ""), Args: func(p Place) []string {
		return []string{"--listen", p.Address, "--log", "off", "--admin", "off"}
	}}
}

// Nginx starts nginx as its manual advises for static files, on TCP and a UNIX
// socket. log is the name of an access log in its folder; empty: none.
func (s *Servers) Nginx(ctx context.Context, log string) Launch {
	l := s.NginxWith(ctx, "nginx.conf.tmpl", func(p Place) map[string]string {
		fields := map[string]string{"Site": p.Site, "Address": p.Address, "Socket": p.Socket, "Log": ""}
		if log != "" {
			fields["Log"] = filepath.Join(p.Dir, log)
		}
		return fields
	})
	l.Socket = true
	return l
}

// NginxWith starts nginx with a config of lab/bench/peers/nginx, a template that has
// these fields beside those of [subject.WriteNginxConfig].
func (s *Servers) NginxWith(ctx context.Context, name string, fields func(Place) map[string]string) Launch {
	exe, version, err := subject.Nginx(ctx)
	if err == nil && s.Env.Bench == nil {
		err = errNoNginxConfig
	}
	if err != nil {
		return Launch{Missing: err}
	}
	template := filepath.Join(s.Env.Bench.Dir, "peers", "nginx", name)
	return Launch{
		Exe: exe, Version: version,
		Args:    func(p Place) []string { return subject.NginxArgs(p.Dir) },
		Prepare: func(p Place) error { return subject.WriteNginxConfig(p.Dir, template, fields(p)) },
	}
}
