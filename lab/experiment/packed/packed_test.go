package packed

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"millrace/lab/experiment"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// TestRows: every row is complete and the plan holds, in quick runs as well.
func TestRows(t *testing.T) {
	all := (&measurement{large: 64 << 20}).rows()
	for _, r := range all {
		if r.Name == "" || r.About == "" || r.Figure == "" || r.Metric == "" || r.Goal == 0 && r.Most == 0 || len(r.Arms) < 2 {
			t.Errorf("%q is incomplete", r.Name)
		}
		if !slices.Contains(r.Arms, r.Ours) || r.Arms[0] == r.Ours {
			t.Errorf("%q: %s is held against %s", r.Name, r.Ours, r.Arms)
		}
		c := r.Load
		c.URL = "http://127.0.0.1:1/"
		if err := c.Check(); r.Task == nil && err != nil {
			t.Errorf("%q: %v", r.Name, err)
		}
	}
	arms := []trial.Arm{{Name: packed}, {Name: disk}, {Name: nginx}}
	for _, mode := range []record.Mode{record.Quick, record.Full} {
		p := experiment.Schedule{Rounds: rounds, QuickRounds: 3, Slot: trial.MinSlot, QuickSlot: trial.MinSlot}.Plan(arms, all, metrics(), experiment.Env{Mode: mode})
		if err := p.Check(); err != nil {
			t.Error(err)
		}
		if p.Arms[0].Name != packed {
			t.Errorf("%s is started first", p.Arms[0].Name)
		}
	}
}

// TestPagesDiffer: equal contents would be packed once.
func TestPagesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range pageFiles() {
		seen[string(f.Content())] = true
	}
	if len(seen) != pages {
		t.Errorf("%d different pages", len(seen))
	}
}

func TestAwaitByte(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable) // no page yet: it asks again
			return
		}
		w.Write([]byte("a page"))
	}))
	defer server.Close()
	if err := awaitByte(t.Context(), strings.TrimPrefix(server.URL, "http://")); err != nil || asked.Load() != 2 {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
}

func TestAsk(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/page" {
			w.Write([]byte(r.Header.Get("Accept-Encoding")))
		}
	}))
	defer server.Close()
	if err := ask(t.Context(), http.DefaultClient, server.URL+"/page", "br"); err != nil {
		t.Error(err)
	}
	if err := ask(t.Context(), http.DefaultClient, server.URL+"/empty", "br"); err == nil {
		t.Error("an empty answer counts as a page")
	}
}

func TestAnswer(t *testing.T) {
	m := &measurement{large: 64 << 20}
	res := &record.Result{Metrics: metrics()}
	sample := func(arm, workload, metric string, v float64) {
		res.Samples = append(res.Samples, record.Sample{Arm: arm, Workload: workload, Values: map[string]float64{metric: v}})
	}
	sample(packed, "page", experiment.CPU, 98)
	sample(disk, "page", experiment.CPU, 100)
	sample(packed, "large", perMB, 90)
	sample(nginx, "large", perMB, 100)
	sample(packed, "first-byte", firstByte, 30e6)
	sample(packed, "memory", memory, 50e6)
	want := "Millrace spends 0.98 (0.98–0.98) of millrace-disk's on \"page\" and 0.90 (0.90–0.90) of nginx's on \"large\"; " +
		"the first byte comes 30 ms after the start of the packed site; it holds 50 MB when all files were asked for"
	if got := answer(res, m.rows()); got != want {
		t.Error(got)
	}
}
