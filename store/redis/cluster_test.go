package redis

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/store"
	"millrace/store/storetest"
)

// cluster forms one of three servers, or skips the test.
func cluster(t *testing.T) []*server {
	t.Helper()
	var nodes []*server
	for range 3 {
		nodes = append(nodes, start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", servertest.FreePort(t)))
	}
	for i, n := range nodes {
		n.do("CLUSTER ADDSLOTSRANGE %d %d", i*16384/3, (i+1)*16384/3-1)
		_, port, _ := net.SplitHostPort(n.addr)
		for _, other := range nodes[:i] {
			busPort := n.args[len(n.args)-1]
			other.do("CLUSTER MEET 127.0.0.1 %s %s", port, busPort)
		}
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		ready := 0
		for _, n := range nodes {
			if clusterState(n) {
				ready++
			}
		}
		if ready == len(nodes) {
			return nodes
		}
		if time.Now().After(end) {
			t.Skipf("a cluster of three has not formed within %v", patience)
		}
	}
}

func clusterState(n *server) bool {
	c, err := net.DialTimeout("tcp", n.addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "CLUSTER INFO\r\nQUIT\r\n")
	text, _ := io.ReadAll(c)
	return strings.Contains(string(text), "cluster_state:ok") && strings.Contains(string(text), "cluster_known_nodes:3")
}

func TestCluster(t *testing.T) {
	t.Parallel() // it waits more than it works
	nodes := cluster(t)
	urls := []string{nodes[0].url(), "redis://" + nodes[1].addr + "," + nodes[2].addr}
	storetest.Run(t, func(t *testing.T) store.Store {
		for _, n := range nodes {
			n.do("FLUSHALL")
		}
		return open(t, Options{URL: urls[0]})
	}, func(t *testing.T) store.Store { return open(t, Options{URL: urls[1]}) })

	var heard told
	a := open(t, Options{URL: urls[0], Message: heard.message, Began: heard.began})
	b := open(t, Options{URL: urls[1]})
	servertest.Eventually(t, "a listens", a.caughtUp.Load)
	for i := range 20 { // on all three servers
		roundTrip(t, b, fmt.Sprint("key ", i), "body")
	}
	if err := b.Publish(t.Context(), []byte("message")); err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, "a message", heard.has("message"))
	if len(heard.runs) != 1 {
		t.Errorf("the runs of the server that has the messages: %q", heard.runs)
	}
}
