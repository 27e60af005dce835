// Package servertest has what tests share: handlers served over each protocol,
// certificates, servers of others, such as redis-server, that a test kills and starts
// again, and the wait for what must become true.
package servertest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
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
// where it is not up within timeout.
func (p *Process) Run(cmd *exec.Cmd, timeout time.Duration, up func() error) {
	p.t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.cmd = cmd
	for end := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
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

// S3Program builds an S3 server, versitygw, whose version packaging/tools/s3/go.mod pins, in
// the checkout with that root, and returns its path; Go's cache keeps it. A test
// that cannot have it skips, or fails where MILLRACE_NEED_S3 is 1.
func S3Program(t testing.TB, root string) string {
	t.Helper()
	cmd := exec.Command("go", "tool", "-C", root+"/packaging/tools/s3", "-n", "versitygw")
	// One build for tests with and without the race detector.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -pgo=off", "GOWORK=off")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err == nil {
		return strings.TrimSpace(string(out))
	}
	text := errs.String()
	text = text[max(0, len(text)-1000):]
	if os.Getenv("MILLRACE_NEED_S3") == "1" {
		t.Fatalf("building versitygw: %v\n%s", err, text)
	}
	t.Skipf("the S3 server of packaging/tools/s3 cannot be built (MILLRACE_NEED_S3=1 makes that an error): %v\n%s", err, text)
	return ""
}

// S3 runs an S3 server at an address, over a folder with its buckets as folders.
func (p *Process) S3(program, address, dir, key, secret string, timeout time.Duration) {
	p.t.Helper()
	// Without extended attributes, which not every folder for temporary files
	// has; we need no metadata of S3's.
	cmd := exec.Command(program, "--port", address, "--quiet", "--keep-alive", "posix", "--nometa", dir)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+key, "ROOT_SECRET_KEY="+secret)
	p.Run(cmd, timeout, func() error {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			err = c.Close()
		}
		return err
	})
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

// eventuallyTimeout is how long Eventually waits. It is long, since only a test that fails waits
// so long, and a machine may have much else to do.
const eventuallyTimeout = time.Minute

// Eventually waits for what must become true by the work of a goroutine, a process or a
// kernel that does not tell of it. Where all is in one process, testing/synctest is better.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(eventuallyTimeout); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", eventuallyTimeout, what)
		}
	}
}
