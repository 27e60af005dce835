//go:build linux

package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A victim is a server in a process of its own: what it costs is the server's,
// and nothing of its client's.
type victim struct {
	tb   testing.TB
	pid  int
	addr string
	ask  io.Writer
	told *json.Decoder

	before cost
	counts victimCounts
}

type cost struct {
	rss int64 // bytes: the most since the last look
	cpu time.Duration
}

// victimCounts is what a victim tells.
type victimCounts struct {
	Addr        string
	Refused     map[string]uint64
	Rejected    uint64
	Connections int64
	Held        int64 // bytes of the heap and of stacks, after a collection
}

// victimLimits names the variable with the limits of a victim.
const victimLimits = "MILLRACE_TEST_VICTIM"

// TestHTTP2Victim is the victim's process, and no test.
func TestHTTP2Victim(t *testing.T) {
	said := os.Getenv(victimLimits)
	if said == "" {
		t.Skip("for TestHTTP2Abuse")
	}
	p := plan{handler: victimPages()}
	if err := json.Unmarshal([]byte(said), &p.limits); err != nil {
		t.Fatal(err)
	}
	r := start(t, p)
	r.teach(t, "tls", "/hot", pathBig)
	out := json.NewEncoder(os.NewFile(3, "answers"))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var mem runtime.MemStats
		if in.Text() == withMemory {
			debug.FreeOSMemory()
			debug.FreeOSMemory() // the pools, too
			runtime.ReadMemStats(&mem)
		}
		m := &r.meters.HTTP2Refused
		if err := out.Encode(victimCounts{
			Addr: r.secure,
			Refused: map[string]uint64{
				"malformed": m.Malformed.Load(), "headers": m.Headers.Load(), "idle_frames": m.Idle.Load(),
				"resets": m.Resets.Load(), "stalled": m.Stalled.Load(),
			},
			Rejected: r.meters.Rejected.Load(), Connections: r.meters.Connections.Load(), Held: int64(mem.HeapAlloc + mem.StackInuse),
		}); err != nil {
			t.Fatal(err)
		}
	}
	r.srv.Close()
}

// victimPages are newPages and downloads that no lane has.
func victimPages() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", newPages())
	mux.HandleFunc("/download", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, io.LimitReader(zeros{}, 1<<30)) // the client leaves
	})
	return mux
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// startVictim starts one.
func startVictim(t *testing.T, limits Options) *victim {
	t.Helper()
	said, err := json.Marshal(limits)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestHTTP2Victim$")
	cmd.Env = append(os.Environ(), victimLimits+"="+string(said))
	ask, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{to}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = to.Close()
	t.Cleanup(func() {
		_ = ask.Close()
		_ = cmd.Wait() // what it is worth has been seen
		_ = from.Close()
	})
	v := &victim{tb: t, pid: cmd.Process.Pid, ask: ask, told: json.NewDecoder(from)}
	v.addr = v.look(withoutMemory).Addr
	return v
}

// Questions to a victim. Looking at the memory costs CPU.
const (
	withMemory    = "all"
	withoutMemory = "counters"
)

// look asks for the counts.
func (v *victim) look(question string) (c victimCounts) {
	v.tb.Helper()
	if _, err := io.WriteString(v.ask, question+"\n"); err != nil {
		v.tb.Fatal(err)
	}
	if err := v.told.Decode(&c); err != nil {
		v.tb.Fatalf("the victim is gone: %v", err)
	}
	return c
}

// watch begins to count.
func (v *victim) watch() {
	v.tb.Helper()
	v.counts = v.look(withMemory)
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", v.pid), []byte("5"), 0) // where it may not, the most is of all time
	v.before = v.cost()
}

// spent is what the victim has needed since watch.
func (v *victim) spent() cost {
	v.tb.Helper()
	now := v.cost()
	return cost{now.rss - v.before.rss, now.cpu - v.before.cpu}
}

func (v *victim) cost() (c cost) {
	v.tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.pid))
	if err != nil {
		v.tb.Fatal(err)
	}
	if _, after, ok := strings.Cut(string(status), "VmHWM:"); ok {
		kib, _ := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
		c.rss = kib << 10
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", v.pid))
	if err != nil {
		v.tb.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	const ticks, user = 10 * time.Millisecond, 11 // proc(5): fields 14 and 15
	f := strings.Fields(after)
	for _, field := range f[user : user+2] {
		n, _ := strconv.ParseInt(field, 10, 64)
		c.cpu += time.Duration(n) * ticks
	}
	return c
}

// clientTLS trusts whoever answers: the victim's certificate is in its process.
func (v *victim) clientTLS(protocols ...string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: protocols}
}

// bystander asks over a connection of its own until stop is called, which
// returns how often it was answered. Each request must be.
func (v *victim) bystander() (stop func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	tr := &http.Transport{TLSClientConfig: v.clientTLS(), ForceAttemptHTTP2: true}
	client := &http.Client{Transport: tr, Timeout: patience}
	var n atomic.Int64
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		defer tr.CloseIdleConnections()
		for path := "/hot"; ctx.Err() == nil; path = map[string]string{"/hot": "/slow", "/slow": "/hot"}[path] {
			resp, err := client.Get("https://" + v.addr + path)
			if err != nil {
				v.tb.Errorf("a bystander: %v", err)
				return
			}
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if err != nil || resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
				v.tb.Errorf("a bystander: %s %s, %v", resp.Proto, resp.Status, err)
				return
			}
			n.Add(1)
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return func() int {
		for before := n.Load(); n.Load() < before+2 && !isClosed(done); { // afterwards as well
			time.Sleep(time.Millisecond)
		}
		cancel()
		<-done
		return int(n.Load())
	}
}

// raced reports whether the race detector is at work, which costs several times
// the memory and the CPU.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}
