package fetch

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"millrace/cache/purge"
	"millrace/cache/tier"
	"millrace/internal/upstream"
	"millrace/internal/wire/message"
)

// A fetch that Close ends while its leader does not listen leaves nobody waiting.
func TestEndBeforeTheLeaderListens(t *testing.T) {
	purges, err := purge.NewPurger(purge.Options{Index: purge.New(0), ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	tiers, err := tier.New(tier.Options{Budget: tier.MinMemory, Evicted: func() {}, Purges: purges.Index(), Order: purges})
	if err != nil {
		t.Fatal(err)
	}
	defer tiers.Close()
	f := NewFetcher(Config{Tiers: tiers, Purges: purges})
	q := &Request{Head: &message.Request{Path: "/"}, Key: "k"}
	fl, leader := f.Join(q)
	if !leader || !fl.Enter() {
		t.Fatal("the first one does not lead")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	a := &upstream.Answer{Status: http.StatusOK, Body: io.NopCloser(strings.NewReader(""))}
	if f.New(fl, q, nil).deliver(ended, a, "private") {
		t.Error("nobody took it")
	}
	if !f.Passes(q) {
		t.Error("the next ones wait for each other")
	}
	fl.Leave()
	fl.Finish()
	if n := f.Running(); n != 0 {
		t.Errorf("%d go on", n)
	}
}
