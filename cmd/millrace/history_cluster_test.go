//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
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

	"millrace/cache/control"
	"millrace/cache/purge"
	"millrace/internal/ops/admin"
	"millrace/internal/process/servertest"
)

// relay is the way from a machine to a server: it can be cut, and lead elsewhere.
type relay struct {
	ln net.Listener

	mu    sync.Mutex
	to    string // an address
	cut   bool   // connections are reset, and new ones refused
	mute  bool   // nothing gets through, and nobody is told
	conns map[net.Conn]bool
	all   sync.WaitGroup
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{ln: ln, to: to, conns: map[net.Conn]bool{}}
	r.all.Go(r.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		r.set(true, false)
		r.all.Wait()
	})
	return r
}

func (r *relay) addr() string { return r.ln.Addr().String() }

// set cuts the way, mutes it, or mends it. What came while it was mute is lost with its
// connections.
func (r *relay) set(cut, mute bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cut || r.mute && !mute {
		r.reset()
	}
	r.cut, r.mute = cut, mute
}

// lead sends what connects from now on to another server. Connections stay where they are.
func (r *relay) lead(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
}

func (r *relay) reset() {
	for c := range r.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	clear(r.conns)
}

func (r *relay) accept() {
	for {
		from, err := r.ln.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		to, cut := r.to, r.cut
		r.mu.Unlock()
		var server net.Conn
		if !cut {
			server, err = net.DialTimeout("tcp", to, 5*time.Second)
		}
		if cut || err != nil {
			_ = from.(*net.TCPConn).SetLinger(0)
			_ = from.Close()
			continue
		}
		r.mu.Lock()
		r.conns[from], r.conns[server] = true, true
		if r.cut {
			r.reset()
		}
		r.mu.Unlock()
		r.all.Go(func() { r.copy(server, from) })
		r.all.Go(func() { r.copy(from, server) })
	}
}

func (r *relay) copy(to, from net.Conn) {
	defer func() {
		_, _ = to.Close(), from.Close()
		r.mu.Lock()
		delete(r.conns, to)
		delete(r.conns, from)
		r.mu.Unlock()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		r.mu.Lock()
		mute := r.mute
		r.mu.Unlock()
		if mute {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// freePorts are n different ones that a server finds free again after it was killed.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	all := map[string]bool{}
	for len(all) < n {
		all[servertest.FreePort(t)] = true
	}
	return slices.Collect(maps.Keys(all))
}

// dbServer is one redis-server.
type dbServer struct {
	*servertest.Process
	exe, port, dir string
}

func newDB(t *testing.T, port string) *dbServer {
	t.Helper()
	exe, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is missing: install the package redis-server")
	}
	return &dbServer{servertest.New(t), exe, port, t.TempDir()}
}

func (d *dbServer) addr() string { return "127.0.0.1:" + d.port }

// start starts it with the snapshot that it has, if there is one.
func (d *dbServer) start(args ...string) {
	args = append([]string{
		"--port", d.port, "--bind", "127.0.0.1", "--save", "", "--dir", d.dir, "--repl-diskless-sync", "yes",
		"--repl-diskless-sync-delay", "0", "--maxmemory", "64mb", "--maxmemory-policy", "volatile-lru",
	}, args...)
	d.Run(exec.Command(d.exe, args...), patience, func() error {
		answer, err := d.ask("PING")
		if err == nil && !strings.HasPrefix(answer, "+PONG") {
			err = errors.New(answer)
		}
		return err
	})
}

// ask sends an inline command, and returns all of the answer.
func (d *dbServer) ask(command string) (string, error) {
	nc, err := net.Dial("tcp", d.addr())
	if err != nil {
		return "", err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(nc, "%s\r\nQUIT\r\n", command); err != nil {
		return "", err
	}
	text, err := io.ReadAll(nc)
	return string(text), err
}

// follow makes it a replica of another one, and waits until it has all.
func (d *dbServer) follow(t *testing.T, master *dbServer) {
	t.Helper()
	if _, err := d.ask("REPLICAOF 127.0.0.1 " + master.port); err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, "the replica is in step", func() bool {
		text, err := d.ask("INFO replication")
		return err == nil && strings.Contains(text, "master_link_status:up")
	})
}

// streamServers are the NATS servers of a cluster.
type streamServers struct {
	t       *testing.T
	servers []*servertest.Process
	conf    []string
	ports   []string // for clients
	monitor []string
}

// newStreams are as many as there are three ports for each.
func newStreams(t *testing.T, ports []string) *streamServers {
	t.Helper()
	if _, err := exec.LookPath("nats-server"); err != nil {
		t.Skip("nats-server is missing: install the package nats-server")
	}
	n := len(ports) / 3
	peers := ports[2*n:]
	s := &streamServers{t: t, ports: ports[:n], monitor: ports[n : 2*n]}
	var routes []string
	for _, port := range peers {
		routes = append(routes, "nats://127.0.0.1:"+port)
	}
	for i := range n {
		dir := t.TempDir()
		// no_advertise: clients keep to the addresses that they were given, which can be cut.
		text := fmt.Sprintf("server_name: n%d\nlisten: 127.0.0.1:%s\nhttp: 127.0.0.1:%s\njetstream {store_dir: %q}\n", i, s.ports[i], s.monitor[i], dir)
		if n > 1 {
			text += fmt.Sprintf("cluster {name: c, listen: 127.0.0.1:%s, no_advertise: true, routes: [%s]}\n", peers[i], strings.Join(routes, ", "))
		}
		conf := filepath.Join(dir, "nats.conf")
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.conf = append(s.conf, conf)
		s.servers = append(s.servers, servertest.New(t))
	}
	return s
}

func (s *streamServers) addr(i int) string { return "127.0.0.1:" + s.ports[i] }

// start starts one of them.
func (s *streamServers) start(i int) {
	s.t.Helper()
	s.servers[i].Run(exec.Command("nats-server", "-c", s.conf[i]), patience, func() error {
		c, err := net.Dial("tcp", s.addr(i))
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_, err = io.ReadFull(c, make([]byte, 5))
			_ = c.Close()
		}
		return err
	})
}

