package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/template"
	"time"

	"millrace/lab/result"
	"millrace/lab/subject"
)

// The arms.
const (
	apiDirect   = "direct"
	apiBaseline = "go-cache"
	apiMillrace = "millrace"
)

// apiOrigin is the page that may read the answers: the published proxy's
// CorsOrigin.
const apiOrigin = "https://blog.example"

// An apiPlace is where one instance of an arm lives.
type apiPlace struct {
	Dir      string // an empty one for what it writes
	Address  string // host:port to listen at
	Upstream string // host:port of the API
	Expiry   time.Duration
}

// An apiArm is one way to reach the API.
type apiArm struct {
	name, about, version string
	size                 int64
	workers              int // processes with a cache of their own
	skipped              string
	// command makes the service's command, after writing what config it needs;
	// nil for the API itself.
	command func(apiPlace) (*exec.Cmd, error)
	shown   []string
	places  *atomic.Int64 // handed out, over all arms
}

// prepare builds and finds the arms and lists them in the result.
func (r *apiRun) prepare(ctx context.Context) error {
	if r.env.Bench == nil {
		return errNoSources
	}
	limited, cancel := context.WithTimeoutCause(ctx, r.apiPlan.build, fmt.Errorf(
		"not built within %v: run it again, what was compiled until then is kept", r.apiPlan.build))
	defer cancel()
	r.say(result.Event{Kind: result.EventStep, Text: "building bench/subjects/apiupstream"})
	var err error
	if r.upstream, err = r.env.Bench.Build(limited, "apiupstream", nil, nil); err != nil {
		return err
	}
	places := new(atomic.Int64)
	arms := []*apiArm{{
		name: apiDirect, about: "the API itself, without a cache: what the published figures of Flask are, by their least latency", workers: 1,
		version: goVersion(r.upstream, ""), shown: []string{"apiupstream", "-listen", "127.0.0.1:PORT"},
	}, r.goArm(limited), r.nginxArm(limited), r.millraceArm(limited)}
	arms = append(arms, r.pythonArms(ctx)...)
	for _, a := range arms {
		a.places = places
		r.res.Arms = append(r.res.Arms, result.Arm{
			Name: a.name, About: a.about, Version: a.version, Size: a.size, Command: a.shown, Skipped: a.skipped,
		})
		if a.skipped != "" {
			r.note("%s was left out: %s", a.name, a.skipped)
			continue
		}
		r.arms = append(r.arms, a)
	}
	if len(r.arms) == 0 {
		return errNoArm
	}
	return ctx.Err()
}

// goArm is the published proxy.
func (r *apiRun) goArm(ctx context.Context) *apiArm {
	a := &apiArm{
		name: apiBaseline, about: "a Go proxy with patrickmn/go-cache, written to the published description: whatever the API answers is kept and served as 200",
		workers: 1, shown: []string{"apigocache", "-config", "FILE", "-expiry", apiExpiry.String()},
	}
	r.say(result.Event{Kind: result.EventStep, Arm: a.name, Text: "building bench/subjects/apigocache"})
	exe, err := r.env.Bench.Build(ctx, "apigocache", nil, nil)
	if err != nil {
		a.skipped = err.Error()
		return a
	}
	a.version, a.size = goVersion(exe, "github.com/patrickmn/go-cache"), fileSize(exe)
	a.command = func(p apiPlace) (*exec.Cmd, error) {
		file := filepath.Join(p.Dir, "config.json")
		text, err := json.Marshal(map[string]string{
			"HostPort": p.Address, "Stacosys": "http://" + p.Upstream, "CorsOrigin": apiOrigin,
		})
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			return nil, fmt.Errorf("writing the config of %s: %w", a.name, err)
		}
		return exec.Command(exe, "-config", file, "-expiry", p.Expiry.String()), nil
	}
	return a
}

// fileSize is how large an executable is; 0 if that cannot be seen.
func fileSize(name string) int64 {
	info, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return info.Size()
}

