//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"millrace/internal/process/servertest"
)

// scaling measures what machines cost that share one Redis.
type scaling struct {
	t      *testing.T
	exe    string
	dir    string
	api    string
	port   string // of Redis
	redis  *servertest.Process
	server *exec.Cmd
}

// scaled is one machine: a process of its own.
type scaled struct {
	*servertest.Process
	cmd   *exec.Cmd
	addr  string
	admin *http.Client
	route *bufio.Reader
	conn  net.Conn
}

// TestScaling measures the figures of docs/scaling.md, in two minutes, on a machine that does
// nothing else: MILLRACE_SCALING=./millrace.
func TestScaling(t *testing.T) {
	exe := os.Getenv("MILLRACE_SCALING")
	if exe == "" {
		t.Skip("MILLRACE_SCALING=PROGRAM measures it, in two minutes")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is missing: install the package redis-server")
	}
	exe, err := filepath.Abs(exe)
	if err != nil {
		t.Fatal(err)
	}
	body := bytes.Repeat([]byte("x"), 1024)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Etag", `"1"`)
		_, _ = w.Write(body)
	}))
	defer api.Close()
	s := &scaling{t: t, exe: exe, dir: t.TempDir(), api: api.URL, port: servertest.FreePort(t), redis: servertest.New(t)}
	s.server = exec.Command("redis-server", "--port", s.port, "--bind", "127.0.0.1", "--save", "", "--dir", s.dir)
	s.redis.Run(s.server, 20*time.Second, func() error { _, err := s.try("PING"); return err })

	s.say("redis %s", s.info("redis_version"))
	one := s.start(true)
	time.Sleep(3 * time.Second)
	s.idle("one machine", 1, one)

	const objects = 8000
	before, rss := s.number("used_memory"), s.memory(one)
	s.get(one, "o", 0, objects)
	time.Sleep(time.Second)
	s.say("%d objects of 1,024 bytes: %d bytes each in Redis, %d of resident memory each in the machine that has fetched them", objects, (s.number("used_memory")-before)/objects, (s.memory(one)-rss)/objects)

	two := s.start(true)
	time.Sleep(3 * time.Second)
	s.get(two, "o", 0, 500)
	s.requests("a hit in Redis", two, 1500, func(round int) { s.get(two, "o", 500+1500*round, 2000+1500*round) })
	s.requests("a hit in memory", two, 4000, func(int) {
		for range 8 {
			s.get(two, "o", 0, 500)
		}
	})
	s.requests("a miss, stored in Redis", two, 1200, func(round int) { s.get(two, "m", 1200*round, 1200*round+1200) })
	alone := s.start(false)
	s.requests("a miss without Redis", alone, 1200, func(round int) { s.get(alone, "m", 1200*round, 1200*round+1200) })
	alone.Kill()

	two.Signal(syscall.SIGTERM) // it says goodbye
	time.Sleep(2 * time.Second)
	machines := []*scaled{one}
	s.purges(machines)
	for _, n := range []int{3, 10} {
		for len(machines) < n {
			machines = append(machines, s.start(true))
		}
		time.Sleep(3 * time.Second)
		s.purges(machines)
	}
	s.idle("10 machines", 10, machines...)
	s.say("the stream of %s entries takes %s bytes, the list of machines %s", s.ask("XLEN millrace:messages"), s.ask("MEMORY USAGE millrace:messages"), s.ask("MEMORY USAGE millrace:{millrace:messages}machines"))

	s.redis.Signal(syscall.SIGSTOP)
	s.outage("Redis does not answer", machines[9])
	s.redis.Kill()
	s.outage("Redis is not there", machines[9])
}