// leader is the server that leads the stream; -1: none that is known.
func (s *streamServers) leader(stream string) int {
	for i, port := range s.monitor {
		var answer struct {
			Accounts []struct {
				Streams []struct {
					Name    string `json:"name"`
					Cluster struct {
						Leader string `json:"leader"`
					} `json:"cluster"`
				} `json:"stream_detail"`
			} `json:"account_details"`
		}
		resp, err := http.Get("http://127.0.0.1:" + port + "/jsz?streams=true")
		if err != nil {
			continue
		}
		err = json.NewDecoder(resp.Body).Decode(&answer)
		_ = resp.Body.Close()
		if err != nil {
			continue
		}
		for _, a := range answer.Accounts {
			for _, st := range a.Streams {
				if st.Name == stream && st.Cluster.Leader == fmt.Sprintf("n%d", i) {
					return i
				}
			}
		}
	}
	return -1
}

// machine is a Millrace.
type machine struct {
	t       *testing.T
	name    string
	dir     string
	program string // "": the one that is tested
	config  string // of the cache's route, with the rest
	addr    string
	admin   string
	env     []string
	log     *lockedBuffer
	redis   *relay
	nats    []*relay

	mu      sync.Mutex
	cmd     *exec.Cmd    // nil while none runs
	serves  atomic.Bool  // it has taken a connection since it was started
	killed  atomic.Int32 // how often
	clients struct {
		sync.Once
		http   *http.Client
		caches *control.Client
	}
}

// newMachine is one that does not run yet.
func newMachine(t *testing.T, name, port string) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{t: t, name: name, dir: dir, addr: "127.0.0.1:" + port, admin: "unix:" + dir + "/a.sock", log: &lockedBuffer{}}
	t.Cleanup(func() { m.kill() })
	return m
}

// start starts it, and waits until it serves.
func (m *machine) start() {
	m.t.Helper()
	path := filepath.Join(m.dir, "c.yaml")
	if err := os.WriteFile(path, []byte(m.config), 0o600); err != nil {
		m.t.Fatal(err)
	}
	program := m.program
	if program == "" {
		found, err := exec.LookPath("millrace")
		if err != nil {
			m.t.Fatal(err)
		}
		program = found
	}
	cmd := exec.Command(program, "serve", "-c", path)
	cmd.Dir = m.dir
	cmd.Env = append(append(os.Environ(), "MILLRACE_RUN_DIR="+m.dir, "XDG_CACHE_HOME="+m.dir, "HOME="+m.dir), m.env...)
	cmd.Stdout, cmd.Stderr = m.log, m.log
	m.mu.Lock()
	err := cmd.Start()
	m.cmd = cmd
	m.mu.Unlock()
	if err != nil {
		m.t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", m.addr)
		if err == nil {
			_ = c.Close()
			m.serves.Store(true)
			return
		}
		if time.Now().After(end) {
			m.t.Fatalf("%s does not answer:\n%s", m.name, m.log)
		}
	}
}