// millraceArm is the very program that runs this. The API does not say how long
// its answers live, so --ttl must.
func (r *apiRun) millraceArm(ctx context.Context) *apiArm {
	a := &apiArm{name: apiMillrace, about: "millrace cache, with the expiry as --ttl, no log", workers: 1}
	exe := r.env.Millrace
	if exe == "" {
		a.skipped = "there is no executable of millrace to measure"
		return a
	}
	a.version, a.size = subject.Version(ctx, exe, "version"), fileSize(exe)
	args := func(p apiPlace) []string {
		return []string{
			"cache", "http://" + p.Upstream, "--listen", p.Address, "--ttl", p.Expiry.String(),
			"--cors", apiOrigin, "--log", "off", "--admin", "off",
		}
	}
	a.shown = append([]string{"millrace"}, args(apiPlace{Address: "127.0.0.1:PORT", Upstream: "127.0.0.1:UPSTREAM", Expiry: apiExpiry})...)
	a.command = func(p apiPlace) (*exec.Cmd, error) { return exec.Command(exe, args(p)...), nil }
	return a
}

// apiNginx is what bench/peers/nginx/api-cache.conf.tmpl is filled with.
type apiNginx struct {
	Dir, Address, Upstream string
	Expiry                 string // in whole seconds, as nginx has it: 300s
	User                   string // of the workers; empty: as nginx is started
}

// nginxArm is nginx with proxy_cache.
func (r *apiRun) nginxArm(ctx context.Context) *apiArm {
	a := &apiArm{name: "nginx", about: "nginx with proxy_cache and proxy_cache_lock: bench/peers/nginx/api-cache.conf.tmpl", workers: 1}
	exe, err := subject.Look("nginx", "nginx-light")
	if err != nil {
		a.skipped = err.Error()
		return a
	}
	a.version = subject.Version(ctx, exe, "-v")
	a.shown = []string{"nginx", "-p", "DIR", "-e", "DIR/error.log", "-c", "DIR/nginx.conf"}
	source := filepath.Join(r.env.Bench.Dir, "peers", "nginx", "api-cache.conf.tmpl")
	a.command = func(p apiPlace) (*exec.Cmd, error) {
		c := apiNginx{
			Dir: p.Dir, Address: p.Address, Upstream: p.Upstream,
			Expiry: strconv.Itoa(max(1, int(p.Expiry.Seconds()))) + "s",
		}
		if os.Geteuid() == 0 {
			c.User = "root" // else its workers could not enter our private folder
		}
		conf := filepath.Join(p.Dir, "nginx.conf")
		if err := writeAPINginx(conf, source, c); err != nil {
			return nil, fmt.Errorf("writing nginx's config: %w", err)
		}
		// -e: nginx opens an error log before it has read where it should be.
		return exec.Command(exe, "-p", p.Dir, "-e", filepath.Join(p.Dir, "error.log"), "-c", conf), nil
	}
	return a
}

// writeAPINginx fills the template in a file.
func writeAPINginx(conf, source string, c apiNginx) error {
	for _, value := range []string{c.Dir, c.Address, c.Upstream, c.Expiry, c.User} {
		if strings.ContainsAny(value, " \t\r\n;{}\"'\\$#") {
			return fmt.Errorf("%q holds a character that means something in a config of nginx", value)
		}
	}
	t, err := template.ParseFiles(source)
	if err != nil {
		return err
	}
	var b strings.Builder
	if err := t.Execute(&b, c); err != nil {
		return err
	}
	return os.WriteFile(conf, []byte(b.String()), 0o600)
}

// An apiInstance is a running arm with an API of its own behind it.
type apiInstance struct {
	url      string // http://host:port of what clients ask
	upstream string // the API's, for its /__count and /__set
	api      *subject.Process
	service  *subject.Process // the same as api for the arm direct
}

