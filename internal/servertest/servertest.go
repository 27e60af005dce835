// Package servertest runs servers of others, such as redis-server, for tests that
// kill them and start them again.
package servertest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Process is a server. It ends with the test.
type Process struct {
	t   testing.TB
	cmd *exec.Cmd // nil while it does not run
}

// New is one that does not run yet.
func New(t testing.TB) *Process {
	p := &Process{t: t}
	t.Cleanup(p.Kill)
	return p
}

// Run starts the server and tries it until it is up; what it writes is shown
// where it is not up within patience.
func (p *Process) Run(cmd *exec.Cmd, patience time.Duration, up func() error) {
	p.t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.cmd = cmd
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := up()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			p.Kill()
			p.t.Fatalf("%s does not answer (%v):\n%s", cmd.Path, err, &out)
		}
	}
}

// Signal sends it a signal.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// Kill is kill -9.
func (p *Process) Kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()         // and was killed
		p.cmd = nil
	}
}

// FreePort is one below those that the system gives to outgoing connections,
// so that a server that is killed finds it free again.
func FreePort(t testing.TB) string {
	t.Helper()
	for range 100 {
		port := fmt.Sprint(20000 + rand.IntN(12000))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// Eventually waits for what another process brings about.
func Eventually(t testing.TB, patience time.Duration, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
