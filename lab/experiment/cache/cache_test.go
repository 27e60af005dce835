package cache

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"millrace/lab/experiment"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// plain is the least cache that the tasks can tell something of: it keeps all
// but what is private, until a BAN, and joins requests, but streams nothing.
type plain struct {
	lies bool // about everything that has a tag
	api  string

	mu   sync.Mutex
	kept map[string]*kept
}

type kept struct {
	once sync.Once
	body []byte
}

func (p *plain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target := r.URL.RequestURI()
	p.mu.Lock()
	if r.Method == "BAN" {
		clear(p.kept)
		p.mu.Unlock()
		return
	}
	k := p.kept[target]
	if k == nil || strings.Contains(target, "private=1") {
		k = &kept{}
		p.kept[target] = k
	}
	p.mu.Unlock()
	k.once.Do(func() {
		resp, err := http.Get("http://" + p.api + target)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		k.body, _ = io.ReadAll(resp.Body)
	})
	if p.lies && strings.Contains(target, "tag=") {
		_, _ = w.Write([]byte(`{"count":1}`))
		return
	}
	_, _ = w.Write(k.body)
}

// start is a measurement, and a slot of a plain cache.
func start(t *testing.T, lies bool) (*measurement, trial.TaskSlot) {
	t.Helper()
	api, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	server := httptest.NewServer(&plain{lies: lies, api: api.Address(), kept: map[string]*kept{}})
	t.Cleanup(server.Close)
	target, err := record.Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = target.Close() })
	in := &trial.Instance{URL: map[string]string{"": server.URL + "/"}}
	return &measurement{api: api}, trial.TaskSlot{
		Arm: "plain", URL: in.URL[""], Instance: in, Target: target, Random: rand.New(rand.NewPCG(1, 2)), Window: func(bool) {},
	}
}

// TestTasks: what is known of a cache that joins requests is found.
func TestTasks(t *testing.T) {
	m, slot := start(t, false)
	got, err := m.cold(t.Context(), slot, experiment.Workload{Connections: 100})
	if err != nil || got.Done != 100 || got.Failed != 0 || got.Values["asked"] != 1 || got.Values["slowest_ns"] < float64(slow) {
		t.Errorf("cold: %+v, %v", got, err)
	}
	got, err = m.private(t.Context(), slot, experiment.Workload{Connections: 50})
	if err != nil || got.Done != 100 || got.Values["asked"] != 100 || got.Values["second_ns"] < float64(slow) {
		t.Errorf("private: %+v, %v", got, err)
	}
	got, err = m.purge(t.Context(), slot, experiment.Workload{Count: 1000})
	if err != nil || got.Values["stored"] != 1 || got.Values["purge_ns"] <= 0 || got.Values["seen_ns"] < got.Values["purge_ns"] {
		t.Errorf("purged: %+v, %v", got, err)
	}
	before := m.api.Requests()
	got, err = m.everNew(t.Context(), slot, experiment.Workload{Count: 400})
	if err != nil || got.Done != 400 || m.api.Requests()-before != 400 || got.Values["peak_rss_bytes"] <= 0 {
		t.Errorf("ever new: %+v, %v", got, err)
	}
	got, err = m.follow(t.Context(), slot, experiment.Workload{Connections: 2})
	if err != nil || got.Done != 2 || got.Values["asked"] != 1 || got.Values["first_byte_ns"] <= 0 {
		t.Errorf("follow: %+v, %v", got, err)
	}
}

// TestWrongAnswers: a cache that answers with something else is found out.
func TestWrongAnswers(t *testing.T) {
	m, slot := start(t, true)
	if got, err := m.purge(t.Context(), slot, experiment.Workload{Count: 1000}); err == nil || !strings.Contains(err.Error(), "is not the API's") {
		t.Errorf("%+v, %v", got, err)
	}
}
