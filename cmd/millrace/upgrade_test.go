//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// upgraded is a server of the real program that is started anew while it serves.
type upgraded struct {
	t       *testing.T
	dir     string
	addr    string
	program string
	log     *lockedBuffer
	tls     string        // of the config
	timeout string        // limits.upgrade_timeout
	pause   time.Duration // between the messages of a WebSocket
}

// lockedBuffer is what several processes have said.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startUpgraded starts a copy of the program, so that another one can take its place.
func startUpgraded(t *testing.T, routes string) *upgraded {
	t.Helper()
	u := newUpgraded(t)
	u.start(routes)
	return u
}

// freeAddr is an address that nobody listens at.
func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func newUpgraded(t *testing.T) *upgraded {
	t.Helper()
	found, err := exec.LookPath("millrace")
	if err != nil {
		t.Fatal(err)
	}
	if found, err = filepath.EvalSymlinks(found); err != nil {
		t.Fatal(err)
	}
	u := &upgraded{t: t, dir: t.TempDir(), addr: freeAddr(t), log: &lockedBuffer{}, timeout: "2s", pause: 10 * time.Millisecond}
	u.program = filepath.Join(u.dir, "millrace")
	if err := os.Link(found, u.program); err != nil {
		whole, err := os.ReadFile(found)
		if err == nil {
			err = os.WriteFile(u.program, whole, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return u
}

// start starts the first process.
func (u *upgraded) start(routes string) {
	t := u.t
	t.Helper()
	u.config(routes)
	cmd := u.command("serve", "-c", filepath.Join(u.dir, "c.yaml"))
	read, write, err := os.Pipe() // all generations write to it; a copier of package exec would wait for them
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	go func() { _, _ = io.Copy(u.log, read) }()
	go func() { _ = cmd.Wait() }()
	t.Cleanup(func() {
		for _, pid := range u.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = read.Close()
	})
	u.waitFor(func() bool { return u.get() == nil })
}

func (u *upgraded) config(routes string) {
	u.t.Helper()
	text := fmt.Sprintf("listen: %q\nlog: {format: off}\nadmin: {listen: 'unix:%s/a.sock'}\nlimits: {upgrade_timeout: %s}\n%ssites: [{routes: {%s}}]\n", u.addr, u.dir, u.timeout, u.tls, routes)
	if err := os.WriteFile(filepath.Join(u.dir, "c.yaml"), []byte(text), 0o600); err != nil {
		u.t.Fatal(err)
	}
}

func (u *upgraded) command(args ...string) *exec.Cmd {
	cmd := exec.Command(u.program, args...)
	cmd.Dir = u.dir
	cmd.Env = append(os.Environ(), "PATH="+u.dir+":"+os.Getenv("PATH"), "MILLRACE_RUN_DIR="+u.dir, "XDG_CACHE_HOME="+u.dir)
	return cmd
}

// processes are the servers that run, by what their environment says: those that
// have taken over are no children of ours.
func (u *upgraded) processes() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		text, err := os.ReadFile(filepath.Join(p, "cmdline"))
		if err != nil || !bytes.Contains(text, []byte("\x00serve\x00-c\x00"+u.dir+"/c.yaml")) || bytes.Contains(text, []byte("\x00upgrade-helper\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(p)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// upgrade asks for it with the program that was there first.
func (u *upgraded) upgrade() (string, error) { return u.ask("upgrade") }

// ask has that do something with the running server.
func (u *upgraded) ask(args ...string) (string, error) {
	cmd := u.command(append(args, "--admin", "unix:"+u.dir+"/a.sock")...)
	found, err := exec.LookPath("millrace")
	if err != nil {
		u.t.Fatal(err)
	}
	cmd.Path = found
	cmd.Args[0] = "millrace"
	text, err := cmd.CombinedOutput()
	return string(text), err
}

func (u *upgraded) get() error {
	r, err := http.NewRequest(http.MethodGet, "http://"+u.addr+"/", http.NoBody)
	if err != nil {
		return err
	}
	r.Close = true // an old process waits for what else would come
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return err
}

func (u *upgraded) waitFor(ok func() bool) {
	u.t.Helper()
	for begun := time.Now(); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			u.t.Fatalf("it never comes to that:\n%s", u.log)
		}
	}
}

// echo keeps one WebSocket after the other open, and says with which code each was
// closed, and when it was opened.
func (u *upgraded) echo(ctx context.Context, closed func(code int, begun time.Time)) error {
	for ctx.Err() == nil {
		nc, err := net.Dial("tcp", u.addr)
		if err != nil {
			return err
		}
		_ = nc.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(nc, "GET /ws/ HTTP/1.1\r\nHost: "+u.addr+"\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
		in := bufio.NewReader(nc)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return fmt.Errorf("a handshake: %w", err)
		}
		if resp.StatusCode != http.StatusSwitchingProtocols {
			return fmt.Errorf("a handshake: %s", resp.Status)
		}
		for begun := time.Now(); ctx.Err() == nil; time.Sleep(u.pause) {
			_, _ = nc.Write([]byte{0x81, 0x82, 0, 0, 0, 0, 'h', 'i'})
			head := make([]byte, 2)
			if _, err := io.ReadFull(in, head); err != nil {
				return fmt.Errorf("a message: %w", err)
			}
			payload := make([]byte, head[1])
			if _, err := io.ReadFull(in, payload); err != nil {
				return fmt.Errorf("a message: %w", err)
			}
			if head[0] == 0x88 {
				closed(int(binary.BigEndian.Uint16(payload)), begun)
				break
			}
			if string(payload) != "hi" {
				return fmt.Errorf("the echo is %q", payload)
			}
		}
		_ = nc.Close()
	}
	return nil
}

// TestUpgradeFails: what cannot take over leaves the old process serving, and says why.
func TestUpgradeFails(t *testing.T) {
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "index.html"), []byte("home"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := fmt.Sprintf("/: {static: {root: %q}}, /c/: {cache: {to: ['http://127.0.0.1:1'], disk: cache}}", files)
	u := startUpgraded(t, good)
	first := u.processes()
	put := func(text string) {
		t.Helper()
		beside := u.program + ".new"
		if err := os.WriteFile(beside, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(beside, u.program); err != nil {
			t.Fatal(err)
		}
	}
	check := func(name, want string) {
		t.Helper()
		text, err := u.upgrade()
		if err == nil || !strings.Contains(text, want) {
			t.Errorf("%s: %v, %s", name, err, text)
		}
		if err := u.get(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	u.config(good + ", /x/: {nonsense: 1}")
	check("a bad config", "nonsense")
	u.config(good)
	whole, err := os.ReadFile(u.program)
	if err != nil {
		t.Fatal(err)
	}
	put("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 100))
	check("another architecture", "exec format error")
	put("#!/bin/sh\nexit 3\n")
	check("a crash", "exit status 3")
	put("#!/bin/sh\necho prepared >&3\nread go <&3\nexit 4\n")
	check("a crash after it was prepared", "exit status 4")
	put("#!/bin/sh\necho hello >&3\nsleep 60\n")
	check("another program", `says "hello"`)
	if got := u.processes(); fmt.Sprint(got) != fmt.Sprint(first) && len(got) != 0 { // the file of the first is another one now
		t.Errorf("%v run, not %v", got, first)
	}
	put(string(whole))
	if text, err := u.upgrade(); err != nil {
		t.Errorf("at last: %v, %s\n%s", err, text, u.log)
	}
	if err := u.get(); err != nil {
		t.Error(err)
	}
}

// TestUpgradeKilled: whoever is killed in the middle, the other one serves.
func TestUpgradeKilled(t *testing.T) {
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "index.html"), []byte("home"), 0o600); err != nil {
		t.Fatal(err)
	}
	u := startUpgraded(t, fmt.Sprintf("/: {static: {root: %q}}", files))
	for range 2 {
		old := u.processes()
		go func() { _, _ = u.upgrade() }()
		u.waitFor(func() bool { return len(u.processes()) == 2 })
		for _, pid := range old { // the new one finds out by itself
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		u.waitFor(func() bool { return len(u.processes()) == 1 && u.get() == nil })
	}
	old := u.processes()
	go func() { _, _ = u.upgrade() }()
	u.waitFor(func() bool { return len(u.processes()) == 2 })
	for _, pid := range u.processes() {
		if pid != old[0] {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	u.waitFor(func() bool { return len(u.processes()) == 1 && u.get() == nil })
}

// TestUpgradeKeepsMaintenance: what a command has closed stays closed.
func TestUpgradeKeepsMaintenance(t *testing.T) {
	u := startUpgraded(t, "/: {respond: fine}")
	for _, c := range []struct{ do, want string }{{"on", "status 503"}, {"off", "<nil>"}} {
		if text, err := u.ask("maintenance", c.do); err != nil {
			t.Fatal(text)
		}
		before, err := u.ask("maintenance")
		if err != nil {
			t.Fatal(before)
		}
		if text, err := u.upgrade(); err != nil {
			t.Fatal(text)
		}
		u.waitFor(func() bool { return len(u.processes()) == 1 })
		if got := fmt.Sprint(u.get()); got != c.want {
			t.Errorf("%s: %s", c.do, got)
		}
		if after, _ := u.ask("maintenance"); after != before {
			t.Errorf("%s: it is %q, and was %q", c.do, after, before)
		}
	}
}

// TestUpgradeHurried: an old process that is asked to stop ends what is under way
// in good order, and does not cut it off.
func TestUpgradeHurried(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-end
		fmt.Fprint(w, "whole")
	}))
	defer upstream.Close()
	u := startUpgraded(t, fmt.Sprintf("/: {respond: fine}, /ws/: {websocket: echo}, /up/: {proxy: {to: [%q]}}", upstream.URL))
	old := u.processes()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer sync.OnceFunc(func() { close(end) })()
	defer stop()
	told := make(chan int, 1)
	all.Go(func() {
		if err := u.echo(ctx, func(code int, _ time.Time) { told <- code; stop() }); err != nil {
			t.Error(err)
			told <- 0
		}
	})
	answer := make(chan string, 1)
	all.Go(func() {
		resp, err := http.Get("http://" + u.addr + "/up/")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		answer <- string(text)
	})
	<-begun
	time.Sleep(100 * time.Millisecond) // the WebSocket is open
	if text, err := u.upgrade(); err != nil {
		t.Fatal(text)
	}
	_ = syscall.Kill(old[0], syscall.SIGTERM)
	if code := <-told; code != 1012 {
		t.Errorf("the WebSocket ends with %d", code)
	}
	end <- struct{}{}
	if text := <-answer; text != "whole" {
		t.Errorf("the answer is %q", text)
	}
	u.waitFor(func() bool { return len(u.processes()) == 1 })
	if strings.Contains(u.log.String(), "without waiting") {
		t.Error(u.log)
	}
}
