package s3

import (
	"log/slog"
	"strings"
	"testing"

	"millrace/internal/observe/meter"
	"millrace/internal/process/servertest"
	"millrace/store/storetest"
)

// TestStrangers: what is no S3 server is said to be none, in one line with the server's name.
func TestStrangers(t *testing.T) {
	for is, addr := range servertest.Strangers(t) {
		t.Run(is, func(t *testing.T) {
			t.Parallel()
			log := new(logged)
			st := open(t, Options{URL: "s3+http://key:s3cret@" + addr + "/bucket", ErrorLog: slog.New(slog.NewTextHandler(log, nil))})
			servertest.Eventually(t, "it is said", log.has("server="+addr+"/bucket"))
			if err := storetest.PutText(st, "key", "body"); err == nil {
				t.Error("it was written to")
			}
			log.mu.Lock()
			defer log.mu.Unlock()
			if text := log.b.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "S3 server") || strings.Contains(text, "s3cret") {
				t.Errorf("the log says:\n%s", text)
			}
			if st.Trouble() == nil {
				t.Error("it is not known to be down")
			}
		})
	}
}

// TestMeters: what a bucket was asked is counted.
func TestMeters(t *testing.T) {
	s := start(t)
	m := meter.New()
	st := open(t, Options{URL: s.url(s.addr, ""), Meters: func(server string) *meter.Store { return m.Store("s3", server, "test") }})
	if err := storetest.PutText(st, "key", "body"); err != nil {
		t.Fatal(err)
	}
	mustHave(t, st, "key", "body")
	if _, err := storetest.GetText(st, "nothing"); err == nil {
		t.Error("there is nothing")
	}
	c := m.Stores()[0]
	if c.Server != s.addr+"/millrace" || st.Trouble() != nil {
		t.Errorf("the server is called %s, its trouble is %v", c.Server, st.Trouble())
	}
	calls := c.Calls.Snapshot()
	if c.Hits.Load() != 1 || c.Misses.Load() != 1 || c.Read.Load() != 4 || c.Written.Load() < 4 || calls.Count() != 3 || c.Errors.Load() != 0 {
		t.Errorf("hits %d, misses %d, bytes read %d and written %d, calls %d, errors %d",
			c.Hits.Load(), c.Misses.Load(), c.Read.Load(), c.Written.Load(), calls.Count(), c.Errors.Load())
	}
}
