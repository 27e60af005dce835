package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// nginxConf serves one small file as cheaply as nginx can.
const nginxConf = `daemon off; worker_processes 1; pid %[1]s/pid; error_log %[1]s/error.log;
events { worker_connections 1024; }
http {
	access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000;
	open_file_cache max=100 inactive=1h; default_type text/plain;
	client_body_temp_path %[1]s/t; proxy_temp_path %[1]s/t; fastcgi_temp_path %[1]s/t; uwsgi_temp_path %[1]s/t; scgi_temp_path %[1]s/t;
	server { listen %[2]s; root %[1]s/www; }
}
`

// The rounds and their length are fixed before anything is measured.
const (
	generatorRounds  = 12
	generatorSeconds = 3
	generatorConns   = 50
)

// cost is the CPU time of a generator per request.
type cost struct{ user, total float64 } // µs

// generator compares the lab's generator with wrk: what each costs itself, per
// request, on the same nginx in interleaved rounds.
func generator(ctx context.Context, o options, w io.Writer) error {
	dir, err := os.MkdirTemp("", "aa-nginx-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	address, stop, err := startNginx(dir)
	if err != nil {
		return err
	}
	defer stop()
	url := "http://" + address + "/page.txt"
	names := []string{"lab", "wrk"}
	run := map[string]func() (cost, error){
		"wrk": func() (cost, error) { return runWrk(ctx, url) },
		"lab": func() (cost, error) { return runLab(ctx, o.lab, dir, url) },
	}
	costs := map[string][]cost{}
	var rows strings.Builder
	for round := range generatorRounds {
		slices.Reverse(names) // the first of one round is the last of the next
		for _, name := range names {
			c, err := run[name]()
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			costs[name] = append(costs[name], c)
		}
		l, k := costs["lab"][round], costs["wrk"][round]
		_, _ = fmt.Fprintf(&rows, "| %d | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", round+1, l.user, k.user, l.user/k.user, l.total, k.total, l.total/k.total)
		_, _ = fmt.Fprintf(os.Stderr, "generator %d of %d: user %.2f / %.2f, total %.2f / %.2f µs\n", round+1, generatorRounds, l.user, k.user, l.total, k.total)
	}
	user, total := medianRatio(costs, func(c cost) float64 { return c.user }), medianRatio(costs, func(c cost) float64 { return c.total })
	_, _ = fmt.Fprintf(w, "## The generator against wrk\n\n"+
		"nginx with one worker serves %d bytes; %d connections, one thread each, %d rounds of %d s in turn. "+
		"What the generator itself costs per request, of its whole process, in µs of CPU time. "+
		"**Median of the ratios: user %.2f, user and kernel %.2f** (at most 1.05 may be).\n\n"+
		"| round | lab, user | wrk, user | ratio | lab, all | wrk, all | ratio |\n|---|---|---|---|---|---|---|\n%s\n",
		page, generatorConns, generatorRounds, generatorSeconds, user, total, rows.String())
	return nil
}

func medianRatio(costs map[string][]cost, of func(cost) float64) float64 {
	var ratios []float64
	for i, l := range costs["lab"] {
		ratios = append(ratios, of(l)/of(costs["wrk"][i]))
	}
	slices.Sort(ratios)
	n := len(ratios)
	return (ratios[n/2] + ratios[(n-1)/2]) / 2
}

// startNginx serves one page on a free port until stop.
func startNginx(dir string) (address string, stop func(), err error) {
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		if nginx, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			return "", nil, errors.New("nginx is missing: install Debian's nginx-light")
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address = l.Addr().String()
	_ = l.Close() // only its number was wanted
	www := filepath.Join(dir, "www")
	if err := errors.Join(os.Mkdir(www, 0o755), os.Chmod(dir, 0o755), // nginx's worker has another user
		os.WriteFile(filepath.Join(www, "page.txt"), bytes.Repeat([]byte("x"), page), 0o644),
		os.WriteFile(filepath.Join(dir, "conf"), fmt.Appendf(nil, nginxConf, dir, address), 0o644)); err != nil {
		return "", nil, err
	}
	cmd := exec.Command(nginx, "-c", filepath.Join(dir, "conf"))
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have gone already
		_ = cmd.Wait()
	}
	for range 100 {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return address, stop, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	return "", nil, errors.New("nginx does not answer")
}

// wrkRequests finds how many answers wrk got.
func wrkRequests(output []byte) (uint64, error) {
	m := regexp.MustCompile(`(\d+) requests in`).FindSubmatch(output)
	if m == nil || bytes.Contains(output, []byte("Non-2xx")) || bytes.Contains(output, []byte("Socket errors")) {
		return 0, fmt.Errorf("wrk did not go well: %s", output)
	}
	return strconv.ParseUint(string(m[1]), 10, 64)
}

func runWrk(ctx context.Context, url string) (cost, error) {
	cmd := exec.CommandContext(ctx, "wrk", "-t1", "-c"+strconv.Itoa(generatorConns), "-d"+strconv.Itoa(generatorSeconds)+"s", url)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return cost{}, fmt.Errorf("%w (is wrk installed?): %s", err, output)
	}
	n, err := wrkRequests(output)
	return perRequest(cmd, n), err
}

func runLab(ctx context.Context, lab, dir, url string) (cost, error) {
	file := filepath.Join(dir, "load.json")
	cmd := exec.CommandContext(ctx, lab, "load", url, "-c", strconv.Itoa(generatorConns), "-t", "1",
		"-d", strconv.Itoa(generatorSeconds)+"s", "--warmup", "0s", "--json", file)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return cost{}, fmt.Errorf("%w: %s", err, tail(output))
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return cost{}, err
	}
	var f struct {
		Samples []struct {
			Seconds float64
			Values  map[string]float64
		}
	}
	if err := json.Unmarshal(text, &f); err != nil || len(f.Samples) != 1 {
		return cost{}, fmt.Errorf("no sample in the result: %w", err)
	}
	s := f.Samples[0]
	return perRequest(cmd, uint64(s.Seconds*s.Values["requests_per_second"]+0.5)), nil
}

// perRequest is what a process that has ended used, per request.
func perRequest(cmd *exec.Cmd, requests uint64) cost {
	user, system := cmd.ProcessState.UserTime(), cmd.ProcessState.SystemTime()
	n := float64(max(requests, 1)) * 1000
	return cost{user: float64(user) / n, total: float64(user+system) / n}
}
