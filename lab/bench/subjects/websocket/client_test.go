package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
)

func config(t *testing.T) rampConfig {
	t.Helper()
	s := httptest.NewServer(websocket.Handler(func(c *websocket.Conn) { io.Copy(c, c) }))
	t.Cleanup(s.Close)
	return rampConfig{Address: s.Listener.Addr().String(), Connections: 5, Sources: 1, FirstSource: 2, Busy: 5, Timeout: 5 * time.Second, Limit: time.Minute}
}

// TestPhases speaks the protocol as the experiment does.
func TestPhases(t *testing.T) {
	ordersIn, orders := io.Pipe()
	answers, answersOut := io.Pipe()
	ended := make(chan error, 1)
	c := config(t)
	go func() { ended <- runPhases(c, ordersIn, answersOut) }()
	lines := bufio.NewScanner(answers)
	for _, step := range [][2]string{{"open", "echo\n"}, {"echoed", "close\n"}} {
		if !lines.Scan() || lines.Text() != step[0] {
			t.Fatalf("got %q, want %q", lines.Text(), step[0])
		}
		io.WriteString(orders, step[1])
	}
	lines.Scan()
	var rep rampReport
	if err := json.Unmarshal(lines.Bytes(), &rep); err != nil || rep.Succeeded != 5 {
		t.Fatalf("%v, %s", err, lines.Text())
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestWrongOrders(t *testing.T) {
	for _, orders := range []string{"", "close\n", "nonsense\n"} {
		if err := runPhases(config(t), strings.NewReader(orders), io.Discard); err == nil {
			t.Errorf("orders %q: no error", orders)
		}
	}
}
