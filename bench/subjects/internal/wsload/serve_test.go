package wsload

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

func TestServe(t *testing.T) {
	p := newPeer(t, "", echoAll)
	open, _ := json.Marshal(Order{Open: ptr(order(p, 3))})
	orders, in := io.Pipe()
	out, answers := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- Serve(orders, answers); answers.Close() }()
	lines := bufio.NewScanner(out)
	for _, step := range []struct{ order, want string }{
		{string(open), `"open":3`},
		{`{"echo":{"size":20}}`, `"messages":3`},
		{`{"echo":{"size":2}}`, `"error":"`},
		{`{"state":true}`, `"open":3`},
		{`{}`, `"error":"`},
		{`nonsense`, `"error":"`},
		{`{"close":true}`, `"open":0`},
	} {
		io.WriteString(in, step.order+"\n")
		if !lines.Scan() || !strings.Contains(lines.Text(), step.want) {
			t.Fatalf("%s is answered with %s, want %s in it", step.order, lines.Text(), step.want)
		}
	}
	in.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func ptr[T any](v T) *T { return &v }
