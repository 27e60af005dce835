package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/record"
	"millrace/lab/subject"
)

// The arms.
const (
	directArm    = "direct"
	baselineArm  = "go-cache"
	millraceName = "millrace"
)

// corsOrigin is the page that may read the answers: the published proxy's
// CorsOrigin.
const corsOrigin = "https://blog.example"

// A place is where one instance of an arm lives.
type place struct {
	Dir      string // an empty one for what it writes
	Address  string // host:port to listen at
	Upstream string // host:port of the API
	Expiry   time.Duration
}

// A cacheArm is one way to reach the API.
type cacheArm struct {
	name, about, version string
	size                 int64
	workers              int // processes with a cache of their own
	skipped              string
	// command makes the service's command, after writing what config it needs;
	// nil for the API itself.
	command func(place) (*exec.Cmd, error)
	shown   []string
	places  *atomic.Int64 // handed out, over all arms
}

// prepare builds and finds the arms and lists them in the result.
func (r *cacheRun) prepare(ctx context.Context) error {
	if r.env.Bench == nil {
		return experiment.ErrNoSources
	}
	programs, err := r.Build(ctx, []experiment.Program{{Name: "upstream"}, {Name: "apigocache"}})
	if err == nil {
		r.upstream, err = programs.Path("upstream")
	}
	if err != nil {
		return err
	}
	places := new(atomic.Int64)
	arms := []*cacheArm{{
		name: directArm, about: "the API itself, without a cache: what the published figures of Flask are, by their least latency", workers: 1,
		version: subject.GoVersion(r.upstream, ""), shown: []string{"upstream", "api", "-listen", "127.0.0.1:PORT"},
	}, goArm(programs), r.nginxArm(ctx), r.millraceArm(ctx)}
	arms = append(arms, r.pythonArms(ctx)...)
	for _, a := range arms {
		a.places = places
		r.res.Arms = append(r.res.Arms, record.Arm{
			Name: a.name, About: a.about, Version: a.version, Size: a.size, Command: a.shown, Skipped: a.skipped,
		})
		if a.skipped != "" {
			r.Note("%s was left out: %s", a.name, a.skipped)
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
func goArm(programs *experiment.Programs) *cacheArm {
	a := &cacheArm{
		name: baselineArm, about: "a Go proxy with patrickmn/go-cache, written to the published description: whatever the API answers is kept and served as 200",
		workers: 1, shown: []string{"apigocache", "-config", "FILE", "-expiry", publishedExpiry.String()},
	}
	exe, err := programs.Path("apigocache")
	if err != nil {
		a.skipped = err.Error()
		return a
	}
	a.version, a.size = subject.GoVersion(exe, "github.com/patrickmn/go-cache"), subject.Size(exe)
	a.command = func(p place) (*exec.Cmd, error) {
		file := filepath.Join(p.Dir, "config.json")
		text, err := json.Marshal(map[string]string{
			"HostPort": p.Address, "Stacosys": "http://" + p.Upstream, "CorsOrigin": corsOrigin,
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

// millraceArm is the very program that runs this. The API does not say how long
// its answers live, so --ttl must.
func (r *cacheRun) millraceArm(ctx context.Context) *cacheArm {
	a := &cacheArm{name: millraceName, about: "millrace cache, with the expiry as --ttl, no log", workers: 1}
	exe := r.env.Millrace
	if exe == "" {
		a.skipped = experiment.ErrNoMillrace.Error()
		return a
	}
	a.version, a.size = subject.Version(ctx, exe, "version"), subject.Size(exe)
	args := func(p place) []string {
		return []string{
			"cache", "http://" + p.Upstream, "--listen", p.Address, "--ttl", p.Expiry.String(),
			"--cors", corsOrigin, "--log", "off", "--admin", "off",
		}
	}
	a.shown = append([]string{"millrace"}, args(place{Address: "127.0.0.1:PORT", Upstream: "127.0.0.1:UPSTREAM", Expiry: publishedExpiry})...)
	a.command = func(p place) (*exec.Cmd, error) { return exec.Command(exe, args(p)...), nil }
	return a
}

// nginxArm is nginx with proxy_cache.
func (r *cacheRun) nginxArm(ctx context.Context) *cacheArm {
	a := &cacheArm{name: "nginx", about: "nginx with proxy_cache and proxy_cache_lock: lab/bench/peers/nginx/api-cache.conf.tmpl", workers: 1}
	exe, version, err := subject.Nginx(ctx)
	if err != nil {
		a.skipped = err.Error()
		return a
	}
	a.version, a.shown = version, append([]string{"nginx"}, subject.NginxArgs("DIR")...)
	template := filepath.Join(r.env.Bench.Dir, "peers", "nginx", "api-cache.conf.tmpl")
	a.command = func(p place) (*exec.Cmd, error) {
		err := subject.WriteNginxConfig(p.Dir, template, map[string]string{
			"Address": p.Address, "Upstream": p.Upstream,
			"Expiry": strconv.Itoa(max(1, int(p.Expiry.Seconds()))) + "s", // nginx has whole seconds
		})
		return exec.Command(exe, subject.NginxArgs(p.Dir)...), err
	}
	return a
}

// A runningArm is a running arm with an API of its own behind it.
type runningArm struct {
	url      string // http://host:port of what clients ask
	upstream string // the API's, for its /__count and /__set
	api      *subject.Process
	service  *subject.Process // the same as api for the arm direct
}

// An upstreamSetting is how the API behind an instance behaves.
type upstreamSetting struct {
	delay  time.Duration
	errors float64
	expiry time.Duration // of the cache
	length time.Duration // of the load
}

// start starts an API and the arm in front of it, again where somebody else took
// its address after it had begun to answer: Sanic opens it for its workers only
// then.
func (r *cacheRun) start(ctx context.Context, arm *cacheArm, s upstreamSetting) (*runningArm, error) {
	return subject.Retry(ctx, func() (*runningArm, error) { return r.startOnce(ctx, arm, s) })
}

func (r *cacheRun) startOnce(ctx context.Context, arm *cacheArm, s upstreamSetting) (*runningArm, error) {
	args := []string{"api", "-delay", s.delay.String(), "-errors", strconv.FormatFloat(s.errors, 'g', -1, 64), "-seed", strconv.FormatUint(r.env.Seed, 10)}
	api, err := subject.StartFree(ctx, startTime, func(address string) (*exec.Cmd, error) {
		return exec.Command(r.upstream, append(args, "-listen", address)...), nil
	})
	if err != nil {
		return nil, err
	}
	in := &runningArm{upstream: "http://" + api.Address(), api: api, service: api}
	if arm.command != nil {
		in.service, err = subject.StartFree(ctx, startTime, func(address string) (*exec.Cmd, error) {
			dir := filepath.Join(r.env.Work, "api-"+strconv.FormatInt(arm.places.Add(1), 10))
			if err := os.Mkdir(dir, 0o700); err != nil {
				return nil, fmt.Errorf("making a folder for %s: %w", arm.name, err)
			}
			return arm.command(place{Dir: dir, Address: address, Upstream: api.Address(), Expiry: s.expiry})
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
func (in *runningArm) awaitWorkers(ctx context.Context, workers int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("it does not answer within %v", startTime))
	defer cancel()
	seen := map[string]bool{}
	var mu sync.Mutex          // guards seen
	var answered time.Time     // when first
	const hands, rests = 4, 20 // questions at once for each worker, so that none gets all; ms between them
	for {
		var all sync.WaitGroup // of one goroutine for each question
		for range hands * workers {
			all.Go(func() {
				client := newChecker(in, false)
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
		case len(seen) > 0 && time.Since(answered) > lastWorkerTime:
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

// startTime is how long a service may take until it listens: eight may
// start at once on two cores, four of them in Python.
const startTime = 20 * time.Second

// lastWorkerTime is how long the last of several workers is waited for after the
// first has answered.
const lastWorkerTime = 3 * time.Second

// stop ends both processes.
func (in *runningArm) stop() error {
	err := in.service.Stop()
	if in.api != in.service {
		err = errors.Join(err, in.api.Stop())
	}
	return err
}