// outage measures hits in memory while Redis cannot be reached.
func (s *scaling) outage(what string, m *scaled) {
	s.t.Helper()
	time.Sleep(3 * time.Second)
	const n = 200
	var all []time.Duration
	for i := range n {
		begin := time.Now()
		s.get(m, "o", i, i+1)
		all = append(all, time.Since(begin))
	}
	slices.Sort(all)
	s.say("%s: a hit in memory takes %.1f ms (p99 %.1f)", what, all[n/2].Seconds()*1e3, all[n*99/100].Seconds()*1e3)

	// Many clients share an attempt to reach Redis.
	const clients, lasts = 200, 4 * time.Second
	var done atomic.Int64
	var running sync.WaitGroup
	mine := s.used(m.cmd)
	for range clients {
		conn, err := net.Dial("tcp", m.addr)
		if err != nil {
			s.t.Fatal(err)
		}
		running.Go(func() {
			defer conn.Close()
			c := *m
			c.conn, c.route = conn, bufio.NewReader(conn)
			for begin := time.Now(); time.Since(begin) < lasts; done.Add(1) {
				s.get(&c, "o", 0, 1)
			}
		})
	}
	running.Wait()
	s.say("%s: %d clients get %.0f hits a second, with %.0f µs of CPU for each", what, clients, float64(done.Load())/lasts.Seconds(), float64((s.used(m.cmd)-mine).Microseconds())/float64(done.Load()))
}

func (s *scaling) say(format string, args ...any) { s.t.Logf(format, args...) }

// try sends an inline command to Redis.
func (s *scaling) try(command string) (string, error) {
	nc, err := net.Dial("tcp", "127.0.0.1:"+s.port)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	if _, err := fmt.Fprintf(nc, "%s\r\nQUIT\r\n", command); err != nil {
		return "", err
	}
	text, err := io.ReadAll(nc)
	return strings.TrimSuffix(string(text), "+OK\r\n"), err
}

func (s *scaling) ask(command string) string {
	s.t.Helper()
	text, err := s.try(command)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Trim(text, ":\r\n")
}

func (s *scaling) info(name string) string {
	s.t.Helper()
	_, rest, _ := strings.Cut(s.ask("INFO"), "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r")
	return value
}

func (s *scaling) number(name string) int {
	s.t.Helper()
	n, err := strconv.Atoi(s.info(name))
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *scaling) start(shared bool) *scaled {
	s.t.Helper()
	addr := "127.0.0.1:" + servertest.FreePort(s.t)
	dir, err := os.MkdirTemp(s.dir, "")
	if err != nil {
		s.t.Fatal(err)
	}
	option := ""
	if shared {
		option = fmt.Sprintf(", shared: \"redis://127.0.0.1:%s\"", s.port)
	}
	socket := filepath.Join(dir, "a")
	config := filepath.Join(dir, "millrace.yaml")
	text := fmt.Sprintf("listen: %s\nadmin: {listen: \"unix:%s\"}\nlog: {format: off}\nsites: [{routes: {/: {cache: {to: %q%s}}}}]\n", addr, socket, s.api, option)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	m := &scaled{Process: servertest.New(s.t), addr: addr, cmd: exec.Command(s.exe, "serve", "--config", config)}
	m.cmd.Env = append(os.Environ(), "HOME="+dir)
	m.Run(m.cmd, 20*time.Second, func() (err error) { m.conn, err = net.Dial("tcp", addr); return err })
	m.route = bufio.NewReader(m.conn)
	m.admin = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	s.t.Cleanup(m.admin.CloseIdleConnections)
	return m
}

// get asks for some answers, one after the other.
func (s *scaling) get(m *scaled, kind string, from, to int) {
	s.t.Helper()
	for i := from; i < to; i++ {
		if _, err := fmt.Fprintf(m.conn, "GET /%s/%d HTTP/1.1\r\nHost: a.example\r\n\r\n", kind, i); err != nil {
			s.t.Fatal(err)
		}
		resp, err := http.ReadResponse(m.route, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			s.t.Fatal(resp.Status, err)
		}
	}
}