// kill is kill -9.
func (m *machine) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd == nil {
		return
	}
	m.serves.Store(false)
	m.killed.Add(1)
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
	m.cmd = nil
}

// pause stops the process where it is, or lets it go on.
func (m *machine) pause(stop bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd == nil {
		return
	}
	s := syscall.SIGCONT
	if stop {
		s = syscall.SIGSTOP
	}
	_ = m.cmd.Process.Signal(s)
}

// client asks for pages, over connections that stay open.
func (m *machine) client() *http.Client {
	m.connect()
	return m.clients.http
}

func (m *machine) connect() {
	m.clients.Do(func() {
		m.clients.http = &http.Client{Transport: &http.Transport{DisableCompression: true}, Timeout: 10 * time.Second}
		c, base, err := admin.Client(m.admin)
		if err != nil {
			panic(err)
		}
		m.clients.caches = &control.Client{HTTP: c, Base: base}
		m.t.Cleanup(func() {
			m.clients.http.CloseIdleConnections()
			c.CloseIdleConnections()
		})
	})
}

// purge purges. announced is false where the others may not have been told.
func (m *machine) purge(ctx context.Context, s purge.Selector) (announced bool, err error) {
	m.connect()
	_, err = m.clients.caches.Purge(ctx, control.Purge{Selector: s})
	if control.Unannounced(err) {
		return false, nil
	}
	return err == nil, err
}

// unsent counts the purges that wait until the others can be told.
func (m *machine) unsent() int {
	n := 0
	_ = filepath.WalkDir(m.dir, func(path string, d os.DirEntry, err error) error { // files come and go
		if err == nil && strings.HasSuffix(path, ".purge.json") && d.Type().IsRegular() {
			n++
		}
		return nil
	})
	return n
}

// read asks for a variant of a page as host s, and returns its version.
func (m *machine) read(ctx context.Context, page, variant int) (version int, how string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.addr+pagePath(page), http.NoBody)
	if err != nil {
		return 0, "", err
	}
	req.Host = "s"
	req.Header.Set("X-Variant", strconv.Itoa(variant))
	resp, err := m.client().Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", err
	}
	how = resp.Header.Get("Cache-Status")
	if resp.StatusCode != http.StatusOK {
		return 0, how, fmt.Errorf("status %d", resp.StatusCode)
	}
	path, number, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	version, err = strconv.Atoi(number)
	if err != nil || path != pagePath(page) {
		return 0, how, fmt.Errorf("%s: the answer is %q: %w", pagePath(page), text, errOtherPage)
	}
	return version, how, nil
}

var errOtherPage = errors.New("it is another page's")

func pagePath(page int) string { return "/p/" + strconv.Itoa(page) }

// testClock is the source of package time's clock in a program that steppedProgram builds:
// the seconds that its wall clock is off, as MILLRACE_TEST_CLOCK says (0:3600,4:-1800 is an
// hour ahead from the start, and half an hour from the fourth second on).
const testClock = `package time

import "syscall"

type testStep struct{ from, off int64 }

var testSteps = readTestSteps()

func readTestSteps() (steps []testStep) {
	text, _ := syscall.Getenv("MILLRACE_TEST_CLOCK")
	var s testStep
	number, sign, first := int64(0), int64(1), true
	for _, c := range text + "," {
		switch {
		case c == '-':
			sign = -1
		case c == ':':
			s.from, number, sign, first = number, 0, 1, false
		case c == ',' && !first:
			s.off, number, first = number*sign, 0, true
			steps = append(steps, s)
		case '0' <= c && c <= '9':
			number = number*10 + int64(c-'0')
		}
	}
	return steps
}

func testOffset(mono int64) (off int64) {
	for _, s := range testSteps {
		if mono-startNano >= s.from*1e9 {
			off = s.off
		}
	}
	return off
}
`

// steppedProgram builds the program with a wall clock that can be off. It compiles all of
// it with a changed package time, which takes minutes the first time.
func steppedProgram(t *testing.T) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	const reads = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	before, after, ok := strings.Cut(string(text), reads)
	if !ok {
		t.Skip("this version of Go reads its clock in another way: change steppedProgram")
	}
	dir := t.TempDir()
	files := map[string]string{"time.go": before + reads + "\tsec += testOffset(mono)\n" + after, "testclock.go": testClock}
	replace := map[string]string{}
	for name, text := range files {
		at := filepath.Join(dir, name)
		replace[filepath.Join(source, name)] = at
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "millrace")
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-buildvcs=false", "-pgo=off", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return program
}
