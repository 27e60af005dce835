package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"go.uber.org/goleak"

	"millrace/internal/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen; a machine in tests
// may be slow. Calls have as much.
const patience = 20 * time.Second

// versitygw builds the S3 server, once; Go's cache keeps it. tools/s3/go.mod
// pins its version.
var versitygw = sync.OnceValues(func() (string, error) {
	dir := filepath.Join("..", "..", "tools", "s3")
	cmd := exec.Command("go", "tool", "-C", dir, "-n", "versitygw")
	// One build for tests with and without the race detector.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -pgo=off", "GOWORK=off")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building versitygw: %w\n%s", err, tail(errs.String()))
	}
	return strings.TrimSpace(string(out)), nil
})

func tail(s string) string { return s[max(0, len(s)-1000):] }

func program(t *testing.T) string {
	t.Helper()
	path, err := versitygw()
	if err == nil {
		return path
	}
	if os.Getenv("MILLRACE_NEED_S3") == "1" {
		t.Fatal(err)
	}
	t.Skipf("the S3 server of tools/s3 cannot be built (MILLRACE_NEED_S3=1 makes that an error): %v", err)
	return ""
}

// A server is a real S3 server of its own, over a folder.
type server struct {
	*servertest.Process
	t           *testing.T
	dir         string
	addr        string
	key, secret string
}

// start runs the server with one bucket, millrace.
func start(t *testing.T) *server {
	t.Helper()
	s := &server{Process: servertest.New(t), t: t, dir: t.TempDir(), addr: "127.0.0.1:" + servertest.FreePort(t), key: random(10), secret: random(20) + "/+"}
	s.bucket("millrace")
	s.run()
	return s
}

// bucket makes one; to the server it is a folder.
func (s *server) bucket(name string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Join(s.dir, name), 0o700); err != nil {
		s.t.Fatal(err)
	}
}

func random(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func (s *server) run() {
	s.t.Helper()
	// Without extended attributes, which not every folder for temporary files
	// has; we need no metadata of S3's.
	cmd := exec.Command(program(s.t), "--port", s.addr, "--quiet", "--keep-alive", "posix", "--nometa", s.dir)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.key, "ROOT_SECRET_KEY="+s.secret)
	s.Run(cmd, patience, func() error {
		c, err := net.DialTimeout("tcp", s.addr, time.Second)
		if err == nil {
			c.Close()
		}
		return err
	})
}

func escape(secret string) string {
	return strings.NewReplacer("/", "%2F", "+", "%2B").Replace(secret)
}

// url leads to a folder of the bucket, through any address.
func (s *server) url(addr, prefix string) string {
	return "s3+http://" + s.key + ":" + escape(s.secret) + "@" + addr + "/millrace/" + prefix
}

// open opens a store that is closed at the test's end.
func open(t *testing.T, o Options) *Store {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = patience
	}
	if o.ErrorLog == nil {
		o.ErrorLog = slog.New(slog.DiscardHandler)
	}
	st, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// raw puts bytes under a name in the bucket, past the store.
func raw(t *testing.T, st *Store, name string, b []byte) {
	t.Helper()
	_, err := st.client.Client.PutObject(context.Background(), st.to.bucket, name, bytes.NewReader(b), int64(len(b)),
		minio.PutObjectOptions{DisableMultipart: true})
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for something that another process brings about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	servertest.Eventually(t, patience, what, is)
}

// logged is a log that may be read while it is written.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) has(text string) func() bool {
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return strings.Contains(l.b.String(), text)
	}
}
