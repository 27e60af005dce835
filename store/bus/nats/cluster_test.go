package nats

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/store/bus"
)

// startCluster runs three servers that are one cluster.
func startCluster(t *testing.T) (servers []*server, url string) {
	t.Helper()
	var ports, routes, urls []string
	for range 3 {
		ports = append(ports, servertest.FreePort(t))
		routes = append(routes, "nats://127.0.0.1:"+ports[len(ports)-1])
	}
	for i := range 3 {
		s := newServer(t)
		s.args = []string{
			"--name", fmt.Sprint("server-", i), "--cluster_name", "test", "--cluster", routes[i],
			"--routes", strings.Join(routes, ","), "--no_advertise",
		}
		servers, urls = append(servers, s), append(urls, s.url())
	}
	for _, s := range servers {
		s.run()
	}
	return servers, strings.Join(urls, ",")
}

// openReplicated is openHost with a stream of three replicas.
func openReplicated(t *testing.T, url string, listen ...string) *host {
	t.Helper()
	b, err := Open(Options{URL: url, Name: "test", Keep: bus.Keep{Messages: 10_000, Age: 10 * time.Minute}, Replicas: 3, ErrorLog: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	h := &host{Bus: b, t: t, got: map[string][]bus.Message{}, placed: map[string]uint64{}}
	if err := b.Start(h); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.close(0) })
	h.isUp()
	for _, c := range listen {
		if err := b.Listen(c); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// leader is the server that leads the stream.
func (h *host) leader(servers []*server) *server {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	s, err := h.js.Stream(ctx, "test")
	if err != nil {
		h.t.Fatal(err)
	}
	info, err := s.Info(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	if info.Config.Replicas != 3 {
		h.t.Fatalf("the stream has %d replicas", info.Config.Replicas)
	}
	var n int
	if _, err := fmt.Sscanf(info.Cluster.Leader, "server-%d", &n); err != nil {
		h.t.Fatalf("the leader is %q", info.Cluster.Leader)
	}
	return servers[n]
}

// TestLeaderDies: the server that leads the stream is killed while two machines publish.
// What was acknowledged is there afterwards, once and in one order, and nobody waits for
// an acknowledgement longer than three seconds.
func TestLeaderDies(t *testing.T) {
	servers, url := startCluster(t)
	one, two := openReplicated(t, url, "a"), openReplicated(t, url, "a")
	hosts := []*host{one, two}
	var all sync.WaitGroup
	stop := make(chan struct{})
	want := make([][]string, 2)
	longest := make([]time.Duration, 2)  // between two acknowledgements
	numbered := make([]time.Duration, 2) // between two that had a number
	for i, h := range hosts {
		all.Go(func() {
			last, lastNumber := time.Now(), time.Now()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
				}
				text := fmt.Sprintf("%c%d", 'a'+i, n)
				m, err := h.Publish(t.Context(), bus.Message{Channel: "a", Data: []byte(text)})
				if err != nil {
					t.Errorf("publishing %s: %v", text, err)
					return
				}
				want[i] = append(want[i], text)
				now := time.Now()
				longest[i], last = max(longest[i], now.Sub(last)), now
				if m.Offset != 0 {
					numbered[i], lastNumber = max(numbered[i], now.Sub(lastNumber)), now
				}
			}
		})
	}
	time.Sleep(time.Second)
	leader := one.leader(servers)
	leader.Kill()
	time.Sleep(15 * time.Second)
	leader.run()
	time.Sleep(3 * time.Second)
	close(stop)
	all.Wait()
	published := slices.Concat(want...)
	agree(t, published, "a", hosts...)
	for i := range hosts {
		t.Logf("machine %d: %d published; at most %v between two acknowledgements, %v between two with a number",
			i, len(want[i]), longest[i].Round(time.Millisecond), numbered[i].Round(time.Millisecond))
		if longest[i] > 3*time.Second {
			t.Errorf("machine %d could not publish for %v", i, longest[i])
		}
	}
}

// TestReplicasWithoutCluster: who asks one server alone for three replicas is told what
// they need.
func TestReplicasWithoutCluster(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b, err := Open(Options{URL: s.url(), Name: "test", Keep: usual(), Replicas: 3, ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h := &host{Bus: b, t: t, got: map[string][]bus.Message{}, placed: map[string]uint64{}}
	if err := b.Start(h); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.close(0) })
	h.isDown()
	if text := b.Trouble().Error(); !strings.Contains(text, "3 replicas need as many servers of one cluster") {
		t.Errorf("the trouble is: %s", text)
	}
}