// used is the CPU time of a process.
func (s *scaling) used(cmd *exec.Cmd) time.Duration {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err1, err2); err != nil {
		s.t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ
}

// memory is the resident memory of a machine.
func (s *scaling) memory(m *scaled) int {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", m.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		s.t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// requests measures n requests to a machine, five times, and takes the least of each.
func (s *scaling) requests(what string, m *scaled, n int, do func(round int)) {
	s.t.Helper()
	var machine, redis, took []float64
	for round := range 5 {
		mine, theirs, begin := s.used(m.cmd), s.used(s.server), time.Now()
		do(round)
		each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(n) }
		took = append(took, each(time.Since(begin)))
		machine, redis = append(machine, each(s.used(m.cmd)-mine)), append(redis, each(s.used(s.server)-theirs))
	}
	s.say("%s: %.0f µs of CPU in the machine (of five: %.0f), %.0f in Redis; %.0f µs for one after the other", what, slices.Min(machine), machine, slices.Min(redis), slices.Min(took))
}

// idle measures machines that nobody asks for anything.
func (s *scaling) idle(what string, n int, machines ...*scaled) {
	s.t.Helper()
	const lasts = 10 * time.Second
	mine, theirs, commands := s.used(machines[0].cmd), s.used(s.server), s.number("total_commands_processed")
	time.Sleep(lasts)
	s.say("%s, idle: %d connections to Redis; %.1f commands a second, %.2f %% of a core in Redis, %.2f %% in a machine", what, s.number("connected_clients")-1,
		float64(s.number("total_commands_processed")-commands-2)/lasts.Seconds(), 100*(s.used(s.server)-theirs).Seconds()/lasts.Seconds(), 100*(s.used(machines[0].cmd)-mine).Seconds()/lasts.Seconds())
}

// purge purges at a machine, and returns what that takes.
func (s *scaling) purge(m *scaled, tag, wait string) time.Duration {
	s.t.Helper()
	text, err := json.Marshal(map[string]any{"tag": tag, "hard": true, "wait": wait})
	if err != nil {
		s.t.Fatal(err)
	}
	begin := time.Now()
	resp, err := m.admin.Post("http://millrace/cache/purge", "application/json", bytes.NewReader(text))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if said, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s, %v", said, err)
	}
	return time.Since(begin)
}

// purges measures purges with so many machines.
func (s *scaling) purges(machines []*scaled) {
	s.t.Helper()
	const n = 300
	for _, wait := range []string{"", "10s"} {
		var all []time.Duration
		for i := range n {
			all = append(all, s.purge(machines[0], fmt.Sprint("t", i), wait))
			time.Sleep(3 * time.Millisecond)
		}
		slices.Sort(all)
		what := "a purge"
		if wait != "" {
			what = "a purge with --wait"
		}
		s.say("%d machines: %s takes %.2f ms (p99 %.2f)", len(machines), what, all[n/2].Seconds()*1e3, all[n*99/100].Seconds()*1e3)
	}
	const lasts = 5 * time.Second
	var before []time.Duration
	for _, m := range machines {
		before = append(before, s.used(m.cmd))
	}
	theirs, commands, done := s.used(s.server), s.number("total_commands_processed"), 0
	for begin := time.Now(); time.Since(begin) < lasts; done++ {
		s.purge(machines[0], fmt.Sprint("f", done), "")
	}
	time.Sleep(time.Second)
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(done) }
	var others time.Duration
	for i, m := range machines[1:] {
		others += s.used(m.cmd) - before[i+1]
	}
	s.say("%d machines: %.0f purges a second, one after the other: %.0f µs of CPU in Redis for each and %.1f commands; %.0f in the machine that purges, %.0f in another", len(machines), float64(done)/lasts.Seconds(),
		each(s.used(s.server)-theirs), float64(s.number("total_commands_processed")-commands)/float64(done), each(s.used(machines[0].cmd)-before[0]), each(others)/float64(max(1, len(machines)-1)))
}
