package engine_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"millrace/internal/engine"
)

// TestHistoryBoundsChange: a reload that changes how much history is kept keeps
// what is there, as much as the new bounds have room for, and one that fails takes
// nothing away.
func TestHistoryBoundsChange(t *testing.T) {
	t.Parallel()
	defer http.DefaultClient.CloseIdleConnections()
	srv := start(t, parse(t, fmt.Sprintf(socketSite, "", "x")))
	publish := func(data string) {
		t.Helper()
		res, err := http.Post(srv.Addrs()[0]+"/live/publish?channel=news", "application/json", strings.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	var first heard
	expect := func(what string, want ...float64) {
		t.Helper()
		s := open(t, srv, "/live/ws")
		defer s.nc.Close()
		command := `{"subscribe":"news"}`
		if first.Epoch != "" {
			command = fmt.Sprintf(`{"subscribe":"news","epoch":%q,"offset":%d}`, first.Epoch, first.Offset)
		}
		if err := s.send(command); err != nil {
			t.Fatal(err)
		}
		if h := s.hear(t); first.Epoch == "" {
			first = h
		} else if h.Epoch != first.Epoch {
			t.Errorf("%s: the epoch %s, not %s", what, h.Epoch, first.Epoch)
		}
		for _, n := range want {
			if h := s.hear(t); h.Data != n {
				t.Errorf("%s: %v, want %v", what, h, n)
			}
		}
	}
	expect("at the start")
	publish("1")
	publish("2")
	publish("3")
	expect("before", 1, 2, 3)
	for _, step := range []struct {
		options string
		publish string
		want    []float64
	}{
		{"history: {messages: 50, age: 1h, memory: 1MiB}", "", []float64{1, 2, 3}},
		{"history: {messages: 3}, presence: true", "4", []float64{2, 3, 4}},
		{"history: {messages: 2}", "", []float64{3, 4}},
		{"history: {messages: 4}", "5", []float64{3, 4, 5}},
	} {
		reload(t, srv, parse(t, fmt.Sprintf(socketSite, step.options, "x")))
		if step.publish != "" {
			publish(step.publish)
		}
		expect(step.options, step.want...)
	}
	failed(t, srv, "history: {messages: 1}")
	expect("after a reload that fails", 3, 4, 5)
}

// failed reloads a config that cannot be served: its address is in use.
func failed(t *testing.T, srv *engine.Server, options string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	text := strings.Replace(fmt.Sprintf(socketSite, options, "x"), "127.0.0.1:0", l.Addr().String(), 1)
	if err := srv.Reload(parse(t, text)); err == nil {
		t.Error("a reload with an address that is in use does not fail")
	}
}
