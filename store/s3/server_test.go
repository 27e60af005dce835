package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/internal/process/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen; a machine in tests
// may be slow. Calls have as much.
const patience = 20 * time.Second

// A server is a real S3 server of its own, over a folder.
type server struct {
	*servertest.Process
	t           testing.TB
	dir         string
	addr        string
	key, secret string
}

// start runs the server with one bucket, millrace.
func start(t testing.TB) *server {
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
	s.S3(servertest.S3Program(s.t, "../.."), s.addr, s.dir, s.key, s.secret, patience)
}

func escapedSecret(secret string) string {
	return strings.NewReplacer("/", "%2F", "+", "%2B").Replace(secret)
}

// url leads to a folder of the bucket, through any address.
func (s *server) url(addr, prefix string) string {
	return "s3+http://" + s.key + ":" + escapedSecret(s.secret) + "@" + addr + "/millrace/" + prefix
}

// open opens a store that is closed at the test's end.
func open(t testing.TB, o Options) *Store {
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
	if err := st.client.put(context.Background(), name, bytes.NewReader(b), int64(len(b))); err != nil {
		t.Fatal(err)
	}
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
