package redis

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/store"
	"millrace/store/storetest"
)

// lines is a log that may be read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// TestReplica: a server that becomes another one's replica is down, which one line says
// with its name, and works again when it is none any more.
func TestReplica(t *testing.T) {
	t.Parallel() // it waits more than it works
	master, s := start(t), start(t)
	var heard told
	var log lines
	r := open(t, Options{URL: s.url(), Message: heard.message, Began: heard.began, ErrorLog: slog.New(slog.NewTextHandler(&log, nil))})
	servertest.Eventually(t, "it listens", r.heard.Load)
	roundTrip(t, r, "key", "body")
	host, port, _ := net.SplitHostPort(master.addr)
	s.do("REPLICAOF %s %s", host, port)
	servertest.Eventually(t, "it is down", func() bool { return r.Stats().Down })
	time.Sleep(2 * checkEvery)
	if err := storetest.PutText(r, "key", "body"); !errors.Is(err, store.ErrDown) {
		t.Errorf("writing to a replica: %v", err)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "server="+s.addr) {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
	s.do("REPLICAOF NO ONE")
	begin := time.Now()
	servertest.Eventually(t, "it works again", func() bool {
		_, err := storetest.GetText(r, "key")
		return storetest.PutText(r, "key", "body") == nil && err == nil
	})
	t.Logf("it worked again after %v", time.Since(begin))
	if len(heard.runs) != 2 {
		t.Errorf("the runs %q: what the server has is another one's", heard.runs)
	}
}