// An apiSetting is how the API behind an instance behaves.
type apiSetting struct {
	delay  time.Duration
	errors float64
	expiry time.Duration // of the cache
	length time.Duration // of the load
}

// start starts an API and the arm in front of it.
func (r *apiRun) start(ctx context.Context, arm *apiArm, s apiSetting) (*apiInstance, error) {
	args := []string{"-delay", s.delay.String(), "-errors", strconv.FormatFloat(s.errors, 'g', -1, 64), "-seed", strconv.FormatUint(r.env.Seed, 10)}
	api, err := r.startAt(ctx, func(address string) (*exec.Cmd, error) {
		return exec.Command(r.upstream, append(args, "-listen", address)...), nil
	})
	if err != nil {
		return nil, err
	}
	in := &apiInstance{upstream: "http://" + api.Address(), api: api, service: api}
	if arm.command != nil {
		in.service, err = r.startAt(ctx, func(address string) (*exec.Cmd, error) {
			dir := filepath.Join(r.env.Work, "api-"+strconv.FormatInt(arm.places.Add(1), 10))
			if err := os.Mkdir(dir, 0o700); err != nil {
				return nil, fmt.Errorf("making a folder for %s: %w", arm.name, err)
			}
			return arm.command(apiPlace{Dir: dir, Address: address, Upstream: api.Address(), Expiry: s.expiry})
		})
		if err != nil {
			return nil, errors.Join(err, api.Stop())
		}
	}
	in.url = "http://" + in.service.Address()
	if err := in.awaitWorkers(ctx, arm.workers); err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for %s: %w", arm.name, err), in.stop())
	}
	return in, nil
}

// awaitWorkers waits until a service answers, with all of its workers: a socket
// accepts connections long before a worker in Python has loaded what it needs.
// A service that has several names the one that answers at /ready; of any
// other, every answer will do.
func (in *apiInstance) awaitWorkers(ctx context.Context, workers int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, apiStartTime, fmt.Errorf("it does not answer within %v", apiStartTime))
	defer cancel()
	seen := map[string]bool{}
	var mu sync.Mutex          // guards seen
	var answered time.Time     // when first
	const hands, rests = 4, 20 // questions at once for each worker, so that none gets all; ms between them
	for {
		var all sync.WaitGroup // of one goroutine for each question
		for range hands * workers {
			all.Go(func() {
				client := newAPIClient(in, false)
				defer client.close()
				if _, body, err := client.get(ctx, in.url+"/ready"); err == nil {
					mu.Lock()
					seen[string(body)] = true
					mu.Unlock()
				}
			})
		}
		all.Wait()
		switch {
		case len(seen) >= workers:
			return nil
		case len(seen) > 0 && answered.IsZero():
			answered = time.Now()
		case len(seen) > 0 && time.Since(answered) > apiLastWorker:
			return nil // a worker that gets no question now will get few later
		}
		select {
		case <-in.service.Ended():
			return errors.New("it ended") // stopping it says how
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(rests * time.Millisecond):
		}
	}
}

// startAt starts a command at a free address, and at another if that was taken
// in between.
func (r *apiRun) startAt(ctx context.Context, command func(address string) (*exec.Cmd, error)) (p *subject.Process, err error) {
	for range startTries {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		cmd, err := command(address)
		if err != nil {
			return nil, err
		}
		if p, err = subject.Start(ctx, cmd, address, apiStartTime); err == nil {
			return p, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
	}
	return nil, err
}

// apiStartTime is how long a service may take until it listens: eight may
// start at once on two cores, four of them in Python.
const apiStartTime = 20 * time.Second

// apiLastWorker is how long the last of several workers is waited for after the
// first has answered.
const apiLastWorker = 3 * time.Second

// stop ends both processes.
func (in *apiInstance) stop() error {
	err := in.service.Stop()
	if in.api != in.service {
		err = errors.Join(err, in.api.Stop())
	}
	return err
}
