package experiment

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/lab/result"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

const (
	// startTime is how long a server may take until it listens.
	startTime = 10 * time.Second
	// startTries is how many ports are tried: between the choice of a free one
	// and its use somebody else may have taken it.
	startTries = 3
	// builders is how many go commands run at once: each uses all cores while
	// it compiles, and one while it links.
	builders = 2
	// quickBuild is how much of the 90 s of a quick run compiling may take, on
	// a machine whose module cache is empty.
	quickBuild = 35 * time.Second
	fullBuild  = 4 * time.Minute
)

// A place is where one server of an arm lives. Placebos and restarts have
// places of their own.
type place struct {
	Site    string // the folder that is served
	Dir     string // an empty one for what the server writes
	Address string // host:port
	Socket  string // path of a UNIX socket
}

// shownPlace stands for any in the commands that a report shows.
func shownPlace() place {
	return place{Site: "SITE", Dir: "DIR", Address: "127.0.0.1:PORT", Socket: "SOCKET"}
}

// A launch is how a server is started at a place.
type launch struct {
	exe     string
	args    func(place) []string
	prepare func(place) error // writes its config; may be nil
	socket  bool              // it listens on the socket, too, and opens that last
}

func (l launch) command() []string {
	return append([]string{filepath.Base(l.exe)}, l.args(shownPlace())...)
}

// fileServers start the servers of the two experiments about files.
type fileServers struct {
	env    Env
	site   string
	paths  []string     // that are looked at when an arm first starts; none: it is not
	places atomic.Int64 // handed out

	mu     sync.Mutex // guards what follows, and keeps events one at a time
	built  map[string]builtSubject
	probes map[string][]probe // by arm: what it answers, seen when it first started

	launches map[string]launch // by arm, for those that can run
}

type builtSubject struct {
	path string
	err  error
}

func newFileServers(env Env) *fileServers {
	return &fileServers{
		env: env, site: filepath.Join(env.Work, "site"), paths: sitePaths(),
		built: map[string]builtSubject{}, probes: map[string][]probe{}, launches: map[string]launch{},
	}
}

func (s *fileServers) say(e result.Event) {
	if s.env.Watch != nil {
		e.Time = time.Now()
		s.env.Watch(e)
	}
}

// A buildJob is one executable of bench/subjects.
type buildJob struct {
	key   string // in fileServers.built
	name  string // of the folder
	flags []string
}

// build compiles subjects, the first ones first, until the mode's time for that
// is over. What could not be built has the reason; only ctx ends it early.
func (s *fileServers) build(ctx context.Context, jobs []buildJob) error {
	if s.env.Bench == nil {
		return nil
	}
	limit := fullBuild
	if s.env.Mode == result.Quick {
		limit = quickBuild
	}
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf(
		"not built within %v: run it again, what was compiled until then is kept", limit))
	defer cancel()
	queue := make(chan buildJob, len(jobs))
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	var group sync.WaitGroup // of builders goroutines, which end with the queue
	for range builders {
		group.Go(func() {
			for j := range queue {
				s.buildOne(limited, j)
			}
		})
	}
	group.Wait()
	return ctx.Err()
}

func (s *fileServers) buildOne(ctx context.Context, j buildJob) {
	s.mu.Lock()
	s.say(result.Event{Kind: result.EventStep, Text: "building bench/subjects/" + j.name})
	s.mu.Unlock()
	path, err := s.env.Bench.Build(ctx, j.name, j.flags, nil)
	s.mu.Lock()
	s.built[j.key] = builtSubject{path, err}
	s.mu.Unlock()
}

// errNoSources is why subjects are missing.
var errNoSources = errors.New("its source is in millrace's repository: run this in a checkout, with Go installed")

// subject is the executable of a build job.
func (s *fileServers) subject(key string) (string, error) {
	if s.env.Bench == nil {
		return "", errNoSources
	}
	b, ok := s.built[key]
	if !ok {
		return "", fmt.Errorf("%s was not built", key)
	}
	return b.path, b.err
}

// arm is an arm that is started with l; err is why it cannot be.
func (s *fileServers) arm(name, about string, l launch, err error) trial.Arm {
	a := trial.Arm{Name: name, About: about}
	if err != nil {
		a.Skipped = strings.TrimSpace(err.Error())
		return a
	}
	if info, err := os.Stat(l.exe); err == nil {
		a.Size = info.Size()
	}
	a.Command = l.command()
	s.launches[name] = l
	a.Start = func(ctx context.Context) (*trial.Instance, error) { return s.start(ctx, name, l) }
	return a
}

// goVersion names the compiler of a Go executable, and one of its modules.
func goVersion(exe, module string) string {
	info, err := buildinfo.ReadFile(exe)
	if err != nil {
		return ""
	}
	for _, d := range info.Deps {
		if d.Path == module {
			return module[strings.LastIndexByte(module, '/')+1:] + " " + d.Version + ", " + info.GoVersion
		}
	}
	return info.GoVersion
}

// start runs an arm's server at a new place.
func (s *fileServers) start(ctx context.Context, name string, l launch) (in *trial.Instance, err error) {
	for range startTries {
		if in, err = s.startOnce(ctx, l, exec.Command); err == nil {
			err = s.look(ctx, name, in)
			break
		}
		if ctx.Err() != nil {
			break
		}
	}
	return in, err
}

// startOnce starts a server with a command that is made as exec.Command does it.
func (s *fileServers) startOnce(
	ctx context.Context, l launch, command func(string, ...string) *exec.Cmd,
) (*trial.Instance, error) {
	dir := filepath.Join(s.env.Work, strconv.FormatInt(s.places.Add(1), 10))
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // nginx's workers may have another account
		return nil, fmt.Errorf("making a folder for the server: %w", err)
	}
	port, err := subject.FreePort()
	if err != nil {
		return nil, err
	}
	p := place{Site: s.site, Dir: dir, Address: "127.0.0.1:" + strconv.Itoa(port), Socket: filepath.Join(dir, "s")}
	if l.prepare != nil {
		if err := l.prepare(p); err != nil {
			return nil, err
		}
	}
	await := p.Address
	if l.socket {
		await = "unix:" + p.Socket
	}
	process, err := subject.Start(ctx, command(l.exe, l.args(p)...), await, startTime)
	if err != nil {
		return nil, err
	}
	in := &trial.Instance{
		URL:  map[string]string{"": "http://" + p.Address + "/"},
		PIDs: []int{process.PID}, Stop: process.Stop,
	}
	if l.socket {
		in.URL["unix"] = await
	}
	return in, nil
}

// millrace starts millrace itself on the site, without a log as the others.
func (s *fileServers) millrace(socket bool) (launch, error) {
	if s.env.Millrace == "" {
		return launch{}, errors.New("there is no executable of millrace to measure")
	}
	return launch{exe: s.env.Millrace, socket: socket, args: func(p place) []string {
		args := []string{"serve", p.Site, "-l", p.Address}
		if socket {
			args = append(args, "-l", "unix:"+p.Socket)
		}
		return append(args, "--log", "off", "--admin", "off")
	}}, nil
}
